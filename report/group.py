"""Read a group of seeds from its files: how each seed ended or how far it is, and the statistics of all.

The console, report.md and the comparison of groups use it. It only reads. A seed that never ran, failed or is damaged
appears as such and does not affect the others.
"""

import math
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from stride.runstore.history import STEPS, TRAIN, VAL
from stride.runstore.metrics_table import points, read_csv
from stride.runstore.run_dir import RunDir, runs_root
from stride.runstore.run_facts import checked, episodes_of, few, finite, mapping, verdict, verdict_words, whole
from stride.runstore.run_fate import silent_end
from stride.runstore.run_files import exists, read_json
from stride.runstore.run_state import LIVE, state_of
from stride.runstore.seed_group import Standing, find_group, folder_of, read_plan, run_of, standings
from stride.utils.curve import Band, Point
from stride.utils.places import spelled
from stride.utils.statistics import FEWEST, interval, iqm, mean_and_deviation
from stride.utils.typography import mean_text
from stride.utils.user_error import UserError, one_line

GRID_POINTS = 120  # numbers of env steps at which the curves of a group are compared
UNFINISHED = ("failed", "stopped", "paused", "running", "died", "not begun", "deleted")

Facts = Mapping[str, Any]  # of config.json
Curve = Sequence[Point]


@dataclass(frozen=True)
class Seed:
    """One seed of a group, as it ended or as it is now."""

    seed: int
    run: RunDir | None
    facts: Facts
    verdict: str
    """solved, not solved, not tested, trained (there was no goal); or one of UNFINISHED"""
    why: str = ""
    """why the seed did not finish; "" if it did"""
    mean: float | None = None
    """mean return of the closing test, or of episodes played later"""
    deviation: float | None = None
    """standard deviation of these returns"""
    episodes: int = 0
    """how many these are"""
    best: float | None = None
    """highest mean of an evaluation"""
    env_steps: int | None = None
    seconds: float | None = None
    label: str = ""
    """in a group whose runs differ in more than the seed, what is special here: policy_lr=0.001"""
    words: tuple[str, ...] = ()
    """the arguments of train.py, without --seed"""

    @property
    def name(self) -> str:
        """`3`, or `policy_lr=0.001, seed 3`"""
        return f"{self.label}, seed {self.seed}" if self.label else str(self.seed)

    @property
    def verdict_words(self) -> str:
        """The verdict as it is shown: `solved (5 episodes)` if its test had fewer than 100 episodes."""
        return verdict_words(self.verdict, self.episodes)

    @property
    def finished(self) -> bool:
        return self.verdict not in UNFINISHED

    def played(self, mean: float, deviation: float, episodes: int, goal: float | None) -> "Seed":
        """Return a copy that is judged by these episodes in place of those of its closing test."""
        new_verdict = self.verdict
        if self.finished:
            new_verdict = "trained" if goal is None else "solved" if mean >= goal else "not solved"
        return replace(self, verdict=new_verdict, mean=mean, deviation=deviation, episodes=episodes)


@dataclass(frozen=True)
class Group:
    """A group and its seeds, in the order in which the person listed them."""

    name: str
    words: tuple[str, ...]
    """the arguments of train.py that all runs share"""
    seeds: tuple[Seed, ...]
    label: str = ""
    """for a part of a group: what distinguishes it from the other parts"""

    @property
    def parts(self) -> "list[Group]":
        """The group split into groups whose runs differ in their seed only."""
        by_label: dict[str, list[Seed]] = {}
        for seed_result in self.seeds:
            by_label.setdefault(seed_result.label, []).append(seed_result)
        if len(by_label) < 2:
            return [self]
        return [
            Group(self.name, seeds[0].words or self.words, tuple(seeds), label or "the others")
            for label, seeds in by_label.items()
        ]

    @property
    def folder(self) -> Path:
        return folder_of(self.name)

    @property
    def facts(self) -> Facts:
        """The config.json of the first seed that has one."""
        return next((seed_result.facts for seed_result in self.seeds if seed_result.facts), {})

    @property
    def title(self) -> str:
        """What was trained: `CartPole-v1:ppo`, or `3 variants`."""
        if len(self.parts) > 1:
            return f"{len(self.parts)} variants"
        if "env_id" in self.facts:
            title = f"{self.facts['env_id']}:{self.facts.get('variant', '?')}"
            return " ".join([title, *(argument for argument in self.label.split() if argument != title)])
        return next((argument for argument in self.words if ":" in argument and "=" not in argument), self.name)

    @property
    def goal(self) -> float | None:
        return finite(self.facts.get("goal"))

    @property
    def command(self) -> str:
        """The shell command that trains the group again."""
        seeds = list(dict.fromkeys(seed_result.seed for seed_result in self.seeds))
        return shlex.join([*spelled("train"), *self.words, "--seed", seed_text(seeds)])

    @property
    def tested(self) -> list[float]:
        """The mean returns of the seeds that finished, in order."""
        return [seed_result.mean for seed_result in self.seeds if seed_result.finished and seed_result.mean is not None]

    @property
    def solved(self) -> int:
        return sum(seed_result.verdict == "solved" for seed_result in self.seeds)

    @property
    def few(self) -> str:
        """What follows the number of solved seeds: ` (5 episodes)` if tests had fewer than 100 episodes, else ""."""
        return few([seed_result.episodes for seed_result in self.seeds if seed_result.verdict == "solved"])

    @property
    def unfinished(self) -> list[Seed]:
        return [seed_result for seed_result in self.seeds if not seed_result.finished]


def read_group(selector: str) -> Group:
    """Read the group named `group:NAME`, `group:@last`, `@last-group` or just NAME; UserError if it does not exist."""
    name = find_group(selector)
    plan = read_plan(name)
    words = plan.parts[0].words if len(plan.parts) == 1 else plan.asked
    return Group(name, words, tuple(seed_of(standing, name) for standing in standings(name)))


def seed_of(standing: Standing, group: str = "") -> Seed:
    """Read a seed from the config.json of its run, or from the record that `runs cleanup` kept of a deleted run."""
    run = standing.run
    if run:
        result, reason = _verdict(run, standing)
    else:
        deleted_id = run_of(group, standing.key) if group and standing.key else ""
        result, reason = "not begun", "the group was stopped before its turn"
        if deleted_id:
            result, reason = "deleted", f"{deleted_id} was deleted"
            standing = standing._replace(facts=removed_facts(deleted_id))
        if standing.facts.get("status") == "finished":
            result, reason = verdict(standing.outcome), ""
    outcome = standing.outcome
    env_steps = outcome.get("env_steps")
    if not whole(env_steps):
        csv_rows = _rows(run) if run else []
        env_steps = int(max(csv_row.get(STEPS, 0.0) for csv_row in csv_rows)) if csv_rows else None
    return Seed(
        standing.seed,
        run,
        standing.facts,
        result,
        reason,
        mean=finite(outcome.get("test_mean")),
        deviation=finite(outcome.get("test_std")),
        episodes=episodes_of(outcome),
        best=finite(outcome.get("val_best")),
        env_steps=env_steps,
        seconds=finite(outcome.get("seconds")),
        label=standing.label,
        words=standing.words,
    )


def removed_facts(run_id: str) -> dict[str, Any]:
    """Return the config.json that a deleted run had; {} if no record was kept."""
    path = runs_root() / "removed" / f"{run_id}.json"
    try:
        return checked(mapping(read_json(path)).get("facts"), path)
    except UserError:
        return {}


def _verdict(run: RunDir, standing: Standing) -> tuple[str, str]:
    """Return (verdict, why) of a seed from its run."""
    if standing.status == "failed":
        return "failed", one_line(str(standing.facts.get("failure", ""))) or "no message"
    if standing.status == "interrupted":
        return "stopped", "stopped by a signal; --resume continues there"
    if standing.status == "paused":
        return "paused", "paused by --pause-at; --resume continues there"
    if standing.status == "finished":
        return verdict(standing.outcome), ""
    reason = silent_end(run, standing.facts)
    if reason:
        return "died", reason
    state = state_of(run.path, standing.facts)
    return "running", "it is still in training" + ("" if state == LIVE else f", {state}")


def _rows(run: RunDir) -> list[dict[str, float]]:
    try:
        return read_csv(run.metrics_csv) if exists(run.metrics_csv) else []
    except UserError:  # a damaged file: pages of the run itself report it, the group goes on without its rows
        return []


def curve_of(seed_result: Seed) -> list[Point]:
    """Return the curve of evaluations over env steps; of training returns if there were no evaluations."""
    rows = [row for row in _rows(seed_result.run) if STEPS in row] if seed_result.run else []
    for metric_name in (VAL, TRAIN):
        curve = [point for point in points(rows, metric_name) if math.isfinite(point.y)]
        if curve:
            return curve
    return []


def band_of(curves: Sequence[Curve]) -> Band:
    """Return the median and the quartiles of the curves; a curve that ended keeps its last value."""
    curves = [curve for curve in curves if curve]
    if not curves:
        return Band([], [], [])
    steps = np.linspace(max(curve[0].x for curve in curves), max(curve[-1].x for curve in curves), GRID_POINTS)
    values = [np.interp(steps, [point.x for point in curve], [point.y for point in curve]) for curve in curves]
    quartiles = np.quantile(np.stack(values), (0.25, 0.5, 0.75), 0).tolist()
    low, median, high = (list(map(Point, steps.tolist(), quartile)) for quartile in quartiles)
    return Band(median, low, high)


def seed_text(seeds: Sequence[int]) -> str:
    """Format seeds as a person would type them: 1-5, or 3,1,2."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]}-{seeds[-1]}"
    return ",".join(map(str, seeds))


def together(group: Group) -> str:
    """Return the result of all seeds in a line: `3 runs: mean 480.1 ± 12.0, IQM 481.00, 2 solved, 1 not solved`."""
    tested = group.tested
    finished = [seed_result for seed_result in group.seeds if seed_result.finished]
    if not tested:
        return f"{len(finished)} run{'s' if len(finished) != 1 else ''} finished, none was tested"
    verdicts = Counter(seed_result.verdict_words for seed_result in finished).most_common()
    counts = ", ".join(f"{count} {argument}" for argument, count in verdicts)
    return f"{len(tested)} run{'s' if len(tested) > 1 else ''}: {middle(tested)}, {counts}"


def middle(means: Sequence[float]) -> str:
    """Format mean, deviation and interquartile mean (IQM), and the IQM's 95 % interval if there are enough values."""
    mean, deviation = mean_and_deviation(means)
    text = f"mean {mean_text(mean, deviation, len(means))}, IQM {iqm(means):.2f}"
    if len(means) < FEWEST:
        return text
    low, high = interval(means)
    return f"{text} [95 % {low:.2f} .. {high:.2f}]"


def caution(count: int) -> str:
    """Return why there is no interval; "" if there is one, or if there are no values."""
    if count >= FEWEST or not count:
        return ""
    return f"no interval: {count} seed{'s are' if count > 1 else ' is'} too few, at least {FEWEST} are needed"
