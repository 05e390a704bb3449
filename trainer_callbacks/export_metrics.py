"""The callback that makes the rows of metrics and gives them to every sink (console, metrics.csv, trackers, ...).

Only this module calls sinks. A row is a dict {"train/clock/env_steps": 5000.0, "train/roll/ep_rew/mean": 21.3, ...}.
"""

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

ROWS_OF_RUN = 200  # rows of a whole run if log_freq_epochs is null
EARLIEST_ROW = 16  # iteration from which on a long run may make its first row, see early_rows

NEWEST_ROWS = 1024  # newest rows of the agent's memory (each one step of all environments) that give the learnt return
LENGTH, LEARNT = "train/roll/ep_len/mean", "train/roll/learnt_return"

Row = dict[str, float]


class ExportMetrics(Callback):
    """Makes a row when one is due. Only then the numbers of agent and collector are read, which waits for the GPU."""

    def __init__(self, evaluate: Evaluate, sinks: Sequence[Sink], alerts: AlertWatch | None = None) -> None:
        self.evaluate = evaluate
        self.sinks = sinks
        self.alerts = alerts
        self.row: Row = {}  # row of the iteration just done, {} if none was due
        self._pulse = Pulse(self._report_clock)
        self._sink_lock = threading.RLock()  # so that two threads never call sinks at once
        self._clock: dict[str, int] = {}  # clock of the last beat
        self._every = 0  # iterations between two rows; 0 until it is first needed
        self._started_at = self._row_at = perf_counter()
        self._before: dict[str, float] = {"env_steps": 0, "iterations": 0}
        self._row_seconds = dict.fromkeys(PHASES, 0.0)  # by phase, seconds of the whole run up to the row before
        self._past_seconds = dict(self._row_seconds)  # by phase, seconds of the processes that trained the run before

    def begin(self, header: Header, config: Config) -> None:
        """Give every sink the header of the run."""
        for sink in self.sinks:
            sink.begin(header, config)

    def on_train_start(self, trainer: L.Trainer, agent: Agent) -> None:  # type: ignore[override]
        self._started_at = self._row_at = perf_counter()
        self._before |= agent.progress
        self._row_seconds = dict(self._past_seconds)
        self._agent = agent
        self._steps_per_row = agent.memory.num_envs * agent.shard.count
        # env steps that are not in this memory: with it, the rows written since give the present clock
        self._steps_elsewhere = agent.progress["env_steps"] - agent.memory.written * self._steps_per_row
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
        """Return whether a row is due, or a sink failed in the pulse's thread."""
        return self.is_due(agent) or self._pulse.failed

    def is_due(self, agent: Agent) -> bool:
        """Return whether a row is due. It depends on iterations and never on time: rows decide when a run stops."""
        if self.evaluate.evaluated(agent):
            return True
        if agent.config.log_freq_epochs:
            return agent.epoch_ended and agent.epoch % agent.config.log_freq_epochs == 0
        iterations = agent.progress["iterations"]
        self._every = self._every or row_every(agent.config.max_timesteps, agent.progress["env_steps"] / iterations)
        return iterations % self._every == 0 or iterations in early_rows(self._every)

    def _report_clock(self) -> None:
        """Give the present clock to every sink; runs in the pulse's thread.

        `agent.progress` changes only after an iteration, so env steps are counted by the rows written to the memory.
        """
        agent = self._agent
        with self._sink_lock:
            clock = {name: agent.progress[name] for name in ("iterations", "updates")}
            clock["env_steps"] = self._steps_elsewhere + agent.memory.written * self._steps_per_row
            evaluating = self.evaluate.doing()
            doing = evaluating if evaluating.words else self._learning(clock)
            is_test = evaluating.words.startswith("testing")
            test = 0.0 if is_test else self.evaluate.seconds_per_episode * agent.config.test_episodes
            clock["more_seconds"] = round(doing.seconds + test)
            self._clock = clock
            for sink in self.sinks:
                sink.beat(clock, doing.words)

    def _learning(self, clock: Mapping[str, int]) -> Doing:
        """Describe the learning under way: the epochs over a rollout, or the number of updates with a replay memory."""
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
        """Give every sink the path of a video that was just written."""
        with self._sink_lock:
            for sink in self.sinks:
                sink.media(video)

    def checkpoint(self, path: Path, facts: Mapping[str, object]) -> None:
        """Give every sink the path and the sidecar's facts of a checkpoint that was just saved."""
        with self._sink_lock:
            for sink in self.sinks:
                sink.checkpoint(path, facts)

    def end(self, outcome: Outcome | None) -> None:
        """Give every sink the outcome, None if an error ended the training."""
        self._pulse.end()
        for sink in self.sinks:
            sink.end(outcome)

    def finish(self, agent: Agent, tested: Mapping[str, float]) -> None:
        """Emit the last row: metrics since the row before, and those of the test. A resumed run deletes it again."""
        row = {"train/clock/env_steps": float(agent.progress["env_steps"])}
        if agent.progress["exported"] < agent.progress["env_steps"]:
            row = self._row(agent)
        elif tested:
            row |= self._phases(agent)
        if tested or len(row) > 1:
            self.emit(row | dict(tested))

    def seconds(self, agent: Agent) -> Row:
        """Return the seconds of the whole run up to now by phase, also before a resume; the remainder is `other`."""
        counted = {**agent.seconds, "other": perf_counter() - self._started_at - sum(agent.seconds.values())}
        return {phase: self._past_seconds[phase] + counted[phase] for phase in PHASES}

    def on_save_checkpoint(self, trainer: L.Trainer, agent: Agent, checkpoint: dict[str, Any]) -> None:  # type: ignore[override]
        checkpoint["seconds"] = self.seconds(agent)  # not in state_dict, which must be equal in all runs of a seed

    def on_load_checkpoint(self, trainer: L.Trainer, agent: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Read the seconds by phase; a checkpoint of an older version has none."""
        saved = checkpoint.get("seconds", {})
        self._past_seconds |= {phase: float(saved[phase]) for phase in PHASES if phase in saved}

    def emit(self, row: Row) -> None:
        """Give every sink a row and the alerts that it causes; a name not declared in metrics.yaml is an error."""
        for name in row:
            check_logged(name)
        with self._sink_lock:
            self._pulse.postpone()
            for sink in self.sinks:
                sink.row(row)
            if self.alerts is None:
                return
            for event in self.alerts.add(row):
                for sink in self.sinks:
                    sink.alert(event)

    def _row(self, agent: Agent) -> Row:
        """Make a row of everything since the row before."""
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
        """Return the fraction of time that each phase took since the row before; they add up to 1."""
        now = self.seconds(agent)
        fractions = shares({phase: max(0.0, now[phase] - self._row_seconds[phase]) for phase in PHASES})
        self._row_seconds = now
        return {f"{PREFIX}{phase}": fraction for phase, fraction in fractions.items()}


def memory_shares(device: torch.device) -> Row:
    """Return the fraction of memory in use: of the machine by this process, of the GPU by all processes."""
    row = {f"{PREFIX}memory": memory_used() / memory_limit()}
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        row[f"{PREFIX}gpu_memory"] = 1 - free / total
    return row


def learnt_return(agent: Agent, row: Row) -> Row:
    """Return the return of an episode in the rewards that the agent gets, {} if no wrapper may change rewards.

    It is estimated: mean reward of the newest rows in memory times mean episode length. So steps need not count it.
    """
    if LENGTH not in row or not may_change_rewards(agent.config):
        return {}
    return {LEARNT: agent.memory.mean_reward(NEWEST_ROWS) * row[LENGTH]}


def row_every(max_timesteps: int, steps_per_iteration: float) -> int:
    """Return the iterations between rows, so that a run has about ROWS_OF_RUN of them."""
    return max(1, round(max_timesteps / steps_per_iteration / ROWS_OF_RUN))


@cache
def early_rows(every: int) -> frozenset[int]:
    """Return the iterations of additional rows before the first regular one: every / 2, every / 4, ... down to 16.

    Example: for every=100 they are 50 and 25.
    """
    return frozenset(
        every >> halvings for halvings in range(1, every.bit_length()) if every >> halvings >= EARLIEST_ROW
    )
