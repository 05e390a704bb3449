"""Train a run again from its config and seed, and play its closing test again; verify_run.py compares the results."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from stride.agents.base import Agent
from stride.agents.engines.choice import build_agent
from stride.agents.engines.local_shards import agent_to_train
from stride.agents.trained.loading import read_checkpoint
from stride.commands.plain_tree import Difference, differences
from stride.config.schema import Config
from stride.envs_gym.make import make_envs
from stride.report.metrics_sinks import MetricsCsv
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.checkpoint import Checkpoint
from stride.trainer_callbacks.evaluate import Evaluate
from stride.trainer_callbacks.export_metrics import ExportMetrics
from stride.trainer_callbacks.schedule import ApplySchedules, AtPlateau
from stride.trainer_callbacks.session import build_trainer, restored
from stride.trainer_callbacks.stop import Stop
from stride.trainer_callbacks.user_callbacks import user_callbacks
from stride.utils.user_error import UserError

COMPARED_KEYS = ("state_dict", "optimizer_states", "stride", "callbacks")
Sidecars = dict[str, dict[str, Any]]  # checkpoint name -> sidecar, oldest first
CLOCK_KEYS = ("epoch", "iterations", "env_steps", "exported")


@contextmanager
def fit_errors(path: Path) -> Iterator[None]:
    """Turn errors of a checkpoint that does not fit the run's config into one line; it may contain anything."""
    try:
        yield
    except UserError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError, AssertionError) as error:
        raise UserError(f"{path} does not fit this run: {type(error).__name__}: {error}") from error


def checkpoint_contents(run: RunDir, name: str, config: Config) -> dict[str, Any]:
    """Return a checkpoint's contents with the rows of its replay memory put together.

    The rows are in several files, and it depends on the time of each save which file has which rows.
    """
    path = run.checkpoints / f"{name}.ckpt"
    state = read_checkpoint(path)
    with fit_errors(path):
        stored = state["stride"]["parts"]["memory"]
        if stored.get("segments"):
            envs = make_envs(config, config.n_envs)
            memory = build_agent(config, envs).memory
            memory.save_in(run.checkpoints / checkpoint_set.SEGMENTS)
            memory.load_state_dict(stored)
            stored["segments"] = memory.columns_written()
            envs.close()
        return {key: state[key] for key in COMPARED_KEYS}


class CompareAt(Callback):
    """Compares the state with each stored checkpoint that the training reaches; ends it after the last one."""

    def __init__(self, run: RunDir, config: Config, sidecars: Sidecars) -> None:
        self.run, self.config, self.remaining = run, config, dict(sidecars)
        self.differences: list[Difference] = []
        self.checkpoint: Checkpoint | None = None  # saves the state that is compared

    def on_train_batch_end(
        self, trainer: L.Trainer, agent: L.LightningModule, outputs: object, batch: object, index: int
    ) -> None:
        assert isinstance(agent, Agent) and self.checkpoint
        iterations = agent.progress["iterations"]
        names = [name for name, sidecar in self.remaining.items() if sidecar["iterations"] == iterations]
        if names:
            self.checkpoint.save(trainer, agent)
            new_run = self.checkpoint.run
            saved = checkpoint_set.target(new_run.checkpoints / "last.ckpt")
            state = checkpoint_contents(new_run, saved, self.config)
            clock = checkpoint_set.facts_of(new_run.checkpoints / f"{saved}.ckpt")
            for name in names:
                sidecar = self.remaining.pop(name)
                self.differences += differences(
                    {key: sidecar[key] for key in CLOCK_KEYS}, {key: clock[key] for key in CLOCK_KEYS}
                )
                self.differences += differences(checkpoint_contents(self.run, name, self.config), state)
        trainer.should_stop |= not self.remaining

    def on_train_end(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        for name in self.remaining:
            self.differences.append(Difference(name, float("inf"), "was not reached: the training stopped earlier"))


class StopAtStart(Callback):
    """Ends a training as soon as its state is restored."""

    def on_train_start(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        trainer.should_stop = True


def repeat_training(config: Config, goal: float | None, compare: CompareAt) -> RunDir:
    """Train the run from its start up to the last checkpoint to compare; return the new run."""
    torch.set_num_threads(config.torch_threads)
    agent = agent_to_train(config)
    run = RunDir.create(config.env_id, config.variant, config.seed, {"env_id": config.env_id})
    agent.memory.save_in(run.checkpoints / checkpoint_set.SEGMENTS)
    evaluate = Evaluate(config, lambda n: make_envs(config, n))
    checkpoint = Checkpoint(run, evaluate, replace(config, checkpoint_minutes=None), {})
    compare.checkpoint = checkpoint
    export = ExportMetrics(evaluate, [MetricsCsv(run.metrics_csv)])
    plateau = AtPlateau(config.plateau, lambda: export.row) if config.plateau else None
    stop = Stop(config, goal, evaluate.test, lambda: export.row, plateau=plateau)
    callbacks = [ApplySchedules(plateau), evaluate, export, *([plateau] if plateau else []), stop]
    build_trainer([*callbacks, *user_callbacks(config), compare, checkpoint]).fit(agent)
    export.finish(agent, {})
    export.end(None)
    evaluate.close()
    agent.collector.envs.close()
    return run


def repeat_test(run: RunDir, config: Config, path: Path) -> dict[str, float]:
    """Return the metrics of the closing test, played with the weights of a checkpoint.

    Each test plays other episodes, by its number. The checkpoint may already count the test that confirmed the goal.
    """
    agent = agent_to_train(config)
    agent.memory.save_in(run.checkpoints / checkpoint_set.SEGMENTS)
    evaluate = Evaluate(config, lambda n: make_envs(config, n))
    restored(build_trainer([evaluate, StopAtStart()], enable_checkpointing=False), agent, path)
    with fit_errors(path):
        evaluate.tests -= bool(read_checkpoint(path)["callbacks"]["Stop"]["tested"])
    numbers = evaluate.test(agent.policy)
    evaluate.close()
    agent.collector.envs.close()
    return numbers
