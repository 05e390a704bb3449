"""Train an agent from a config:   python train.py CartPole-v1:ppo   (python train.py --help says the rest)

The story of a run, top to bottom: arguments -> config -> worlds and agent -> run folder -> callbacks -> Trainer.fit.
"""

import utils.quick_start  # isort: skip  # before all others

import logging
import os
import shlex
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

from config.doorstep import knock
from utils.closed_pipe import outlive_readers

if __name__ == "__main__":
    outlive_readers()
    knock(sys.argv[1:])  # here, as the imports below take seconds

import lightning as L
import torch
from lightning.pytorch.profilers import PassThroughProfiler

from agents.algorithms import build_agent, may_be_fused
from agents.base import Agent
from agents.engines.fused_cpu.warm import warm
from agents.networks.policies import check_name
from config.arguments import Arguments, build_parser, parse_arguments
from config.debugger import for_debugger
from config.listing import list_environments
from config.loader import to_plain
from config.manual import help_text
from config.metrics import load_metrics
from config.schema import Config
from envs_gym.gym_env import EnvError
from envs_gym.make import Backend, choose_backend, env_info, make_envs
from envs_gym.step_watch import last_words
from report.console import Console
from report.metrics_csv import CsvLog, read_csv
from report.outcome import Header, Outcome, next_commands
from report.page import write_report
from trainer_callbacks.checkpoint import AtomicIO, Checkpoint
from trainer_callbacks.debug import Debug
from trainer_callbacks.disk_space import NoRoomError, explained
from trainer_callbacks.evaluate import Evaluate
from trainer_callbacks.export_metrics import ExportMetrics
from trainer_callbacks.interrupt import Dropped, Interrupts
from trainer_callbacks.resume import (
    adopt,
    continued_facts,
    find_again,
    fork_facts,
    host_facts,
    plain_hash,
    provenance_once,
    settings_hash,
)
from trainer_callbacks.schedule import ApplySchedules
from trainer_callbacks.stop import INTERRUPTED, Stop
from trainer_callbacks.video import Video
from utils import checkpoint_set
from utils.durable_file import check_room
from utils.interrupted import ctrl_c
from utils.one_line import one_line, told
from utils.run_dir import RunDir, runs_root, sound_runs
from utils.run_fate import died
from utils.run_files import read_json, write_json
from utils.run_lock import locked
from utils.run_log import open_run_log
from utils.seed_group import PREFIX, resume_seeds, train_seeds
from utils.user_error import NumbersError, UserError

utils.quick_start.loaded()

DEVICE = "cpu"
MARGIN = 16 << 20  # bytes for what a run writes beside checkpoints


def main(argv: list[str]) -> int:
    arguments = parse_arguments(argv)
    if arguments.help:
        return print_help(arguments)
    if arguments.list_envs is not None:
        return print_variants(arguments.list_envs)
    if arguments.resume.startswith(PREFIX):
        return resume_seeds([sys.executable, __file__], arguments.resume, arguments.overrides, os.cpu_count() or 1)
    return train_group(arguments) if len(arguments.seeds) > 1 else train(arguments)


def train(arguments: Arguments) -> int:
    """One run, new, continued or forked, under the eyes of whoever may interrupt it."""
    with Interrupts() as interrupts, ExitStack() as stack:
        try:
            return _train(arguments, interrupts, stack)
        except Dropped:
            interrupts.given_up()
            print(f"stopped by {interrupts.name} before there was anything to save", file=sys.stderr)
            return 128 + interrupts.number


def _train(arguments: Arguments, interrupts: Interrupts, stack: ExitStack) -> int:
    again, fate = None, ""
    if arguments.resume:
        found = RunDir.find(arguments.resume)
        fate = died(found, found.facts())
        if arguments.checkpoint in ("", "last"):
            stack.enter_context(locked(found.path))
        again = find_again(arguments.resume, arguments.checkpoint, arguments.overrides, arguments.accept_changes)
    config = again.config if again else arguments.load()
    if arguments.debug:
        config = for_debugger(config, tiny=not any(word.startswith("max_timesteps=") for word in arguments.overrides))
    torch.set_num_threads(config.threads)

    # every name is checked by its registry before a run folder exists
    with explained(config, "nothing was begun"):
        check_name(config)
        envs = make_envs(config, config.n_envs)
        warm(envs, config.algo_id if may_be_fused(config) else None, config.activation, arguments.quiet)
        agent = build_agent(config, envs)
    info = env_info(config)
    goal = info.reward_threshold if config.spec.goal is None else config.spec.goal
    backend = choose_backend(config)
    check_room(again.source.path if again else runs_root(), checkpoint_size(agent) + MARGIN)
    facts = {"env_id": config.env_id, "variant": config.variant, "seed": config.seed, "group": arguments.group}
    facts |= {"engine": agent.engine.name, "engine_reason": agent.engine.reason, "goal": goal}
    facts |= {"env_backend": backend.name, "env_backend_reason": backend.reason, **provenance_once()}
    facts |= {"resume": agent.collector.envs.resume, "status": "running", "config": to_plain(config)}
    facts["settings_sha256"] = settings_hash(facts)
    start = NEW
    if again and not again.fork:
        run = again.source
        run.tidy()
        checkpoint_set.sweep_orphans(run.checkpoints)
        write_json(run.config_json, {**continued_facts(again, facts), "failure": ""})
    else:
        facts = fork_facts(again, facts) if again else facts
        run = RunDir.create(config.env_id, config.variant, config.seed, facts)
        stack.enter_context(locked(run.path))
    if again and again.checkpoint:
        path = adopt(run, again) if again.fork else again.checkpoint
        start = Start(path, again.env_steps, again.sidecar["exported"], again.closing)

    console = Console(load_metrics(), config.max_timesteps, goal, arguments.quiet, start.env_steps)
    console.start(header(config, agent, backend, goal, run))
    with open_run_log(run.run_log, arguments.quiet) as log:
        log.debug(shlex.join(sys.argv))
        exactly = again.lines(agent.collector.envs.resume, bits_rest_on(agent)) if again else []
        for line in filter(None, [fate, *exactly]):
            log.info(line)
        with told_in(run, stack), explained(config, f"continue: python train.py --resume {run.id}"):
            watchers = [Debug(run)] if arguments.debug else []
            ended = fit(config, agent, goal, run, console, start, interrupts, watchers)
            log.debug(ended.outcome.sentence())
            status = "interrupted" if interrupts.number else "finished"
            done = {"status": status, "outcome": asdict(ended.outcome)}
            if not ended.lost:  # before the run is called finished: whoever dies in between writes it when it goes on
                write_report(run, config, read_csv(run.metrics_csv), ended.outcome)
            write_json(run.config_json, {**run.facts(), **done})
    console.finish(ended.outcome, next_commands(ended.outcome, f"{config.env_id}:{config.variant}"))
    if ended.lost:
        print(ended.lost, file=sys.stderr)
    return ended.exit_code


@contextmanager
def told_in(run: RunDir, stack: ExitStack) -> Iterator[None]:
    """Whatever ends the training but a signal is told in the run's config.json, and goes on."""

    def failed(line: str) -> None:
        with suppress(OSError, UserError):  # what is told at the terminal is the cause, not that it cannot be written
            write_json(run.config_json, {**read_json(run.config_json), "status": "failed", "failure": line})

    last_words.append(failed)
    stack.callback(last_words.remove, failed)
    try:
        yield
    except Dropped:
        raise
    except BaseException as error:
        failed(told(error))
        raise


class Start(NamedTuple):
    """From where a training goes on; all empty where it begins."""

    checkpoint: Path | None
    env_steps: int
    exported: int | None  # env steps of the last row that belongs to the checkpoint
    closing: bool  # only the end of the run is missing


class Ended(NamedTuple):
    """How a training ended, for people and for the shell."""

    outcome: Outcome
    exit_code: int
    lost: str  # what a signal cost, "" where nothing


NEW = Start(None, 0, None, False)


def fit(
    config: Config, agent: Agent, goal: float | None, run: RunDir, console: Console, start: Start = NEW,
    interrupts: Interrupts | None = None,
    watchers: Sequence[L.Callback] = (),
) -> Ended:  # fmt: skip
    """Callbacks, Trainer, and what came out."""
    began = time.perf_counter()
    evaluate = Evaluate(config, lambda n: make_envs(config, n))
    stop = Stop(config, goal, evaluate.test, interrupts, start.closing)
    csv = CsvLog(run.metrics_csv, start.exported)
    export = ExportMetrics(evaluate, [csv, console, stop])
    plain = to_plain(config)
    sidecar = {"resume": agent.collector.envs.resume, "env_backend": choose_backend(config).name, "config": plain}
    sidecar |= {"config_sha256": plain_hash(plain), **bits_rest_on(agent)}
    checkpoint = Checkpoint(run, evaluate, config, sidecar)
    video = Video(config, run)
    agent.memory.save_in(run.checkpoints / checkpoint_set.SEGMENTS)
    trainer = build_trainer([ApplySchedules(), evaluate, export, video, stop, *watchers, checkpoint])
    lost = ""
    try:
        restored(trainer, agent, start.checkpoint)
        stop.interrupts.patient = False  # what comes now can be done again at any time
        if not stop.tested and config.eval_freq_epochs and not stop.interrupts.number:
            stop.tested = evaluate.test(agent.policy)
    except Dropped:
        stop.interrupts.given_up()
        stop.reason, stop.tested = INTERRUPTED, {}
        steps = agent.progress["env_steps"] - checkpoint.saved["env_steps"]
        where = (
            f"the checkpoint at {checkpoint.saved['env_steps']:,}" if checkpoint.saved["iterations"] else "the start"
        )
        lost = f"stopped by {stop.interrupts.name}: {steps:,} env steps since {where} are lost; "
        lost += f"continue: python train.py --resume {run.id}"
    finally:
        console.close()
    if not lost:
        export.finish(agent, stop.tested)
    csv.close()
    evaluate.close()
    video.close()
    agent.collector.envs.close()
    mean = stop.tested.get("test/roll/ep_rew/mean")
    outcome = Outcome(
        solved=goal is not None and mean is not None and mean >= goal,
        reason=INTERRUPTED if stop.interrupts.number else stop.reason,
        goal=goal,
        val_best=evaluate.best if evaluate.best > float("-inf") else None,
        test_mean=mean,
        test_std=stop.tested.get("test/roll/ep_rew/std"),
        test_episodes=int(stop.tested.get("test/roll/episodes", 0)),
        env_steps=checkpoint.saved["env_steps"] if lost else agent.progress["env_steps"],
        seconds=time.perf_counter() - began,
        run_path=os.path.relpath(run.path),
    )
    return Ended(outcome, 128 + stop.interrupts.number if stop.interrupts.number else 0, lost)


class Began(L.Callback):
    """Notes that the training itself began: errors before that are of what was loaded."""

    def __init__(self) -> None:
        self.yes = False

    def on_train_start(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        self.yes = True


def restored(trainer: L.Trainer, agent: Agent, checkpoint: Path | None) -> None:
    """Trainer.fit; a checkpoint whose content does not fit this program and config becomes one clear line."""
    began = Began()
    trainer.callbacks.insert(0, began)  # type: ignore[attr-defined]
    try:
        trainer.fit(agent, ckpt_path=checkpoint, weights_only=True if checkpoint else None)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, AssertionError) as error:
        if checkpoint is None or began.yes or isinstance(error, UserError | EnvError | NumbersError):
            raise
        line = " ".join(str(error).split())[:300]
        raise UserError(f"{checkpoint} does not fit this run: {type(error).__name__}: {line}") from error


def checkpoint_size(agent: Agent) -> int:
    """About how many bytes two checkpoints take: weights with two moments each, and the replay memory once."""
    weights = sum(value.nbytes for value in agent.state_dict().values())
    return 6 * weights + (agent.memory.bytes if agent.memory.replayed else 0)


def bits_rest_on(agent: Agent) -> dict[str, Any]:
    """What else must be the same for the rest of a run to be the same, to the bit."""
    return {"engine": agent.engine.name, "device": DEVICE, **host_facts()}


class Unprofiled(PassThroughProfiler):
    """Lightning asks its profiler 38 times an iteration; one context for all of them saves 2 us each time."""

    _nothing = nullcontext()

    def profile(self, action_name: str) -> Any:
        return self._nothing


def build_trainer(callbacks: list[L.Callback], **options: object) -> L.Trainer:
    """A Trainer that does nothing we do ourselves: no epochs of its own, no bars, no files, no talk."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    settings: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": -1,
        "logger": False,
        "plugins": [AtomicIO()],
        "profiler": Unprofiled(),
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
    }
    return L.Trainer(callbacks=callbacks, **{**settings, **options})


def header(config: Config, agent: Agent, backend: Backend, goal: float | None, run: RunDir) -> Header:
    return Header(
        config_id=f"{config.env_id}:{config.variant}",
        algo_id=config.algo_id,
        engine=agent.engine.name,
        engine_why=agent.engine.reason,
        env_backend=backend.name,
        env_backend_why=backend.reason,
        device=DEVICE,
        n_envs=config.n_envs,
        seed=config.seed,
        parameters=sum(p.numel() for p in agent.policy.parameters()),
        goal=goal,
        max_timesteps=config.max_timesteps,
        run_path=os.path.relpath(run.path),
    )


def train_group(arguments: Arguments) -> int:
    """One run per seed: processes side by side, or one after the other where a debugger looks on."""
    config = arguments.load()
    make_envs(config, 1).close()  # a wrong name is said once, not by every process
    if arguments.debug:
        each = [replace(arguments, overrides=(*arguments.overrides, f"seed={seed}")) for seed in arguments.seeds]
        return max(train(one) for one in each)
    words = [*filter(None, (arguments.config_id, *arguments.overrides))]
    words += ["--config", os.path.abspath(arguments.file)] if arguments.file else []
    workers = max(1, (os.cpu_count() or 1) // config.threads)
    return train_seeds([sys.executable, __file__], words, arguments.seeds, workers)


def print_help(arguments: Arguments) -> int:
    """The flags, and with ENV:VARIANT every key it has: its value there and what it means."""
    keys = f"\n{help_text(arguments.load())}" if arguments.config_id or arguments.file else ""
    build_parser().print_help()
    print(keys, end="\n" if keys else "")
    return 0


def print_variants(term: str) -> int:
    """The shipped variants and what each last reached on this machine."""
    last: dict[str, str] = {}
    for _, facts in sound_runs():  # the newest first
        outcome = facts.get("outcome", {})
        if outcome.get("test_mean") is not None:
            reached = f"{outcome['test_mean']:.1f} after {outcome['env_steps']:,} steps"
            last.setdefault(f"{facts.get('env_id')}:{facts.get('variant')}", reached)
    rows = [("env:variant", "algorithm", "goal", "last result here", "description")]
    for env, variant, algorithm, goal, description, reached in list_environments(term, last):
        rows += [(f"{env}:{variant}", algorithm, goal, reached, description)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
    return 0


def command(argv: list[str]) -> int:
    """main with its errors as one line: 2 for what the person can right, 1 for what went wrong in training."""
    try:
        with ctrl_c():
            return main(argv)
    except (UserError, NumbersError, EnvError, NoRoomError) as error:
        print(f"error: {one_line(str(error))}", file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    utils.quick_start.leave(command(sys.argv[1:]))
