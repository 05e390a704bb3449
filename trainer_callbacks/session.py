"""One training from its first callback to its last word: callbacks in their order, Lightning's Trainer, the outcome."""

import logging
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
import torch
from lightning.pytorch.profilers import PassThroughProfiler

from stride.agents.base import Agent
from stride.config.general import is_general_config
from stride.config.loader import to_plain
from stride.config.plugins import named_modules
from stride.config.schema import Config
from stride.envs_gym.backends import choose_backend
from stride.envs_gym.gym_env import EnvError
from stride.envs_gym.make import make_envs
from stride.envs_gym.workers import workers_of
from stride.runstore import checkpoint_set, run_lock
from stride.runstore.outcome import INTERRUPTED, Header, Outcome, shares
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.caller import from_caller, go_back
from stride.trainer_callbacks.checkpoint import AtomicIO, Checkpoint
from stride.trainer_callbacks.debug import Debug
from stride.trainer_callbacks.dreams import dreams_judged
from stride.trainer_callbacks.evaluate import MOST_WORLDS, Evaluate
from stride.trainer_callbacks.export_metrics import ExportMetrics
from stride.trainer_callbacks.interrupt import Dropped, Interrupts
from stride.trainer_callbacks.kept_memory import keep_freed_memory
from stride.trainer_callbacks.memory_watch import Memory
from stride.trainer_callbacks.own import own_callbacks
from stride.trainer_callbacks.ownership import Ownership
from stride.trainer_callbacks.plateau import AtPlateau
from stride.trainer_callbacks.resume import host_facts, json_hash
from stride.trainer_callbacks.schedule import ApplySchedules
from stride.trainer_callbacks.sink import Sink
from stride.trainer_callbacks.stop import TEST_EPISODES, TESTED, Stop, unheeded
from stride.trainer_callbacks.video import Video
from stride.trainer_callbacks.watch import Watch, past_rows
from stride.utils.devices import described
from stride.utils.places import TRAIN
from stride.utils.provenance import code_hash
from stride.utils.user_error import NumbersError, UserError

log = logging.getLogger("stride")


class Start(NamedTuple):
    """From where a training goes on; all empty where it begins."""

    checkpoint: Path | None = None
    env_steps: int = 0
    exported: int | None = None  # env steps of the last row that belongs to the checkpoint
    closing: bool = False  # only the end of the run is missing
    tests: int = 0  # that the run had, when it ended before
    lines: tuple[str, ...] = ()  # what a person should know of it


def fit(
    config: Config,
    agent: Agent,
    goal: float | None,
    run: RunDir,
    sinks: Sequence[Sink] = (),
    start: Start = Start(),  # noqa: B008  (immutable)
    interrupts: Interrupts | None = None,
    watchers: Sequence[L.Callback] = (),
    own: Sequence[L.Callback] | None = None,
    pause_at: int | None = None,
) -> Outcome:
    """Train in this run's folder until Stop says so, test, and tell every sink; what is made for it is closed.

    `pause_at`: env steps at which it stops, saved and untested, to go on another time.

    A signal ends it well, with what it cost in `outcome.lost`; errors of any kind pass, the sinks having been told.
    """
    began = time.perf_counter()
    keep_freed_memory()
    own = own_callbacks(config) if own is None else own  # made by who wants to hear of mistakes before there is a run
    alone = any(isinstance(watcher, Debug) for watcher in watchers)  # a breakpoint sees one world at a time
    evaluate = Evaluate(config, lambda n: make_envs(config, n, agent.device), 1 if alone else MOST_WORLDS, start.tests)
    watch = Watch(config, goal, past_rows(run, start.env_steps) if start.checkpoint else ())
    export = ExportMetrics(evaluate, sinks, watch, Memory(run.logs, start.env_steps))
    plateau = AtPlateau(config.plateau, lambda: export.row) if config.plateau else None
    stop = Stop(config, goal, evaluate.test, lambda: export.row, interrupts, start.closing, plateau, pause_at)
    checkpoint = Checkpoint(run, evaluate, config, sidecar_facts(config, agent), export.checkpoint)
    video = Video(config, run, export.media)
    agent.memory.save_in(run.checkpoints / checkpoint_set.SEGMENTS)
    # a row is made of what was evaluated, Stop reads it, and a checkpoint holds what all of them remember
    trainer = build_trainer(
        [
            Ownership(run.path),
            ApplySchedules(plateau),
            evaluate,
            export,
            video,
            *filter(None, [plateau]),
            stop,
            *watchers,
            *own,
            checkpoint,
        ],
        **hardware(agent.device),
    )
    try:
        export.begin(header(config, agent, goal, run), config)
        for line in (*start.lines, *unheeded(config, goal)):
            log.info(line)
        lost = trained(trainer, agent, start.checkpoint, stop, checkpoint)
        lost += f"; continue: {TRAIN} --resume {run.id}" if lost else ""
        dreams = {} if lost or stop.halted else dreams_judged(config, agent, run)
        run_lock.check(run.path)  # the test may have taken long
        if not lost:
            export.finish(agent, {**stop.tested, **dreams})
            if not stop.halted:
                checkpoint.finish(stop.tested.get(TESTED, float("-inf")), goal)
        evaluate.close()
        video.close()
        agent.collector.envs.close()
        go_back()
        env_steps = checkpoint.saved["env_steps"] if lost else agent.progress["env_steps"]
        outcome = outcome_of(run, goal, stop, evaluate, env_steps, time.perf_counter() - began, lost)
        outcome = replace(outcome, phases=shares(export.seconds(agent)), alerts=watch.alerts, dreams=dreams)
        export.end(outcome)
    except BaseException:
        export.end(None)
        raise
    return outcome


def trained(trainer: L.Trainer, agent: Agent, start: Path | None, stop: Stop, checkpoint: Checkpoint) -> str:
    """Train to the end and test; what a signal cost, "" where nothing."""
    try:
        restored(trainer, agent, start)
        stop.interrupts.patient = False  # what comes now can be done again at any time
        # a checkpoint may hold a test of fewer episodes than are wanted now
        whole = bool(stop.tested) and stop.tested.get(TEST_EPISODES, 0) >= agent.config.test_episodes
        if not whole and tests(agent.config, stop.goal) and not stop.halted:
            stop.tested = dict(stop.test(agent.policy))
    except Dropped:
        stop.interrupts.stop_reminding()
        stop.reason, stop.tested = INTERRUPTED, {}
        saved = checkpoint.saved
        where = f"the checkpoint at {saved['env_steps']:,}" if saved["iterations"] else "the start"
        steps = agent.progress["env_steps"] - saved["env_steps"]
        return f"stopped by {stop.interrupts.name}: {steps:,} env steps since {where} are lost"
    return ""


def tests(config: Config, goal: float | None) -> bool:
    """Whether the final weights are tested: wherever there is a goal, else where their score is asked for."""
    return config.test_episodes > 0 and (goal is not None or config.eval_freq_epochs is not None)


class TrainingBegan(L.Callback):
    """Notes that the training itself began: errors before that are of what was loaded."""

    reached = False

    def on_train_start(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        self.reached = True


def restored(trainer: L.Trainer, agent: Agent, checkpoint: Path | None) -> None:
    """Trainer.fit; a checkpoint whose content does not fit this program and config becomes one clear line."""
    began = TrainingBegan()
    trainer.callbacks.insert(0, began)  # type: ignore[attr-defined]
    try:
        trainer.fit(agent, ckpt_path=checkpoint, weights_only=True if checkpoint else None)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, AssertionError) as error:
        if checkpoint is None or began.reached or isinstance(error, UserError | EnvError | NumbersError):
            raise
        line = " ".join(str(error).split())[:300]
        raise UserError(f"{checkpoint} does not fit this run: {type(error).__name__}: {line}") from error


def outcome_of(
    run: RunDir, goal: float | None, stop: Stop, evaluate: Evaluate, env_steps: int, seconds: float, lost: str
) -> Outcome:
    """How it ended, of what the callbacks know."""
    mean = stop.tested.get(TESTED)
    return Outcome(
        solved=goal is not None and mean is not None and mean >= goal,
        reason=INTERRUPTED if stop.interrupts.number else stop.reason,
        goal=goal,
        val_best=evaluate.best if evaluate.best > float("-inf") else None,
        test_mean=mean,
        test_std=stop.tested.get("test/roll/ep_rew/std"),
        test_episodes=int(stop.tested.get(TEST_EPISODES, 0)),
        test_wanted=evaluate.config.test_episodes if stop.tested else 0,
        tests=evaluate.all_tests,
        env_steps=env_steps,
        seconds=seconds,
        run_path=from_caller(run.path),
        lost=lost,
    )


def header(config: Config, agent: Agent, goal: float | None, run: RunDir) -> Header:
    """The facts above a training."""
    backend, workers = choose_backend(config), workers_of(config)
    return Header(
        config_id=f"{config.env_id}:{config.variant}",
        algo_id=config.algo_id,
        engine=agent.engine.name,
        engine_why=agent.engine.reason,
        env_backend=backend.name,
        env_backend_why=backend.reason,
        workers=workers.number,
        workers_why=workers.reason,
        device=described(agent.device),
        n_envs=config.n_envs,
        seed=config.seed,
        parameters=sum(p.numel() for p in agent.policy.parameters()),
        goal=goal,
        max_timesteps=config.max_timesteps,
        run_path=from_caller(run.path),
        threads=agent.engine.threads.number,
        threads_why=agent.engine.threads.why,
        plateau=config.plateau.words() if config.plateau else "",
        settings=config.description.removeprefix("general ") if is_general_config(config) else "",
    )


def sidecar_facts(config: Config, agent: Agent) -> dict[str, Any]:
    """What every checkpoint says of itself beside its clock."""
    plain = to_plain(config)
    facts = {"resume": agent.collector.envs.resume, "env_backend": choose_backend(config).name, "config": plain}
    return {**facts, "config_sha256": json_hash(plain), **bits_rest_on(agent)}


def bits_rest_on(agent: Agent) -> dict[str, Any]:
    """What else must be the same for the rest of a run to be the same, to the bit."""
    modules = named_modules(to_plain(agent.config))
    own = {f"code of {module}": code_hash(module) for module in sorted(modules) if module in sys.modules}
    return {"engine": agent.engine.name, "device": agent.device.type, **host_facts(agent.device), **own}


def checkpoint_size(agent: Agent) -> int:
    """About how many bytes two checkpoints take: weights with two moments each, and the replay memory once."""
    weights = sum(value.nbytes for value in agent.state_dict().values())
    return 6 * weights + (agent.memory.bytes if agent.memory.replayed else 0)


class Unprofiled(PassThroughProfiler):
    """Lightning asks its profiler 38 times an iteration; one context for all of them saves 2 us each time."""

    _nothing = nullcontext()

    def profile(self, action_name: str) -> Any:
        return self._nothing


def hardware(device: torch.device) -> dict[str, object]:
    """What Lightning wants to hear of where an agent lies."""
    return {"accelerator": "cpu"} if device.type == "cpu" else {"accelerator": device.type, "devices": [device.index]}


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
