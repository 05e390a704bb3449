"""A hyperparameter search in progress: choose the next trial, train trials in a pool, collect their results.

Each step is one line of the journal, and the next step follows from the journal alone. So a search that was killed
between two steps continues as if it had not been.
"""

import math
import re
import signal
import statistics
import time
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from stride.config.search import CONFIRMED_TRIALS, Search, promoted, ranked
from stride.report.sweep_result import Finalist, SweepResult
from stride.runstore.history import STEPS
from stride.runstore.many.process_pool import Finished
from stride.runstore.many.ray_pool import Pool
from stride.runstore.many.search_journal import COMPLETE, FAILED, PRUNED, Journal, Trial
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir, runs_root
from stride.runstore.run_facts import FULL_TEST_EPISODES, PAUSED, mapping
from stride.runstore.run_files import exists
from stride.runstore.run_lock import LockLostError
from stride.runstore.seed_group import members
from stride.utils.interrupted import Noted
from stride.utils.resources import CORES_VARIABLE, cores
from stride.utils.typography import duration, score

LAST_LINE = re.compile(r"result=(\S+) .*\btest_episodes=(\d+) .*run=(.+)")  # what train.py --quiet prints at the end
SOLVED = "solved"
NOT_MEASURED = "was never measured (an evaluation counts only when all its episodes end)"
# exit codes of a run that was stopped and saved; the search continues it later
STOP_CODES = (128 + signal.SIGINT, 128 + signal.SIGTERM, LockLostError.exit_code)


def next_trial(search: Search, journal: Journal, started: Collection[tuple[int, int]]) -> Trial | None:
    """Return a trial to train to its bound that is not in `started` (trial, bound); None: wait for others, or the end.

    First come trials that a stopped search left unfinished; then the best that may go on, from the highest rung down;
    then new ones.
    """
    while True:
        trials = journal.trials
        for trial in trials:
            if trial.under_way and (trial.number, trial.bound) not in started:
                return trial
        for rung, next_rung in reversed([*pairwise(search.targets)]):
            scores = {trial.number: search.signed(trial.values[rung]) for trial in trials if rung in trial.values}
            unavailable = {trial.number for trial in trials if not trial.alive or trial.bound > rung}
            number = promoted(scores, unavailable, search.factor)
            if number is not None:
                journal.send(number, next_rung)
                break
        else:
            if len(trials) >= search.trials:
                return None
            journal.propose(search.targets[0])


class TrialRun(NamedTuple):
    """One training: the number of its trial, up to how many env steps it goes, and its seed."""

    trial: int
    bound: int
    seed: int


class TrialScore(NamedTuple):
    """The result of one training; `value` is the metric of the search."""

    run: str
    result: str
    value: float
    episodes: int
    """how many episodes of its test ended"""


class SearchRuns:
    """Trains the trials of a search. `commands` grow while a pool runs them: each result decides what follows."""

    def __init__(self, search: Search, journal: Journal, program: Sequence[str]) -> None:
        self.search, self.journal, self._program = search, journal, program
        self._commands: list[list[str]] = []
        self._trainings: list[TrialRun] = []  # in the order of the commands
        self._ended = 0  # number of commands that have ended
        self._scores: dict[int, dict[int, TrialScore]] = {}  # by trial and seed, until all of a trial's seeds have one
        self._start, self._steps = time.monotonic(), 0  # env steps trained since the start
        self._steps_left = self._expected() - self._spent()

    def run(self, pool: Pool, workers: int, noted: Noted) -> bool:
        """Train trials until the search ends; False if it was stopped before."""
        limit = max(2, workers)  # with a single command, a pool starts no nursery
        self._fill(limit)
        for finished in self._pooled(pool, self._commands, workers, noted):
            self._record_end(finished)
            if not noted.number:
                self._fill(limit)
        trials = self.journal.trials
        if noted.number or any(trial.under_way for trial in trials):
            return False
        for trial in trials:
            if trial.alive:
                self.journal.tell(trial.number, PRUNED)
        return True

    def best(self) -> list[Trial]:
        """Return the trials with the best final values, best first."""
        complete = {trial.number: trial for trial in self.journal.trials if trial.state == COMPLETE}
        ranking = ranked({number: self.search.signed(trial.last) for number, trial in complete.items()})
        return [complete[number] for number in ranking[:CONFIRMED_TRIALS]]

    def confirm(self, pool: Pool, workers: int, noted: Noted) -> SweepResult | None:
        """Train the best trials on fresh seeds, from the start, and return the ranking; None if that was stopped."""
        search, seeds = self.search, self._fresh_seeds()
        trainings = [(trial, seed) for trial in self.best() for seed in seeds]
        commands = [self._from_start(trial, seed) for trial, seed in trainings]
        scores = {}  # by trial and seed
        for finished in self._pooled(pool, commands, workers, noted):
            exit_code, line = exit_and_line(finished)
            if exit_code in STOP_CODES:
                return None
            trial, seed = trainings[finished.index]
            result = None if exit_code else read_score(line, search.metric)
            if result:
                scores[trial.number, seed] = result
            result_text = score(result.value) if result else line
            print(f"  confirming trial {trial.number}, seed {seed}: {result_text}", flush=True)
        finalists = []
        for trial in self.best():
            results = [scores[trial.number, seed] for seed in seeds if (trial.number, seed) in scores]
            solved = [result.episodes for result in results if result.result == SOLVED]
            finalists.append(
                Finalist(
                    trial.number,
                    tuple(search.words(trial.params)),
                    trial.last,
                    tuple(result.value for result in results),
                    len(solved),
                    min(solved, default=FULL_TEST_EPISODES),
                )
            )
        ranking = ranked({index: search.signed(finalist.mean) for index, finalist in enumerate(finalists)})
        states = [trial.state for trial in self.journal.trials]
        counts = {state.lower(): states.count(state) for state in (COMPLETE, PRUNED, FAILED)}
        full_steps = len(search.seeds) * search.trials * search.budget
        return SweepResult(self._spent(), full_steps, counts, seeds, tuple(finalists[index] for index in ranking))

    def _pooled(self, pool: Pool, commands: list[list[str]], workers: int, noted: Noted) -> Iterator[Finished]:
        cores_of_each = max(1, cores() // max(1, workers))
        return pool(commands, workers, {CORES_VARIABLE: str(cores_of_each)}, stop=lambda: noted.number)

    def _fill(self, limit: int) -> None:
        """Add commands until `limit` of them are running or waiting."""
        while len(self._commands) - self._ended < limit:
            started = {(training.trial, training.bound) for training in self._trainings}
            trial = next_trial(self.search, self.journal, started)
            if trial is None:
                return
            for seed in self.search.seeds:
                pause = ["--pause-at", str(trial.bound)] if trial.bound < self.search.budget else []
                self._trainings.append(TrialRun(trial.number, trial.bound, seed))
                self._commands.append([*self._from_start(trial, seed), *pause])

    def _from_start(self, trial: Trial, seed: int) -> list[str]:
        """Return the command that trains this trial's values with this seed."""
        overrides = [self.search.variant, *self.search.fixed, *self.search.words(trial.params)]
        return [*self._program, *overrides, "--seed", str(seed), "--group", self.search.group, "--quiet"]

    def _fresh_seeds(self) -> tuple[int, ...]:
        """Return the lowest seeds from 1 on that no trial uses."""
        used, count = self.search.seeds, self.search.confirm
        return tuple(seed for seed in range(1, len(used) + count + 1) if seed not in used)[:count]

    def _record_end(self, finished: Finished) -> None:
        """Record that a run paused, ended or failed; after the last seed of a trial, also that the trial reached its
        bound."""
        self._ended += 1
        training, (code, line) = self._trainings[finished.index], exit_and_line(finished)
        trial = self.journal.trials[training.trial]
        if code in STOP_CODES or not trial.alive:
            return
        result = None if code else read_score(line, self.search.metric)
        if result is None:
            self.journal.tell(trial.number, FAILED)
            self._print(trial, f"failed: {line if code else f'{self.search.metric} {NOT_MEASURED}'}")
            return
        scores = self._scores.setdefault(trial.number, {})
        scores[training.seed] = result
        if len(scores) < len(self.search.seeds):
            return
        del self._scores[trial.number]
        value = statistics.fmean(result.value for result in scores.values())
        is_over = all(result.result != PAUSED for result in scores.values())
        self._steps += (training.bound - max(trial.values, default=0)) * len(scores)
        self.journal.reached(trial.number, training.bound, value, [scores[seed].run for seed in self.search.seeds])
        if is_over:
            self.journal.tell(trial.number, COMPLETE, value)
        self._print(trial, f"{score(value)} {'at the end' if is_over else f'at {training.bound:,}'}")

    def _print(self, trial: Trial, message: str) -> None:
        elapsed = time.monotonic() - self._start
        seconds_left = elapsed * (self._steps_left - self._steps) / self._steps if self._steps else math.nan
        progress = f"{len(self.journal.trials)} of {self.search.trials} trials"
        overrides = " ".join(self.search.words(trial.params))
        print(f"  trial {trial.number}: {message}; {progress}, left {duration(seconds_left)}   {overrides}", flush=True)

    def _expected(self) -> float:
        """Return about how many env steps the complete search takes."""
        fraction, steps = 1.0, 0.0
        for start, bound in pairwise((0, *self.search.targets)):
            steps += fraction * (bound - start)
            fraction /= self.search.factor
        return steps * self.search.trials * len(self.search.seeds)

    def _spent(self) -> int:
        """Return the env steps of all trials so far, including failed ones."""
        fresh = self._fresh_seeds()
        return sum(steps_of(run, info) for run, info in members(self.search.group) if info.get("seed") not in fresh)


def exit_and_line(finished: Finished) -> tuple[int, str]:
    """Return a process's exit code, as a shell shows it, and the last line that it printed."""
    code = finished.returncode if finished.returncode >= 0 else 128 - finished.returncode
    lines = finished.output_tail.strip().splitlines()
    return code, lines[-1] if lines else f"ended with exit code {code} and no message"


def read_score(line: str, metric: str) -> TrialScore | None:
    """Return the result in a quiet run's last line and metrics.csv; None if the metric has no finite value there."""
    match = LAST_LINE.search(line)
    if match is None:
        return None
    run = RunDir(runs_root() / Path(match[3]).name)
    values = [row[metric] for row in read_csv(run.metrics_csv) if metric in row]
    return TrialScore(run.id, match[1], values[-1], int(match[2])) if values and math.isfinite(values[-1]) else None


def steps_of(run: RunDir, info: dict[str, Any]) -> int:
    """Return the env steps that a run took itself, without those before a fork."""
    rows = read_csv(run.metrics_csv) if exists(run.metrics_csv) else []
    steps_done = int(max((row.get(STEPS, 0.0) for row in rows), default=0))
    return steps_done - int(mapping(info.get("parent")).get("env_steps", 0))
