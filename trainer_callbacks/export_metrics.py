"""The only writer of numbers: builds one row per due epoch, owns the sinks and tells each what it wants to know."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter

import lightning as L
from lightning.pytorch.callbacks import Callback

from agents.base import Agent
from config.metrics import declared
from config.schema import Config
from report.memory import Memory
from report.outcome import Header, Outcome
from report.sink import Sink
from report.watch import Watch
from trainer_callbacks.evaluate import Evaluate

ROWS = 200  # rows of a whole run when log_freq_epochs is left open

Row = dict[str, float]


class ExportMetrics(Callback):
    """Asks agent and collector for their numbers, which is the interval's one wait for the device."""

    def __init__(
        self, evaluate: Evaluate, sinks: Sequence[Sink], watch: Watch | None = None, memory: Memory | None = None
    ) -> None:
        self.evaluate, self.sinks, self.watch, self.memory = evaluate, sinks, watch, memory
        self.row: Row = {}  # of the iteration just done, {} where none was due
        self._beating = [sink for sink in sinks if type(sink).beat is not Sink.beat]
        self._every = 0
        self._began = self._since = perf_counter()
        self._before = {"env_steps": 0, "iterations": 0, "collect": 0.0, "learn": 0.0}

    def begin(self, header: Header, config: Config) -> None:
        """Tell every sink which run this is."""
        for sink in self.sinks:
            sink.begin(header, config)

    def on_train_start(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        assert isinstance(agent, Agent)
        self._began = self._since = perf_counter()
        self._before |= agent.progress | agent.seconds

    def on_train_batch_end(
        self, trainer: L.Trainer, agent: L.LightningModule, outputs: object, batch: object, index: int
    ) -> None:
        assert isinstance(agent, Agent)
        self.row = {}
        if agent.epoch_ended and self._is_due(agent):
            agent.progress["exported"] = agent.progress["env_steps"]
            self.row = self._row(agent)
            self.emit(self.row)
            return
        for sink in self._beating:
            sink.beat(agent.progress)

    def _is_due(self, agent: Agent) -> bool:
        self._every = self._every or self._cadence(agent)
        return agent.epoch % self._every == 0 or self.evaluate.epoch == agent.epoch

    def media(self, video: Path) -> None:
        """Tell every sink of a video."""
        for sink in self.sinks:
            sink.media(video)

    def end(self, outcome: Outcome | None) -> None:
        """Tell every sink the outcome, None where an error ended the training."""
        for sink in self.sinks:
            sink.end(outcome)

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
        """Hand a row, and what alarms in it, to every sink; a name that metrics.yaml does not declare is an error."""
        for name in row:
            declared(name)
        for sink in self.sinks:
            sink.row(row)
        if self.watch is not None:
            for event in self.watch.add(row | (self.memory.look(row) if self.memory else {})):
                for sink in self.sinks:
                    sink.alert(event)

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
