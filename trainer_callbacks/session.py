"""Run one training from start to end: `fit` is what `stride train`, resumes, sweeps and the laboratory call.

`fit` builds the callbacks in their order, runs Lightning's Trainer, tests the final weights and returns the Outcome.
"""

import logging
import os
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
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
from stride.runstore.outcome import INTERRUPTED, Header, Outcome, shares, task_words
from stride.runstore.run_dir import RunDir
from stride.runstore.run_log import NOTE
from stride.trainer_callbacks.checkpoint import AtomicIO, Checkpoint, Ownership
from stride.trainer_callbacks.debug import OneWorld
from stride.trainer_callbacks.dreams import judge_dreams
from stride.trainer_callbacks.evaluate import MAX_ENVS, Evaluate
from stride.trainer_callbacks.export_metrics import ExportMetrics
from stride.trainer_callbacks.failures import report_interrupted
from stride.trainer_callbacks.interrupt import Dropped, Interrupts
from stride.trainer_callbacks.onward import Onward, hooks_batches
from stride.trainer_callbacks.resume import host_facts, json_hash
from stride.trainer_callbacks.schedule import ApplySchedules, AtPlateau
from stride.trainer_callbacks.shortage import keep_freed_memory
from stride.trainer_callbacks.sink import Sink
from stride.trainer_callbacks.stop import TEST_EPISODES, TEST_MEAN, Stop, ignored_thresholds
from stride.trainer_callbacks.user_callbacks import user_callbacks
from stride.trainer_callbacks.video import Video
from stride.trainer_callbacks.watch import AlertWatch, past_rows
from stride.utils.devices import described
from stride.utils.places import TRAIN, back_to_caller, from_caller
from stride.utils.provenance import code_hash
from stride.utils.user_error import NumbersError, UserError

log = logging.getLogger("stride")


class TrainingStart(NamedTuple):
    """The point from which a training continues; the defaults are those of a new run."""

    checkpoint: Path | None = None
    env_steps: int = 0
    exported: int | None = None  # env steps of the last row that belongs to the checkpoint
    closing: bool = False  # training was complete when the process died: only the test and the report are missing
    tests: int = 0  # tests that the run had played when it ended before
    lines: tuple[str, ...] = ()  # lines about the resume, logged at the start
    changes: str = ""  # the overrides by which the config differs from the variant's


class Callbacks(NamedTuple):
    """The callbacks of one training. Their order matters: `export` makes a row of what `evaluate` measured, `stop`
    reads that row, and `checkpoint`, the last one, saves the state of all."""

    schedules: ApplySchedules
    evaluate: Evaluate
    export: ExportMetrics
    video: Video
    plateau: AtPlateau | None
    stop: Stop
    checkpoint: Checkpoint
    alerts: AlertWatch  # not a callback: judges the rows that `export` makes

    def in_order(self, others: Sequence[L.Callback]) -> list[L.Callback]:
        """Return them in the order in which they react to an iteration; `others` come after Stop."""
        plateau = [self.plateau] if self.plateau else []
        folder = self.checkpoint.run.path
        # Onward skips Lightning's loop while none of these has to react; not possible if another callback hooks batches
        due = [self.stop.is_due, self.evaluate.is_due_now, self.export.must_react]
        due += [self.video.is_due, self.checkpoint.is_due]
        onward = [] if any(map(hooks_batches, others)) else [Onward(folder, [self.schedules, self.stop], due)]
        own = [self.schedules, self.evaluate, self.export, self.video, *plateau, self.stop]
        return [*onward, Ownership(folder), *own, *others, self.checkpoint]


def fit(
    config: Config,
    agent: Agent,
    goal: float | None,
    run: RunDir,
    sinks: Sequence[Sink] = (),
    start: TrainingStart = TrainingStart(),  # noqa: B008  (immutable)
    interrupts: Interrupts | None = None,
    watchers: Sequence[L.Callback] = (),
    own: Sequence[L.Callback] | None = None,
    pause_at: int | None = None,
) -> Outcome:
    """Train in the run's folder until Stop ends it, test the weights, report to every sink, close what was opened.

    `watchers`: callbacks of ours for this run only (--debug). `own`: the user's callbacks if they were built already.
    `pause_at`: env steps at which the training stops, to be continued later.
    A signal is no error: `outcome.lost` and a line on stderr say what it cost. Errors are raised again after the sinks
    have ended.
    """
    started_at = time.perf_counter()
    keep_freed_memory()
    others = [*watchers, *(user_callbacks(config) if own is None else own)]
    callbacks = build_callbacks(config, agent, goal, run, sinks, start, others, interrupts or Interrupts(), pause_at)
    stop, export = callbacks.stop, callbacks.export
    # called if a second thread has to end the process by force
    stop.interrupts.last_words = lambda: report_forced_end(run, lost_words(stop, agent, callbacks.checkpoint))
    agent.memory.save_in(run.checkpoints / checkpoint_set.SEGMENTS)
    trainer = build_trainer(callbacks.in_order(others), **hardware(agent.device))
    try:
        export.begin(header(config, agent, goal, run, start.changes), config)
        for line in (*start.lines, *ignored_thresholds(config, goal)):
            log.info(line)
        lost = train_and_test(trainer, agent, start.checkpoint, stop, callbacks.checkpoint)
        dreams = {} if lost or stop.halted else judge_dreams(config, agent, run)
        run_lock.check(run.path)  # the test may have taken long: another machine may own the run now
        if not lost:
            export.finish(agent, {**stop.tested, **dreams})
        if not (lost or stop.halted):
            callbacks.checkpoint.finish(stop.tested.get(TEST_MEAN, float("-inf")), goal)
        # after a signal, environments are closed last: their processes may take long to end
        interrupted = bool(stop.interrupts.number)
        if not interrupted:
            close(callbacks, agent)
        outcome = outcome_of(callbacks, agent, goal, dreams, lost, time.perf_counter() - started_at)
        export.end(outcome)
    except BaseException:
        export.end(None)
        raise
    if lost:
        print(lost, file=sys.stderr, flush=True)
    if interrupted:
        close(callbacks, agent)
    return outcome


def close(callbacks: Callbacks, agent: Agent) -> None:
    """Close the environments and the renderer of a training."""
    for resource in (callbacks.evaluate, callbacks.video, agent.collector.envs):
        resource.close()
    back_to_caller()


def report_forced_end(run: RunDir, line: str) -> None:
    """Print and log `line` just before another thread ends the process by force; not if the run's end was written."""
    if report_interrupted(run):
        with suppress(OSError):
            os.write(2, f"{line}\n".encode())
        log.log(NOTE, line)


def stored_facts(run: RunDir) -> Mapping[str, Any]:
    """Return config.json of the run; {} if there is none (in trainings that the laboratory times)."""
    return run.facts() if run.config_json.is_file() else {}


def build_callbacks(
    config: Config,
    agent: Agent,
    goal: float | None,
    run: RunDir,
    sinks: Sequence[Sink],
    start: TrainingStart,
    others: Sequence[L.Callback],
    interrupts: Interrupts,
    pause_at: int | None,
) -> Callbacks:
    """Build the callbacks of a training and connect them with each other."""
    # with --debug evaluation steps one environment, so that a breakpoint stops in one only
    max_envs = 1 if any(isinstance(other, OneWorld) for other in others) else MAX_ENVS
    evaluate = Evaluate(config, lambda count: make_envs(config, count, agent.device), max_envs, start.tests)
    past = past_rows(run, start.env_steps) if start.checkpoint else ()
    alerts = AlertWatch(config, goal, past, stored_facts(run).get("shipped", ()))
    export = ExportMetrics(evaluate, sinks, alerts)
    plateau = AtPlateau(config.plateau, lambda: export.row) if config.plateau else None
    stop = Stop(config, goal, evaluate.test, lambda: export.row, interrupts, start.closing, plateau, pause_at)
    checkpoint = Checkpoint(run, evaluate, config, sidecar_facts(config, agent), export.checkpoint)
    video = Video(config, run, export.media)
    return Callbacks(ApplySchedules(plateau), evaluate, export, video, plateau, stop, checkpoint, alerts)


def train_and_test(trainer: L.Trainer, agent: Agent, start: Path | None, stop: Stop, checkpoint: Checkpoint) -> str:
    """Train to the end and test the final weights, if there is a goal or evaluations are on.

    Return what a signal cost and how to continue, "" if nothing was lost.
    """
    config = agent.config
    wants_test = config.test_episodes > 0 and (stop.goal is not None or config.eval_freq_epochs is not None)
    try:
        restored(trainer, agent, start)
        stop.interrupts.patient = False  # a test can be repeated at any time: a signal need not wait for it
        # a checkpoint may hold a test of fewer episodes than are wanted now
        complete = bool(stop.tested) and stop.tested.get(TEST_EPISODES, 0) >= config.test_episodes
        if wants_test and not complete and not stop.halted:
            stop.tested = dict(stop.test(agent.policy))
    except Dropped:
        stop.interrupts.stop_reminding()
        stop.reason = INTERRUPTED
        stop.tested = {}
        return lost_words(stop, agent, checkpoint)
    return ""


def lost_words(stop: Stop, agent: Agent, checkpoint: Checkpoint) -> str:
    """Return one line: how many env steps a signal cost, and the command that continues."""
    saved = checkpoint.saved
    since = f"the checkpoint at {saved['env_steps']:,}" if saved["iterations"] else "the start"
    steps = agent.progress["env_steps"] - saved["env_steps"]
    lost = f"stopped by {stop.interrupts.name}: {steps:,} env steps since {since} are lost"
    return f"{lost}; continue: {TRAIN} --resume {checkpoint.run.id}"


class TrainingBegan(L.Callback):
    """Remembers whether training itself began: an error before that comes from the loaded checkpoint."""

    reached = False

    def on_train_start(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        self.reached = True


def restored(trainer: L.Trainer, agent: Agent, checkpoint: Path | None) -> None:
    """Run Trainer.fit; a checkpoint that does not fit this program and config becomes one UserError."""
    training = TrainingBegan()
    trainer.callbacks.insert(0, training)  # type: ignore[attr-defined]
    try:
        trainer.fit(agent, ckpt_path=checkpoint, weights_only=True if checkpoint else None)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, AssertionError) as error:
        if checkpoint is None or training.reached or isinstance(error, UserError | EnvError | NumbersError):
            raise
        line = " ".join(str(error).split())[:300]
        raise UserError(f"{checkpoint} does not fit this run: {type(error).__name__}: {line}") from error


def outcome_of(
    callbacks: Callbacks, agent: Agent, goal: float | None, dreams: dict[str, float], lost: str, seconds: float
) -> Outcome:
    """Summarize how the training ended; `seconds`: wall time of `fit` in this process."""
    stop, evaluate, checkpoint = callbacks.stop, callbacks.evaluate, callbacks.checkpoint
    mean = stop.tested.get(TEST_MEAN)
    solved = goal is not None and mean is not None and mean >= goal
    return Outcome(
        solved=solved,
        reason=INTERRUPTED if stop.interrupts.number else stop.reason,
        goal=goal,
        val_best=evaluate.best if evaluate.best > float("-inf") else None,
        test_mean=mean,
        test_std=stop.tested.get("test/roll/ep_rew/std"),
        test_episodes=int(stop.tested.get(TEST_EPISODES, 0)),
        test_wanted=evaluate.config.test_episodes if stop.tested else 0,
        tests=evaluate.all_tests,
        env_steps=checkpoint.saved["env_steps"] if lost else agent.progress["env_steps"],
        seconds=seconds,
        run_path=from_caller(checkpoint.run.path),
        lost=lost,
        phases=shares(callbacks.export.seconds(agent)),
        alerts=callbacks.alerts.alerts,
        cures=() if solved else callbacks.alerts.cures(is_failed=mean is not None and goal is not None),
        dreams=dreams,
    )


def training_info(config: Config, agent: Agent) -> dict[str, Any]:
    """Return what config and engine decided about this training, and why, as entries of config.json.

    Example: {"engine": "fused_cpu", "engine_reason": "...", "threads": 2, "env_backend": "fast", ...}
    """
    engine, backend, workers = agent.engine, choose_backend(config), workers_of(config)
    return {
        "engine": engine.name,
        "engine_reason": engine.reason,
        "play": engine.play.name,
        "learn": engine.learn.name,
        "device": described(agent.device),
        "threads": engine.threads.number,
        "threads_reason": engine.threads.why,
        "env_backend": backend.name,
        "env_backend_reason": backend.reason,
        "workers": workers.number,
        "workers_reason": workers.reason,
        "resume": agent.collector.envs.resume,
    }


def header(config: Config, agent: Agent, goal: float | None, run: RunDir, changes: str = "") -> Header:
    """Return the facts that sinks print above a training; `changes` as in TrainingStart."""
    info = training_info(config, agent)
    choices = {name: info[name] for name in ("engine", "threads", "env_backend", "workers")}
    reasons = {f"{name}_why": info[f"{name}_reason"] for name in choices}
    return Header(
        config_id=f"{config.env_id}:{config.variant}",
        algo_id=config.algo_id,
        device=info["device"],
        n_envs=config.n_envs,
        seed=config.seed,
        parameters=sum(parameter.numel() for parameter in agent.policy.parameters()),
        goal=goal,
        max_timesteps=config.max_timesteps,
        run_path=from_caller(run.path),
        plateau=config.plateau.words() if config.plateau else "",
        settings=config.description.removeprefix("general ") if is_general_config(config) else "",
        changes=changes,
        task=task_words(f"{config.env_id}:{config.variant}", config.seed, stored_facts(run)),
        **choices,
        **reasons,
    )


def sidecar_facts(config: Config, agent: Agent) -> dict[str, Any]:
    """Return what every checkpoint's sidecar (its .json file) contains besides the clock, score and hash."""
    plain, info = to_plain(config), training_info(config, agent)
    entries = {"resume": info["resume"], "env_backend": info["env_backend"], "config": plain}
    return {**entries, "config_sha256": json_hash(plain), **bits_rest_on(agent)}


def bits_rest_on(agent: Agent) -> dict[str, Any]:
    """Return what must be equal, besides config and environments, for a resumed run to be the same bit for bit."""
    modules = named_modules(to_plain(agent.config))
    user_code = {f"code of {module}": code_hash(module) for module in sorted(modules) if module in sys.modules}
    return {"engine": agent.engine.name, "device": agent.device.type, **host_facts(agent.device), **user_code}


def checkpoint_size(agent: Agent) -> int:
    """Estimate the bytes of two checkpoints: twice the weights with Adam's two moments, and the replay memory once."""
    weights = sum(value.nbytes for value in agent.state_dict().values())
    return 6 * weights + (agent.memory.bytes if agent.memory.replayed else 0)


class Unprofiled(PassThroughProfiler):
    """A profiler that does nothing: Lightning asks it 38 times an iteration, and one shared context saves 2 us each."""

    _nothing = nullcontext()

    def profile(self, action_name: str) -> Any:
        return self._nothing


def hardware(device: torch.device) -> dict[str, object]:
    """Return the Trainer's options for the device of an agent."""
    return {"accelerator": "cpu"} if device.type == "cpu" else {"accelerator": device.type, "devices": [device.index]}


def build_trainer(callbacks: list[L.Callback], **options: object) -> L.Trainer:
    """Build a Trainer without the parts that Stride does itself: no epochs, progress bars, files or log lines."""
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
