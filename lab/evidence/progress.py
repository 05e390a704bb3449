"""What the trainings of an evidence call are doing at the moment, in one line now and then."""

import time
from collections.abc import Sequence
from typing import NamedTuple

from stride.config.schema import Config
from stride.runstore.history import STEPS
from stride.runstore.metrics_csv import read_csv
from stride.runstore.run_dir import RunDir, list_runs
from stride.utils.typography import duration

EVERY = 30.0  # seconds between lines


class Job(NamedTuple):
    """One seed of one variant that is to be trained."""

    variant: str
    seed: int
    config: Config


class Progress:
    """Reads how far the run folders of a group are; writes nothing but lines."""

    def __init__(self, jobs: Sequence[Job], group: str) -> None:
        self.jobs, self.group = jobs, group
        self.began = self.told = time.monotonic()
        self.ended: set[int] = set()
        self._runs: dict[int, RunDir] = {}

    def tell(self) -> None:
        """A line, unless the last one is fresh."""
        if time.monotonic() - self.told >= EVERY:
            self.told = time.monotonic()
            print(self.line(), flush=True)

    def line(self) -> str:
        """`2:30  3 of 10 seeds done; CartPole-v1:ppo seed 4 at 35 %; about 5:00 left`"""
        shares = {index: share for index in range(len(self.jobs)) if (share := self.share(index)) is not None}
        running = [f"{self.jobs[i].variant} seed {self.jobs[i].seed} at {share:.0%}" for i, share in shares.items()]
        parts = [f"{len(self.ended)} of {len(self.jobs)} seeds done", *running, f"{self.left(shares)} left at most"]
        return f"  {duration(time.monotonic() - self.began)}  " + "; ".join(parts)

    def left(self, shares: dict[int, float]) -> str:
        """Time left at the present speed in steps of the budgets; runs that solve their task early shorten it."""
        budgets = [job.config.max_timesteps for job in self.jobs]
        done = sum(budget * (1.0 if i in self.ended else shares.get(i, 0.0)) for i, budget in enumerate(budgets))
        rate = done / max(time.monotonic() - self.began, 1e-9)
        return duration((sum(budgets) - done) / rate if rate > 0 else float("nan"))

    def share(self, index: int) -> float | None:
        """The part of its budget a running job has spent; None before its run folder is there and after its end."""
        if index in self.ended:
            return None
        if index not in self._runs:
            self._look()
        if index not in self._runs or not self._runs[index].metrics_csv.is_file():
            return None
        steps = [row[STEPS] for row in read_csv(self._runs[index].metrics_csv) if STEPS in row]
        return (steps[-1] if steps else 0.0) / self.jobs[index].config.max_timesteps

    def _look(self) -> None:
        """Which runs of the group have begun."""
        places = {(job.config.env_id, job.config.variant, job.seed): index for index, job in enumerate(self.jobs)}
        for run in list_runs():
            facts = run.facts() if run.config_json.is_file() else {}
            if facts.get("group") == self.group:
                self._runs[places[facts["env_id"], facts["variant"], facts["seed"]]] = run
