"""A search under way: the commands of its trials in a pool, what each comes to, a line for each, the time left."""

import math
import re
import signal
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from stride.commands.sweep_choice import Choice
from stride.config.search import BEST, Search
from stride.config.search_rules import ranked
from stride.report.sweep_result import Finalist, SweepResult
from stride.runstore.history import STEPS
from stride.runstore.many.process_pool import Finished
from stride.runstore.many.ray_pool import Pool
from stride.runstore.many.search_journal import COMPLETE, FAILED, PRUNED, Journal, Trial
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir, runs_root
from stride.runstore.run_facts import ENOUGH, PAUSED, mapping
from stride.runstore.run_files import exists
from stride.runstore.run_lock import LockLostError
from stride.runstore.seed_group import members
from stride.utils.cores import SHARE, cores
from stride.utils.interrupted import Noted
from stride.utils.typography import duration, score

SAID = re.compile(r"result=(\S+) .*\btest_episodes=(\d+) .*run=(.+)")  # in a quiet run's last line
SOLVED = "solved"
PARTS = " (an evaluation counts where every episode of it ended)"
STOPPED = (128 + signal.SIGINT, 128 + signal.SIGTERM, LockLostError.exit_code)  # and saved: it goes on another time


class Flight(NamedTuple):
    """A command: which trial it takes to how many env steps, with which seed."""

    trial: int
    bound: int
    seed: int


class Landed(NamedTuple):
    """What came of one."""

    run: str
    result: str
    value: float
    episodes: int
    """of its test that ended"""


class Sweep:
    """`commands` grow while a pool runs them, as each end decides what follows."""

    def __init__(self, search: Search, journal: Journal, program: Sequence[str]) -> None:
        self.search, self.journal, self._program = search, journal, program
        self._choice = Choice(search, journal)
        self._commands: list[list[str]] = []
        self._flights: list[Flight] = []  # in the order of the commands
        self._aloft: set[int] = set()  # places of those that have not landed
        self._landed: dict[int, dict[int, Landed]] = {}  # by trial and seed, until all seeds of the trial have
        self._began, self._steps = time.monotonic(), 0  # env steps since
        self._left = self._expected() - self._spent()

    def run(self, pool: Pool, workers: int, noted: Noted) -> bool:
        """Whether the search came to its end."""
        room = max(2, workers)  # of one command alone a pool makes no nursery
        self._fill(room)
        for done in pool(self._commands, workers, shared(workers), stop=lambda: noted.number):
            self._land(done)
            if not noted.number:
                self._fill(room)
        trials = self.journal.trials
        if noted.number or any(each.under_way for each in trials):
            return False
        for each in trials:
            if each.alive:
                self.journal.tell(each.number, PRUNED)
        return True

    def best(self) -> list[Trial]:
        """Those with the best values at the end."""
        ends = {each.number: each for each in self.journal.trials if each.state == COMPLETE}
        order = ranked({number: self.search.signed(each.last) for number, each in ends.items()})
        return [ends[number] for number in order[:BEST]]

    def confirm(self, pool: Pool, workers: int, noted: Noted) -> SweepResult | None:
        """The best trained on fresh seeds, from the start; None where that was stopped."""
        best, seeds = self.best(), self._fresh_seeds()
        commands = [self._from_start(trial, seed) for trial in best for seed in seeds]
        landed: dict[tuple[int, int], Landed] = {}
        for done in pool(commands, workers, shared(workers), stop=lambda: noted.number):
            code, line = said(done)
            trial, seed = best[done.index // len(seeds)], seeds[done.index % len(seeds)]
            if code in STOPPED:
                return None
            if found := None if code else read_landed(line, self.search.metric):
                landed[trial.number, seed] = found
            told = score(found.value) if found else line
            print(f"  confirming trial {trial.number}, seed {seed}: {told}", flush=True)
        finalists = []
        for trial in best:
            mine = [landed[trial.number, seed] for seed in seeds if (trial.number, seed) in landed]
            words, solved = tuple(self.search.words(trial.params)), [m.episodes for m in mine if m.result == SOLVED]
            values = tuple(each.value for each in mine)
            finalists.append(
                Finalist(trial.number, words, trial.last, values, len(solved), min(solved, default=ENOUGH))
            )
        order = ranked({place: self.search.signed(each.mean) for place, each in enumerate(finalists)})
        states = [each.state for each in self.journal.trials]
        counts = {state.lower(): states.count(state) for state in (COMPLETE, PRUNED, FAILED)}
        full = len(self.search.seeds) * self.search.trials * self.search.budget
        return SweepResult(self._spent(), full, counts, seeds, tuple(finalists[place] for place in order))

    def _fill(self, room: int) -> None:
        while len(self._aloft) < room and (trial := self._choice.next({flight[:2] for flight in self._flights})):
            for seed in self.search.seeds:
                self._aloft.add(len(self._commands))
                self._flights.append(Flight(trial.number, trial.bound, seed))
                self._commands.append(self._command(trial, seed))

    def _command(self, trial: Trial, seed: int) -> list[str]:
        pause = ["--pause-at", str(trial.bound)] if trial.bound < self.search.budget else []
        return [*self._from_start(trial, seed), *pause]

    def _from_start(self, trial: Trial, seed: int) -> list[str]:
        """What trains with its values from the start to the end."""
        words = [self.search.variant, *self.search.fixed, *self.search.words(trial.params)]
        return [*self._program, *words, "--seed", str(seed), "--group", self.search.group, "--quiet"]

    def _fresh_seeds(self) -> tuple[int, ...]:
        """The first from 1 on that no trial has."""
        used, confirm = self.search.seeds, self.search.confirm
        return tuple([seed for seed in range(1, len(used) + confirm + 1) if seed not in used])[:confirm]

    def _land(self, done: Finished) -> None:
        """A run paused, ended or failed; once all seeds of its trial have, the trial is where it was sent."""
        self._aloft.remove(done.index)
        flight, (code, line) = self._flights[done.index], said(done)
        trial, seeds = self.journal.trials[flight.trial], self.search.seeds
        if code in STOPPED or not trial.alive:
            return
        landed = None if code else read_landed(line, self.search.metric)
        if landed is None:
            self.journal.tell(trial.number, FAILED)
            self._say(trial, f"failed: {line}" if code else f"failed: {self.search.metric} was never measured{PARTS}")
            return
        mine = self._landed.setdefault(trial.number, {})
        mine[flight.seed] = landed
        if len(mine) < len(seeds):
            return
        del self._landed[trial.number]
        value, over = (
            statistics.fmean(each.value for each in mine.values()),
            PAUSED not in {m.result for m in mine.values()},
        )
        self._steps += (flight.bound - max(trial.values, default=0)) * len(seeds)
        self.journal.reached(trial.number, flight.bound, value, [mine[seed].run for seed in seeds])
        if over:
            self.journal.tell(trial.number, COMPLETE, value)
        self._say(trial, f"{score(value)} {'at the end' if over else f'at {flight.bound:,}'}")

    def _say(self, trial: Trial, what: str) -> None:
        elapsed, asked = time.monotonic() - self._began, len(self.journal.trials)
        left = elapsed * (self._left - self._steps) / self._steps if self._steps else math.nan
        known = f"{asked} of {self.search.trials} trials"
        words = " ".join(self.search.words(trial.params))
        print(f"  trial {trial.number}: {what}; {known}, left {duration(left)}   {words}", flush=True)

    def _expected(self) -> float:
        """Env steps that the whole search takes, about."""
        share, steps = 1.0, 0.0
        for below, bound in pairwise((0, *self.search.targets)):
            steps += share * (bound - below)
            share /= self.search.factor
        return steps * self.search.trials * len(self.search.seeds)

    def _spent(self) -> int:
        """Env steps of all trials so far, of those that failed, too."""
        fresh = self._fresh_seeds()
        return sum(steps_of(run, facts) for run, facts in members(self.search.group) if facts.get("seed") not in fresh)


def shared(workers: int) -> dict[str, str]:
    return {SHARE: str(max(1, cores() // max(1, workers)))}


def said(done: Finished) -> tuple[int, str]:
    """The exit code as a shell has it, and the last line."""
    code = done.returncode if done.returncode >= 0 else 128 - done.returncode
    return code, (done.output_tail.strip().splitlines() or [f"ended with code {code} and no word"])[-1]


def read_landed(line: str, metric: str) -> Landed | None:
    """What a quiet run's last line and its metrics.csv tell; None where the metric has no number there."""
    told = SAID.search(line)
    if told is None:
        return None
    run = RunDir(runs_root() / Path(told[3]).name)
    values = [row[metric] for row in read_csv(run.metrics_csv) if metric in row]
    return Landed(run.id, told[1], values[-1], int(told[2])) if values and math.isfinite(values[-1]) else None


def steps_of(run: RunDir, facts: dict[str, Any]) -> int:
    """Env steps that a run has taken itself."""
    rows = read_csv(run.metrics_csv) if exists(run.metrics_csv) else []
    done = int(max((row.get(STEPS, 0.0) for row in rows), default=0))
    return done - int(mapping(facts.get("parent")).get("env_steps", 0))
