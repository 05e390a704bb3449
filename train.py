"""Train an agent from a config:   python train.py CartPole-v1:ppo   (python train.py --help says the rest)

The story of a run, top to bottom: arguments -> config -> worlds and agent -> run folder -> callbacks -> Trainer.fit.
"""

import logging
import os
import shlex
import signal
import sys
import time
import warnings
from dataclasses import asdict, replace
from typing import NamedTuple

import lightning as L
import torch

from agents.algorithms import build_agent, may_be_fused
from agents.base import Agent, NumbersError
from agents.engines.fused_cpu.warm import warm
from agents.experience.segments import SEGMENTS
from config.arguments import Arguments, build_parser, parse_arguments
from config.debugger import for_debugger
from config.listing import list_environments
from config.loader import from_plain, to_plain
from config.manual import help_text
from config.metrics import load_metrics
from config.schema import Config
from envs_gym.gym_env import EnvError
from envs_gym.make import Backend, choose_backend, env_info, make_envs
from trainer_callbacks.checkpoint import AtomicIO, Checkpoint
from trainer_callbacks.console import Console
from trainer_callbacks.csv_log import CsvLog, read_csv
from trainer_callbacks.evaluate import Evaluate
from trainer_callbacks.export_metrics import ExportMetrics
from trainer_callbacks.outcome import Header, Outcome, next_commands
from trainer_callbacks.report import write_report
from trainer_callbacks.schedule import ApplySchedules
from trainer_callbacks.stop import Stop
from trainer_callbacks.video import Video
from utils.closed_pipe import outlive_readers
from utils.provenance import provenance
from utils.run_dir import RunDir, list_runs, read_json, write_json
from utils.run_log import open_run_log
from utils.seed_group import train_seeds
from utils.user_error import UserError


def main(argv: list[str]) -> int:
    arguments = parse_arguments(argv)
    if arguments.help:
        return print_help(arguments)
    if arguments.list_envs is not None:
        return print_variants(arguments.list_envs)
    return train_group(arguments) if len(arguments.seeds) > 1 else train(arguments)


def train(arguments: Arguments) -> int:
    """One run, new or resumed."""
    resumed = RunDir.find(arguments.resume) if arguments.resume else None
    config = resumed_config(resumed, arguments) if resumed else arguments.load()
    if arguments.debug:
        config = for_debugger(config)
        torch.autograd.set_detect_anomaly(True)
    torch.set_num_threads(config.threads)

    # every name is checked by its registry before a run folder exists
    envs = make_envs(config, config.n_envs)
    warm(envs, config.activation if may_be_fused(config) else None, arguments.quiet)
    agent = build_agent(config, envs)
    info = env_info(config)
    goal = info.reward_threshold if config.spec.goal is None else config.spec.goal
    run = resumed or RunDir.create(config.env_id, config.variant, config.seed)
    backend = choose_backend(config)
    first_step = last_checkpoint(run)["env_steps"] if resumed else 0
    if resumed:
        before = read_json(run.config_json)
        again = [*before.get("resumed", []), {**provenance(), "env_steps": first_step}]
        facts = {**before, "resumed": again}
    else:
        facts = {"env_id": config.env_id, "variant": config.variant, "seed": config.seed, "group": arguments.group}
        facts |= {"engine": agent.engine.name, "engine_reason": agent.engine_reason, "goal": goal}
        facts |= {"env_backend": backend.name, "env_backend_reason": backend.reason, **provenance()}
    write_json(run.config_json, {**facts, "status": "running", "config": to_plain(config)})

    console = Console(load_metrics(), config.max_timesteps, goal, arguments.quiet, first_step)
    console.start(header(config, agent, backend, goal, run))
    with open_run_log(run.run_log, arguments.quiet) as log:
        log.debug(shlex.join(sys.argv))
        ended = fit(config, agent, goal, run, console, resume=resumed is not None)
        log.debug(ended.outcome.sentence())
        done = {"status": "finished", "outcome": asdict(ended.outcome)}
        write_json(run.config_json, {**read_json(run.config_json), **done})
        write_report(run, config, read_csv(run.metrics_csv), ended.outcome)
    console.finish(ended.outcome, next_commands(ended.outcome, f"{config.env_id}:{config.variant}"))
    return ended.exit_code


class Ended(NamedTuple):
    """How a training ended, for people and for the shell."""

    outcome: Outcome
    exit_code: int


def fit(config: Config, agent: Agent, goal: float | None, run: RunDir, console: Console, resume: bool = False) -> Ended:
    """Callbacks, Trainer, and what came out."""
    began = time.perf_counter()
    evaluate = Evaluate(config, lambda n: make_envs(config, n))
    stop = Stop(config, goal, evaluate.test)
    csv = CsvLog(run.metrics_csv, last_checkpoint(run)["exported"] if resume else None)
    export = ExportMetrics(evaluate, [csv, console, stop])
    checkpoint = Checkpoint(run, evaluate, config.checkpoint_freq_epochs)
    video = Video(config, run)
    agent.memory.save_in(run.checkpoints / SEGMENTS)
    trainer = build_trainer([ApplySchedules(), evaluate, export, video, stop, checkpoint])
    try:
        trainer.fit(agent, ckpt_path=run.checkpoints / "last.ckpt" if resume else None)
        if not stop.tested and config.eval_freq_epochs and not stop.interrupted:
            stop.tested = evaluate.test(agent.policy)
    finally:
        console.close()
    export.finish(agent, stop.tested)
    csv.close()
    evaluate.close()
    video.close()
    agent.collector.envs.close()
    mean = stop.tested.get("test/roll/ep_rew/mean")
    outcome = Outcome(
        solved=goal is not None and mean is not None and mean >= goal,
        reason=stop.reason,
        goal=goal,
        val_best=evaluate.best if evaluate.best > float("-inf") else None,
        test_mean=mean,
        test_std=stop.tested.get("test/roll/ep_rew/std"),
        test_episodes=int(stop.tested.get("test/roll/episodes", 0)),
        env_steps=agent.progress["env_steps"],
        seconds=time.perf_counter() - began,
        run_path=os.path.relpath(run.path),
    )
    return Ended(outcome, 128 + stop.interrupted if stop.interrupted else 0)


def build_trainer(callbacks: list[L.Callback], **options: object) -> L.Trainer:
    """A Trainer that does nothing we do ourselves: no epochs of its own, no bars, no files, no talk."""
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("lightning.fabric").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    settings = {"accelerator": "cpu", "devices": 1, "max_epochs": -1, "logger": False, "plugins": [AtomicIO()]}
    silent = {"enable_progress_bar": False, "enable_model_summary": False, "num_sanity_val_steps": 0}
    return L.Trainer(callbacks=callbacks, **{**settings, **silent, **options})  # type: ignore[arg-type]


def resumed_config(run: RunDir, arguments: Arguments) -> Config:
    """The run's own config, with the changes that were asked for; its last checkpoint must be there."""
    if not (run.checkpoints / "last.ckpt").exists():
        raise UserError(f"{run.id} has no checkpoint to resume from")
    facts = read_json(run.config_json)
    config = from_plain(facts["config"], run.id, arguments.overrides)
    if config.engine == "auto":
        config = replace(config, engine=facts["engine"])
    if config.env_backend == "auto":  # what was chosen then holds, whatever has been compiled since
        config = replace(config, env_backend=facts.get("env_backend", "gym"))
    if config.max_timesteps <= last_checkpoint(run)["env_steps"]:
        raise UserError(f"{run.id} has spent its budget of {config.max_timesteps:,}; give more: --max-timesteps N")
    return config


def last_checkpoint(run: RunDir) -> dict[str, int]:
    """The clock of the run's last checkpoint, from its sidecar."""
    return read_json(run.checkpoints / "last.json")


def header(config: Config, agent: Agent, backend: Backend, goal: float | None, run: RunDir) -> Header:
    return Header(
        config_id=f"{config.env_id}:{config.variant}",
        algo_id=config.algo_id,
        engine=agent.engine.name,
        engine_why=agent.engine_reason,
        env_backend=backend.name,
        env_backend_why=backend.reason,
        device="cpu",
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
    command = [sys.executable, __file__, *filter(None, (arguments.config_id, *arguments.overrides))]
    command += ["--config", arguments.file] if arguments.file else []
    return train_seeds(command, arguments.seeds, max(1, (os.cpu_count() or 1) // config.threads))


def print_help(arguments: Arguments) -> int:
    """The flags, and with ENV:VARIANT every key it has: its value there and what it means."""
    build_parser().print_help()
    if arguments.config_id or arguments.file:
        print(f"\n{help_text(arguments.load())}")
    return 0


def print_variants(term: str) -> int:
    """The shipped variants and what each last reached on this machine."""
    last: dict[str, str] = {}
    for facts in (read_json(run.config_json) for run in list_runs()[::-1] if run.config_json.is_file()):
        outcome = facts.get("outcome", {})
        if outcome.get("test_mean") is not None:
            reached = f"{outcome['test_mean']:.1f} after {outcome['env_steps']:,} steps"
            last[f"{facts['env_id']}:{facts['variant']}"] = reached
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
        return main(argv)
    except (UserError, NumbersError, EnvError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    outlive_readers()
    sys.exit(command(sys.argv[1:]))
