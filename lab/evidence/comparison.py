"""Trainings done in two ways on the same seeds: do both learn the same?

Every run spends its whole budget, so that finals and areas are of equal experience.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lab.evidence.file import Evidence, Record, file_stem
from lab.evidence.variants import RESULTS, train
from stride.config.loader import load_config, parse_config_id
from stride.utils.curve import Band, Point, bands_svg
from stride.utils.durable_file import write_json
from stride.utils.statistics import interval, iqm
from stride.utils.typography import number, score
from stride.utils.user_error import UserError

MEASURES = ("final", "area")  # of 100 fresh episodes; mean height of the curve of evaluations
Found = Mapping[str, Mapping[str, Evidence]]  # variant -> way -> its file


class Comparison(NamedTuple):
    """One measure of one variant, done in two ways."""

    first: list[float]  # by seed, in the same order
    second: list[float]
    difference: tuple[float, float]  # interval of the mean of second - first

    @property
    def same(self) -> bool:
        """Whether nothing tells the ways apart: their intervals overlap, that of the difference contains 0."""
        (low, high), (begins, ends) = interval(self.first), interval(self.second)
        return low <= ends and begins <= high and self.difference[0] <= 0 <= self.difference[1]

    @property
    def mean(self) -> float:
        """Of the differences."""
        return float(np.mean(np.subtract(self.second, self.first)))


class Ways(NamedTuple):
    """A config key with its two values, and the variants that are trained with both."""

    key: str
    names: tuple[str, str]
    variants: Mapping[str, tuple[str, ...]]  # and what both ways change alike
    seeds: int  # usually

    @property
    def folder(self) -> Path:
        return RESULTS / f"{self.key.removeprefix('env_')}s"

    @property
    def comparisons(self) -> int:
        return len(self.variants) * len(MEASURES)

    @property
    def level(self) -> float:
        """Of one interval, so that all comparisons hold in 95 of 100 tries of two equal ways."""
        return 1 - 0.05 / self.comparisons

    def place(self, variant: str, name: str) -> Path:
        return self.folder / name / f"{file_stem(variant)}.json"

    def train_missing(self, seeds: Sequence[int], workers: int) -> int:
        """-> seeds that failed"""
        failed = 0
        for variant, changes in self.variants.items():
            for name in self.names:
                overrides = [f"{self.key}={name}", "early_stop_on_eval_threshold=false", *changes]
                config = load_config(*parse_config_id(variant), overrides)
                evidence = Evidence.begin(self.place(variant, name), variant, config, overrides)
                failed += train({variant: evidence}, self.folder / name, seeds, workers)
        return failed

    def read(self) -> Found:
        """The variants that have been trained in both ways."""
        measured = [each for each in self.variants if all(self.place(each, name).is_file() for name in self.names)]
        return {each: {name: Evidence.read(self.place(each, name)) for name in self.names} for each in measured}

    def compare(self, found: Found) -> dict[tuple[str, str], Comparison]:
        """Each variant by each measure, written into comparison.json, with the curves beside it."""
        compared = {}
        for variant, files in found.items():
            by_seed = [{record["seed"]: record for record in files[name].finished()} for name in self.names]
            seeds = sorted(by_seed[0].keys() & by_seed[1].keys())
            for measure in MEASURES:
                first, second = ([reached(records[seed], measure) for seed in seeds] for records in by_seed)
                compared[variant, measure] = comparison(first, second, self.level)
            (self.folder / f"{file_stem(variant)}.svg").write_text(curves(variant, files), encoding="utf-8")
        write_json(self.folder / "comparison.json", [self._plain(*key, each) for key, each in compared.items()])
        return compared

    def _plain(self, variant: str, measure: str, found: Comparison) -> dict[str, object]:
        both = {name: {"iqm": iqm(values), "interval": interval(values), "seeds": values}
                for name, values in zip(self.names, found[:2], strict=True)}  # fmt: skip
        difference = {"mean": found.mean, "interval": found.difference}
        head = {"variant": variant, "measure": measure, **both}
        return {**head, "difference": difference, "level": self.level, "same": found.same}

    def lines(self, compared: Mapping[tuple[str, str], Comparison]) -> Iterator[str]:
        """Every comparison in words."""
        first, second = self.names
        for (variant, measure), each in compared.items():
            both = f"{first} {iqm_text(each.first)}, {second} {iqm_text(each.second)}"
            yield f"  {variant} {measure:5} {both}, {len(each.first)} seeds"
            yield f"        {second} - {first} {difference(each)}"

    def verdict(self, compared: Mapping[tuple[str, str], Comparison]) -> str:
        """What is different or was not measured; "" for nothing."""
        absent = [f"{name} is not measured" for name in self.variants if (name, MEASURES[0]) not in compared]
        different = [f"{variant} {measure} is different" for (variant, measure), e in compared.items() if not e.same]
        return ", ".join(absent + different)


def comparison(first: Sequence[float], second: Sequence[float], level: float) -> Comparison:
    if len(first) < 2:
        raise UserError("a comparison takes at least two seeds that both ways finished")
    return Comparison([*first], [*second], interval(np.subtract(second, first), np.mean, level))


def reached(record: Record, measure: str) -> float:
    """The final score, or the mean height of the evaluations over env steps."""
    if measure == "final":
        return float(record["final"]["mean"])
    x, y = np.array(record["curve"]["val"]).T
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))


def curves(variant: str, found: Mapping[str, Evidence]) -> str:
    """Mean evaluation of each way and its 95 % interval; all runs were evaluated at the same env steps."""
    bands = {name: band_of([r["curve"]["val"] for r in evidence.finished()]) for name, evidence in found.items()}
    seeds = min(len(evidence.finished()) for evidence in found.values())
    goal = next(iter(found.values())).goal
    return bands_svg(f"{variant}, {seeds} seeds each, mean and 95 % interval", bands, goal)


def band_of(lines: Sequence[Sequence[tuple[float, float]]]) -> Band:
    """The mean of seeds and its 95 % interval, at the env steps where all were evaluated; one seed is its own."""
    steps = [x for x, _ in lines[0][: min(map(len, lines))]]
    heights = np.array([[y for _, y in line[: len(steps)]] for line in lines]).T
    bounds = [interval(row, np.mean) if len(lines) > 1 else (float(row[0]), float(row[0])) for row in heights]
    mean = [Point(x, float(row.mean())) for x, row in zip(steps, heights, strict=True)]
    return Band(mean, *([Point(x, bound[end]) for x, bound in zip(steps, bounds, strict=True)] for end in range(2)))


def iqm_text(values: Sequence[float]) -> str:
    """With its interval."""
    low, high = interval(values)
    return f"{score(iqm(values))} [{score(low)}, {score(high)}]"


def difference(found: Comparison) -> str:
    """Its mean and interval."""
    low, high = found.difference
    return f"{_signed(found.mean)} [{_signed(low)}, {_signed(high)}]"


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + number(value, 1)
