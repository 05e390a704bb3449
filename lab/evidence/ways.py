"""Do two ways to the same training learn the same? Trains variants by both on the same seeds and compares them.

    python -m lab.evidence.ways engines --seeds 10       trains what is missing, writes docs/results/engines
    python -m lab.evidence.ways engines --seeds 0        the verdict again, nothing is trained

engines: eager and fused_cpu; also writes docs/engines.md. devices: fused_cpu and a GPU's fused_gpu. backends:
Gymnasium's worlds and the compiled ones. lag: a rollout of new weights, and of the ones before. shards: one and four.
Every run spends its whole budget, so that finals and areas are of equal experience.
Exit code 1: they differ, or a seed failed.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lab.evidence.file import Evidence, Record, file_stem
from lab.evidence.report import table
from lab.evidence.runs import RESULTS
from lab.evidence.trainings import train
from stride.commands.usage import parser_of
from stride.config.loader import load_config, parse_config_id
from stride.utils import entry
from stride.utils.curve import Band, Point, bands_svg
from stride.utils.durable_file import write_json
from stride.utils.statistics import interval, iqm
from stride.utils.typography import duration, number, score
from stride.utils.user_error import UserError

MEASURES = ("final", "area")  # of 100 fresh episodes; mean height of the curve of evaluations
Found = Mapping[str, Mapping[str, Evidence]]  # variant -> way -> its file


class Comparison(NamedTuple):
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
        return float(np.mean(np.subtract(self.second, self.first)))


class Ways(NamedTuple):
    """A config key with its two values, and the variants that are trained with both."""

    key: str
    names: tuple[str, str]
    variants: Mapping[str, tuple[str, ...]]  # and what both ways change alike
    seeds: int  # usually

    @property
    def folder(self) -> Path:
        return RESULTS / f"{self.key.removeprefix('env_').removesuffix('s')}s"

    @property
    def comparisons(self) -> int:
        return len(self.variants) * len(MEASURES)

    @property
    def level(self) -> float:
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
    low, high = interval(values)
    return f"{score(iqm(values))} [{score(low)}, {score(high)}]"


def difference(found: Comparison) -> str:
    low, high = found.difference
    return f"{_signed(found.mean)} [{_signed(low)}, {_signed(high)}]"


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + number(value, 1)


VARIANTS = {  # eager takes long, and rates are constant in the last two
    "CartPole-v1:ppo": (),
    "Pendulum-v1:ppo": ("max_timesteps=61_440",),
    "Acrobot-v1:ppo": ("max_timesteps=163_840",),
}
CARTPOLE = "CartPole-v1:ppo"
WAYS = {
    "engines": Ways("engine", ("eager", "fused_cpu"), VARIANTS, seeds=10),
    "devices": Ways("device", ("cpu", "cuda"), VARIANTS, seeds=20),
    "backends": Ways("env_backend", ("gym", "fast"), {CARTPOLE: ()}, seeds=5),
    "shards": Ways("shards", ("1", "4"), {CARTPOLE: (), "Acrobot-v1:ppo": ("max_timesteps=163_840",)}, seeds=20),
    "lag": Ways("lag", ("0", "1"), {CARTPOLE: ("engine=eager", "max_timesteps=20_480")}, seeds=5),
}
ENGINES = WAYS["engines"]
PAGE = RESULTS.parent / "engines.md"
INTRODUCTION = """\
# Do the engines learn the same?

Generated by `python -m lab.evidence.ways engines`; edit nothing here.
This page shows that the compiled engine reaches the same returns as plain PyTorch.

Shipped variants were trained with `engine: eager` and with `engine: fused_cpu` on the same seeds, for their whole
budget (`early_stop_on_eval_threshold: false`), {changed}.
*Final* is the mean raw return of 100 fresh episodes with the final weights. *Area* is the mean height of the
evaluation curve. Both are interquartile means with bootstrapped 95 % intervals. The difference is between runs of the
same seed. Its interval has {level:.1%}, so that all {count} comparisons hold together in 95 of 100 cases if nothing
differs. *Same* means: both intervals overlap, and that of the difference contains 0.
The engines draw the same random numbers, but one different rounding soon leads to different episodes.

fused_cpu refuses by name what it does not support, and `engine: auto` then takes eager. For Dreamer and PlaNet it
computes the recurrent part and the heads, with a dense cell and batches of a multiple of 16 sequences. It refuses
cells of blocks (`size: 1m` and `12m`)."""
HEAD = ("variant", "seeds", "measure", "eager", "fused_cpu", "fused_cpu - eager", "", "seconds, median")


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("ways", choices=WAYS, help="what is compared")
    parser.add_argument("--seeds", type=int, metavar="N", help="how many, from 1 on (default: enough to tell)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="trainings side by side")
    asked = parser.parse_args(argv)
    ways = WAYS[asked.ways]
    seeds = range(1, 1 + (ways.seeds if asked.seeds is None else asked.seeds))
    failed = ways.train_missing(seeds, asked.workers) if seeds else 0
    measured = ways.read()
    compared = ways.compare(measured)
    print("\n".join(ways.lines(compared)))
    if ways is ENGINES:
        PAGE.write_text(markdown(measured, compared), encoding="utf-8")
        print(f"\n  {os.path.relpath(PAGE)}")
    verdict = ways.verdict(compared)
    print(f"\n  {verdict or 'no difference'}")
    return 1 if failed or verdict else 0


def markdown(found: Found, compared: Mapping[tuple[str, str], Comparison]) -> str:
    rows = [HEAD]
    for (variant, measure), each in compared.items():
        spent = [np.median([r["seconds"] for r in found[variant][name].finished()]) for name in ENGINES.names]
        rows.append((
            variant, str(len(each.first)), measure, iqm_text(each.first), iqm_text(each.second), difference(each),
            "same" if each.same else "**different**", " and ".join(duration(float(seconds)) for seconds in spent),
        ))  # fmt: skip
    # more than one where it was measured in parts
    codes = {code for files in found.values() for evidence in files.values() for code in evidence.codes()}
    where = next(iter(found.values()))["eager"].where
    absent = [f"Not measured yet: {variant}." for variant in VARIANTS if variant not in found]
    changed = " and ".join(f"{variant} with `{' '.join(changes)}`" for variant, changes in VARIANTS.items() if changes)
    parts = [
        INTRODUCTION.format(level=ENGINES.level, count=ENGINES.comparisons, changed=changed),
        table(rows),
        *absent,
        f"Measured on {where}, which other programs used too (the seconds are no "
        f"benchmark), at {', '.join(sorted(codes))}. [Every number](results/engines/comparison.json).",
        *(f"![{variant}](results/engines/{file_stem(variant)}.svg)" for variant in found),
    ]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    entry.run(main)
