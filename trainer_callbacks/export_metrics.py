"""The only writer of numbers: builds one row per due epoch and hands it to every sink."""

from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any, Protocol

import lightning as L
from lightning.pytorch.callbacks import Callback

from agents.base import Agent
from config.metrics import declared
from trainer_callbacks.evaluate import Evaluate

ROWS = 200  # rows of a whole run when log_freq_epochs is left open

Row = dict[str, float]


class Sink(Protocol):
    """Where rows go: CSV, console, the stop rules, later a memory-mapped file and W&B."""

    def write(self, row: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class ExportMetrics(Callback):
    """Asks agent and collector for their numbers, which is the interval's one wait for the device."""

    def __init__(self, evaluate: Evaluate, sinks: Sequence[Sink]) -> None:
        self.evaluate, self.sinks = evaluate, sinks
        self._every = 0
        self._began = self._since = perf_counter()
        self._before = {"env_steps": 0, "iterations": 0, "collect": 0.0, "learn": 0.0}

    def on_train_start(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        assert isinstance(agent, Agent)
        self._began = self._since = perf_counter()
        self._before |= agent.progress | agent.seconds

    def on_train_batch_end(
        self, trainer: L.Trainer, agent: L.LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        assert isinstance(agent, Agent)
        if not agent.epoch_ended:
            return
        self._every = self._every or self._cadence(agent)
        if agent.epoch % self._every == 0 or self.evaluate.epoch == agent.epoch:
            agent.progress["exported"] = agent.progress["env_steps"]
            self.emit(self._row(agent))

    def finish(self, agent: Agent, tested: Mapping[str, float]) -> None:
        """The last row: what remains since the one before, with the test; a resumed run drops it again."""
        row = {"train/clock/env_steps": float(agent.progress["env_steps"])}
        if agent.progress["exported"] < agent.progress["env_steps"]:
            row = self._row(agent)
        if tested or len(row) > 1:
            self.emit(row | dict(tested))

    def _row(self, agent: Agent) -> Row:
        """Everything gathered since the row before."""
        row = self._clock(agent)
        row |= {f"train/roll/{name}": value for name, value in agent.collector.window.summary().items()}
        row |= {f"train/hyper/{name}": getattr(agent.live, name) for name in ("policy_lr", *agent.config.schedules())}
        return row | agent.metrics.flush()

    def emit(self, row: Row) -> None:
        """Hand a row to every sink; a name that metrics.yaml does not declare is an error of ours."""
        for name in row:
            declared(name)
        for sink in self.sinks:
            sink.write(row)

    def _clock(self, agent: Agent) -> Row:
        now, progress, seconds, before = perf_counter(), agent.progress, agent.seconds, self._before
        elapsed = max(now - self._since, 1e-9)
        row = {
            "train/clock/env_steps": float(progress["env_steps"]),
            "train/clock/epoch": float(agent.epoch),
            "train/clock/iterations": float(progress["iterations"]),
            "train/clock/updates": float(progress["updates"]),
            "train/time/seconds": now - self._began,
            "train/time/env_steps_per_second": (progress["env_steps"] - before["env_steps"]) / elapsed,
            "train/time/collect": (seconds["collect"] - before["collect"]) / elapsed,
            "train/time/learn": (seconds["learn"] - before["learn"]) / elapsed,
        }
        self._since = now
        self._before |= progress | seconds
        return row

    def _cadence(self, agent: Agent) -> int:
        """Epochs between rows; left open, such that a run has about ROWS of them."""
        config = agent.config
        if config.log_freq_epochs:
            return config.log_freq_epochs
        steps_per_epoch = agent.progress["env_steps"] / max(agent.epoch, 1)
        return max(1, round(config.max_timesteps / steps_per_epoch / ROWS))
