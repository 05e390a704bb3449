"""A group of seeds as it lies on the disk, for whoever shows it: who stands where, what the seeds come to together.

Read only. A seed that never ran, failed or is damaged is in it as such, and harms no other.
"""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from stride.runstore.history import STEPS, TRAIN, VAL
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir, runs_root
from stride.runstore.run_facts import checked, few, finite, mapping, verdict, verdict_words, whole
from stride.runstore.run_fate import died
from stride.runstore.run_files import exists, read_json
from stride.runstore.run_state import LIVE, state_of
from stride.runstore.seed_group import Standing, find_group, folder_of, read_plan, run_of, standings
from stride.utils.curve import Band, Point
from stride.utils.one_line import one_line
from stride.utils.places import spelled
from stride.utils.statistics import FEWEST, interval, iqm, mean_and_deviation
from stride.utils.user_error import UserError

GRID = 120  # places at which the curves of a group are compared
UNFINISHED = ("failed", "stopped", "paused", "running", "died", "not begun", "deleted")


@dataclass(frozen=True)
class Seed:
    """One seed of a group, as it ended or as it stands."""

    seed: int
    run: RunDir | None
    facts: Mapping[str, Any]
    verdict: str
    """solved, not solved, not tested, trained (there was no goal); or one of UNFINISHED"""
    why: str = ""
    """what a person should know of one that did not finish"""
    mean: float | None = None
    """of the closing test, or of episodes that were played since"""
    deviation: float | None = None
    episodes: int = 0
    best: float | None = None
    """of the evaluations"""
    env_steps: int | None = None
    seconds: float | None = None
    label: str = ""
    """what tells it from runs of its group that differ in more than their seed"""
    words: tuple[str, ...] = ()
    """what train.py was told of it and of those that differ in their seed alone"""

    @property
    def name(self) -> str:
        """`3`, or `policy_lr=0.001, seed 3`"""
        return f"{self.label}, seed {self.seed}" if self.label else str(self.seed)

    @property
    def verdict_words(self) -> str:
        """The verdict as people see it: `solved (5 episodes)` where its test had fewer than 100."""
        return verdict_words(self.verdict, self.episodes)

    @property
    def finished(self) -> bool:
        return self.verdict not in UNFINISHED

    def played(self, mean: float, deviation: float, episodes: int, goal: float | None) -> "Seed":
        """The same judged by other episodes than those of its closing test."""
        word = self.verdict
        if self.finished:
            word = "trained" if goal is None else "solved" if mean >= goal else "not solved"
        return replace(self, verdict=word, mean=mean, deviation=deviation, episodes=episodes)


@dataclass(frozen=True)
class Group:
    """A group and its seeds, in the order in which they were asked for."""

    name: str
    words: tuple[str, ...]
    """what train.py was told of them all"""
    seeds: tuple[Seed, ...]
    label: str = ""
    """of a part of a group, what it has apart from the others"""

    @property
    def parts(self) -> "list[Group]":
        """Runs that differ in their seed alone, each such set as a group of its own."""
        found: dict[str, list[Seed]] = {}
        for each in self.seeds:
            found.setdefault(each.label, []).append(each)
        if len(found) < 2:
            return [self]
        return [
            Group(self.name, seeds[0].words or self.words, tuple(seeds), label or "the others")
            for label, seeds in found.items()
        ]

    @property
    def folder(self) -> Path:
        return folder_of(self.name)

    @property
    def facts(self) -> Mapping[str, Any]:
        """config.json of the first that has one: all but the seed holds for each."""
        return next((each.facts for each in self.seeds if each.facts), {})

    @property
    def title(self) -> str:
        """`CartPole-v1:ppo`"""
        if len(self.parts) > 1:
            return f"{len(self.parts)} variants"
        if "env_id" in self.facts:
            title = f"{self.facts['env_id']}:{self.facts.get('variant', '?')}"
            return " ".join([title, *(word for word in self.label.split() if word != title)])
        return next((word for word in self.words if ":" in word and "=" not in word), self.name)

    @property
    def goal(self) -> float | None:
        return finite(self.facts.get("goal"))

    @property
    def command(self) -> str:
        """What trains such a group again."""
        seeds = [*dict.fromkeys(each.seed for each in self.seeds)]
        return shlex.join([*spelled("train"), *self.words, "--seed", shortened(seeds)])

    @property
    def tested(self) -> list[float]:
        """The mean returns of the finished ones, in order."""
        return [each.mean for each in self.seeds if each.finished and each.mean is not None]

    @property
    def solved(self) -> int:
        return sum(each.verdict == "solved" for each in self.seeds)

    @property
    def few(self) -> str:
        """Behind how many solved it: ` (5 episodes)` where tests had fewer than 100; else ""."""
        return few([each.episodes for each in self.seeds if each.verdict == "solved"])

    @property
    def unfinished(self) -> list[Seed]:
        return [each for each in self.seeds if not each.finished]


def read_group(selector: str) -> Group:
    """The group that `group:NAME`, `group:@last`, `@last-group` or a bare name means; UserError where there is none."""
    return group_of(find_group(selector))


def group_of(name: str) -> Group:
    """The group of exactly this name, as much of it as there is."""
    plan = read_plan(name)
    words = plan.parts[0].words if len(plan.parts) == 1 else plan.asked
    return Group(name, words, tuple(seed_of(each, name) for each in standings(name)))


def seed_of(standing: Standing, group: str = "") -> Seed:
    """A seed as the config.json of its run tells it, or what `runs cleanup` has kept of that."""
    gone = run_of(group, standing.key) if group and standing.key and standing.run is None else ""
    if gone:
        standing = standing._replace(facts=removed_facts(gone))
    run, facts, ended = standing.run, standing.facts, standing.outcome
    steps = ended.get("env_steps") if whole(ended.get("env_steps")) else None
    word, why = _verdict(run, standing) if run else _verdict_of_none(gone, facts)
    return Seed(
        standing.seed, run, facts, word, why,
        mean=finite(ended.get("test_mean")), deviation=finite(ended.get("test_std")),
        episodes=ended["test_episodes"] if whole(ended.get("test_episodes")) else 0,
        best=finite(ended.get("val_best")), env_steps=_steps(run) if run and steps is None else steps,
        seconds=finite(ended.get("seconds")), label=standing.label,
        words=standing.words,
    )  # fmt: skip


def removed_facts(run_id: str) -> dict[str, Any]:
    """config.json of a run that was deleted, as it was then; {} where nothing was kept."""
    path = runs_root() / "removed" / f"{run_id}.json"
    try:
        return checked(mapping(read_json(path)).get("facts"), path)
    except UserError:
        return {}


def _verdict_of_none(gone: str, facts: Mapping[str, Any]) -> tuple[str, str]:
    """The same of a seed whose run is not there; `gone` is what it was called."""
    if facts.get("status") == "finished":
        return verdict(mapping(facts.get("outcome"))), ""
    return ("deleted", f"{gone} is no longer there") if gone else ("not begun", "the group was stopped before its turn")


def _verdict(run: RunDir, standing: Standing) -> tuple[str, str]:
    """A word, and what there is to say of it."""
    if standing.status == "failed":
        return "failed", one_line(str(standing.facts.get("failure", ""))) or "it says nothing"
    if standing.status == "interrupted":
        return "stopped", "a signal ended it; it goes on where it stopped"
    if standing.status == "paused":
        return "paused", "it was told to; it goes on where it stopped"
    if standing.status != "finished":
        gone, state = died(run, standing.facts), state_of(run.path, standing.facts)
        going_on = "it is still in training" + ("" if state == LIVE else f", {state}")
        return ("died", gone.partition(": ")[2]) if gone else ("running", going_on)
    return verdict(standing.outcome), ""


def _steps(run: RunDir) -> int | None:
    """How far a run came that does not say so itself."""
    rows = _rows(run)
    return int(max((row.get(STEPS, 0.0) for row in rows), default=0.0)) if rows else None


def _rows(run: RunDir) -> list[dict[str, float]]:
    try:
        return read_csv(run.metrics_csv) if exists(run.metrics_csv) else []
    except UserError:  # what is wrong with a run is told where runs are shown; a group is its other seeds
        return []


def curve_of(seed: Seed) -> list[Point]:
    """Evaluations over env steps, or training where there were none."""
    rows = _rows(seed.run) if seed.run else []
    for name in (VAL, TRAIN):
        found = [Point(row[STEPS], row[name]) for row in rows if name in row and STEPS in row]
        found = [point for point in found if np.isfinite(point.y)]
        if found:
            return found
    return []


def band_of(curves: Sequence[Sequence[Point]]) -> Band:
    """The median of the curves and the quarters around it; one that has ended stays at its last value."""
    curves = [curve for curve in curves if curve]
    if not curves:
        return Band([], [], [])
    xs = np.linspace(max(curve[0].x for curve in curves), max(curve[-1].x for curve in curves), GRID)
    ys = np.stack([np.interp(xs, [p.x for p in curve], [p.y for p in curve]) for curve in curves])
    low, middle, high = ([*map(Point, xs.tolist(), line.tolist())] for line in np.quantile(ys, (0.25, 0.5, 0.75), 0))
    return Band(middle, low, high)


def shortened(seeds: Sequence[int]) -> str:
    """As a person would type them: 1-5, or 3,1,2."""
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"{seeds[0]}-{seeds[-1]}"
    return ",".join(map(str, seeds))


def together(group: Group) -> str:
    """What the seeds come to, in a line."""
    tested = group.tested
    if not tested:
        done = sum(each.finished for each in group.seeds)
        return f"{done} run{'s' if done != 1 else ''} finished, none was tested"
    verdicts = Counter(each.verdict_words for each in group.seeds if each.finished).most_common()
    runs = f"{len(tested)} run{'s' if len(tested) > 1 else ''}"
    return f"{runs}: {middle(tested)}, {', '.join(f'{count} {word}' for word, count in verdicts)}"


def middle(means: Sequence[float]) -> str:
    """Mean with its deviation and interquartile mean, with its 95 % interval where there are enough for one."""
    mean, deviation = mean_and_deviation(means)
    text = f"mean {mean:.2f} ± {deviation:.2f}, IQM {iqm(means):.2f}"
    if len(means) < FEWEST:
        return text
    low, high = interval(means)
    return f"{text} [95 % {low:.2f} .. {high:.2f}]"


def caution(runs: int) -> str:
    """Why there is no interval, "" where there is one, or nothing to tell it of."""
    seeds = f"{runs} seed{'s' if runs > 1 else ''}"
    return (
        "" if runs >= FEWEST or not runs else f"no interval: {seeds} cannot tell one, {FEWEST} are the fewest that can"
    )
