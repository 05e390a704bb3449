"""The only writer of numbers: builds the rows that are due, owns the sinks and calls each of them."""

import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from stride.agents.base import Agent
from stride.config.metrics import check_logged
from stride.config.schema import Config
from stride.envs_gym.wrappers.registry import may_change_rewards
from stride.runstore.outcome import PHASES, PREFIX, Header, Outcome, shares
from stride.trainer_callbacks.evaluate import Evaluate
from stride.trainer_callbacks.pulse import Pulse
from stride.trainer_callbacks.sink import NOTHING, Doing, Sink
from stride.trainer_callbacks.watch import AlertWatch
from stride.utils.resources import memory_limit, memory_used

ROWS = 200  # rows of a whole run when log_freq_epochs is left open
FIRST = 16  # iterations that the first of them may wait for, where a two hundredth of the run is longer

NEWEST = 1024  # rows in memory, of all worlds, whose rewards make the learnt return
LENGTH, LEARNT = "train/roll/ep_len/mean", "train/roll/learnt_return"

Row = dict[str, float]


class ExportMetrics(Callback):
    """Asks agent and collector for their numbers, which is the interval's one wait for the device."""

    def __init__(self, evaluate: Evaluate, sinks: Sequence[Sink], alerts: AlertWatch | None = None) -> None:
        self.evaluate = evaluate
        self.sinks = sinks
        self.alerts = alerts
        self.row: Row = {}  # of the iteration just done, {} where none was due
        self._pulse = Pulse(self._beat)
        self._calling = threading.RLock()  # sinks are called one at a time
        self._clock: dict[str, int] = {}  # of the last beat
        self._every = 0
        self._started_at = self._row_at = perf_counter()
        self._before: dict[str, float] = {"env_steps": 0, "iterations": 0}
        self._spent = dict.fromkeys(PHASES, 0.0)  # seconds of this process up to the row before
        self._past = dict(self._spent)  # of the processes that this one goes on from

    def begin(self, header: Header, config: Config) -> None:
        """Every sink gets the header of the run."""
        for sink in self.sinks:
            sink.begin(header, config)

    def on_train_start(self, trainer: L.Trainer, agent: Agent) -> None:  # type: ignore[override]
        self._started_at = self._row_at = perf_counter()
        self._before |= agent.progress
        self._spent = dict(self._past)
        self._agent = agent
        self._steps_per_row = agent.memory.num_envs * agent.shard.count
        self._elsewhere = agent.progress["env_steps"] - agent.memory.written * self._steps_per_row
        if any(type(sink).beat is not Sink.beat for sink in self.sinks):
            self._pulse.begin()

    def on_train_batch_end(self, trainer: L.Trainer, agent: Agent, *rest: object) -> None:  # type: ignore[override]
        self.row = {}
        if self.is_due(agent):
            agent.progress["exported"] = agent.progress["env_steps"]
            self.row = self._row(agent)
            self.emit(self.row)
        if self._pulse.failed:
            raise RuntimeError("a sink failed between two rows; its error is written above")

    def must_react(self, agent: Agent) -> bool:
        """Whether a row is due, or a sink has failed since the one before."""
        return self.is_due(agent) or self._pulse.failed

    def is_due(self, agent: Agent) -> bool:
        """By iterations alone, never by time: rows steer the stop on the training return."""
        if self.evaluate.evaluated(agent):
            return True
        if agent.config.log_freq_epochs:
            return agent.epoch_ended and agent.epoch % agent.config.log_freq_epochs == 0
        iterations = agent.progress["iterations"]
        self._every = self._every or row_every(agent.config.max_timesteps, agent.progress["env_steps"] / iterations)
        return iterations % self._every == 0 or iterations in early_rows(self._every)

    def _beat(self) -> None:
        """Report the clock, in the pulse's thread. Env steps move inside an iteration, row by row of the memory."""
        agent = self._agent
        with self._calling:
            clock = {name: agent.progress[name] for name in ("iterations", "updates")}
            clock["env_steps"] = self._elsewhere + agent.memory.written * self._steps_per_row
            playing = self.evaluate.doing()
            doing = playing if playing.words else self._learning(clock)
            is_test = playing.words.startswith("testing")
            test = 0.0 if is_test else self.evaluate.seconds_per_episode * agent.config.test_episodes
            clock["more_seconds"] = round(doing.seconds + test)
            self._clock = clock
            for sink in self.sinks:
                sink.beat(clock, doing.words)

    def _learning(self, clock: Mapping[str, int]) -> Doing:
        """The learning that is under way: of a rollout its passes, of a replay memory updates since the last beat."""
        agent = self._agent
        if passes := agent.passes:
            done, total, begun = passes
            seconds = (perf_counter() - begun) / done * (total - done) if done else 0.0
            return Doing(f"learning {done + 1} of {total} epochs", seconds)
        stands_still = clock["env_steps"] == self._clock.get("env_steps")
        if agent.memory.replayed and stands_still and clock["updates"] > self._clock["updates"]:
            return Doing(f"learning, update {clock['updates']:,}")
        return NOTHING

    def media(self, video: Path) -> None:
        """Every sink gets a video."""
        with self._calling:
            for sink in self.sinks:
                sink.media(video)

    def checkpoint(self, path: Path, facts: Mapping[str, object]) -> None:
        """Every sink gets a checkpoint."""
        with self._calling:
            for sink in self.sinks:
                sink.checkpoint(path, facts)

    def end(self, outcome: Outcome | None) -> None:
        """Every sink gets the outcome, None where an error ended the training."""
        self._pulse.end()
        for sink in self.sinks:
            sink.end(outcome)

    def finish(self, agent: Agent, tested: Mapping[str, float]) -> None:
        """The last row: what remains since the one before, with the test; a resumed run drops it again."""
        row = {"train/clock/env_steps": float(agent.progress["env_steps"])}
        if agent.progress["exported"] < agent.progress["env_steps"]:
            row = self._row(agent)
        elif tested:
            row |= self._phases(agent)
        if tested or len(row) > 1:
            self.emit(row | dict(tested))

    def seconds(self, agent: Agent) -> Row:
        """Seconds of the whole run up to now, by phase: the remainder is `other`. A checkpoint keeps it."""
        counted = {**agent.seconds, "other": perf_counter() - self._started_at - sum(agent.seconds.values())}
        return {phase: self._past[phase] + counted[phase] for phase in PHASES}

    def on_save_checkpoint(self, trainer: L.Trainer, agent: Agent, checkpoint: dict[str, Any]) -> None:  # type: ignore[override]
        checkpoint["seconds"] = self.seconds(agent)  # beside what must be the same in every run of a seed

    def on_load_checkpoint(self, trainer: L.Trainer, agent: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """A checkpoint of an older version has none."""
        saved = checkpoint.get("seconds", {})
        self._past |= {phase: float(saved[phase]) for phase in PHASES if phase in saved}

    def emit(self, row: Row) -> None:
        """Every sink gets a row, and its alerts; a name that metrics.yaml does not declare is an error."""
        for name in row:
            check_logged(name)
        with self._calling:
            self._pulse.postpone()
            for sink in self.sinks:
                sink.row(row)
            if self.alerts is None:
                return
            for event in self.alerts.add(row):
                for sink in self.sinks:
                    sink.alert(event)

    def _row(self, agent: Agent) -> Row:
        """Everything since the row before."""
        now, progress = perf_counter(), agent.progress
        steps = progress["env_steps"] - self._before["env_steps"]
        row = {
            "train/clock/env_steps": float(progress["env_steps"]),
            "train/clock/epoch": float(agent.epoch),
            "train/clock/iterations": float(progress["iterations"]),
            "train/clock/updates": float(progress["updates"]),
            "train/time/seconds": now - self._started_at,
            "train/time/env_steps_per_second": steps / max(now - self._row_at, 1e-9),
        }
        self._row_at = now
        self._before |= progress
        row |= self._phases(agent) | memory_shares(agent.device)
        row |= {f"train/roll/{name}": value for name, value in agent.collector.window.summary().items()}
        row |= learnt_return(agent, row)
        row |= {f"train/hyper/{name}": float(vars(agent.live)[name]) for name in ("policy_lr", *agent.config.driven())}
        return row | agent.metrics.flush()

    def _phases(self, agent: Agent) -> Row:
        """The fraction of each phase in the time since the row before; together 1."""
        now = self.seconds(agent)
        fractions = shares({phase: max(0.0, now[phase] - self._spent[phase]) for phase in PHASES})
        self._spent = now
        return {f"{PREFIX}{phase}": fraction for phase, fraction in fractions.items()}


def memory_shares(device: torch.device) -> Row:
    """The fraction of the memory that is in use: of the machine by this process, of its GPU by all."""
    row = {f"{PREFIX}memory": memory_used() / memory_limit()}
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        row[f"{PREFIX}gpu_memory"] = 1 - free / total
    return row


def learnt_return(agent: Agent, row: Row) -> Row:
    """The rewards of an episode as they are learnt from, where a wrapper may change them: {} elsewhere.

    The mean reward of the newest rows in memory, times the mean length of an episode: nothing is counted in a step.
    """
    if LENGTH not in row or not may_change_rewards(agent.config):
        return {}
    return {LEARNT: agent.memory.mean_reward(NEWEST) * row[LENGTH]}


def row_every(max_timesteps: int, steps_per_iteration: float) -> int:
    """Iterations between rows, such that a run has about ROWS of them."""
    return max(1, round(max_timesteps / steps_per_iteration / ROWS))


@cache
def early_rows(every: int) -> frozenset[int]:
    """Iterations before the first of `every` that make a row, too: its half, the half of that, .. down to FIRST."""
    return frozenset(every >> halvings for halvings in range(1, every.bit_length()) if every >> halvings >= FIRST)
