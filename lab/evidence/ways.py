"""Do two ways to do the same training learn the same? Trains variants in both ways on the same seeds, compares them.

    python -m lab.evidence.ways engines --seeds 10       trains what is missing, writes docs/results/engines
    python -m lab.evidence.ways engines --seeds 0        the verdict again, nothing is trained

engines: eager and fused_cpu; also writes docs/engines.md. devices: fused_cpu and a GPU's fused_gpu. backends:
Gymnasium's environments and the compiled ones. lag: rollouts by the newest weights, and by those of one iteration
before. shards: one and four. Every run spends its whole budget, so that both ways have equal experience.
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

MEASURES = ("final", "area")  # mean return of 100 fresh episodes; mean height of the curve of evaluations
Found = Mapping[str, Mapping[str, Evidence]]  # variant -> way ("eager") -> its evidence


class Comparison(NamedTuple):
    """One measure of one variant by both ways."""

    first: list[float]  # a value for each seed; `second` has the same seeds in the same order
    second: list[float]
    difference: tuple[float, float]  # interval of the mean of second - first

    @property
    def same(self) -> bool:
        """Whether the ways' intervals overlap and that of their difference contains 0."""
        (low, high), (begins, ends) = interval(self.first), interval(self.second)
        return low <= ends and begins <= high and self.difference[0] <= 0 <= self.difference[1]

    @property
    def mean(self) -> float:
        return float(np.mean(np.subtract(self.second, self.first)))


class Ways(NamedTuple):
    """A config key with its two values, and the variants that are trained with both."""

    key: str
    names: tuple[str, str]
    variants: Mapping[str, tuple[str, ...]]  # variant -> overrides that both ways have
    seeds: int  # how many by default: enough to tell a difference

    @property
    def folder(self) -> Path:
        return RESULTS / f"{self.key.removeprefix('env_').removesuffix('s')}s"

    @property
    def comparisons(self) -> int:
        return len(self.variants) * len(MEASURES)

    @property
    def level(self) -> float:
        """The level of each interval, so that all comparisons hold together in 95 of 100 cases (Bonferroni)."""
        return 1 - 0.05 / self.comparisons

    def file_of(self, variant: str, name: str) -> Path:
        return self.folder / name / f"{file_stem(variant)}.json"

    def train_missing(self, seeds: Sequence[int], workers: int) -> int:
        """Train the seeds that are missing, in both ways; return how many failed."""
        failed = 0
        for variant, changes in self.variants.items():
            for name in self.names:
                overrides = [f"{self.key}={name}", "early_stop_on_eval_threshold=false", *changes]
                config = load_config(*parse_config_id(variant), overrides)
                evidence = Evidence.begin(self.file_of(variant, name), variant, config, overrides)
                failed += train({variant: evidence}, self.folder / name, seeds, workers)
        return failed

    def read(self) -> Found:
        """Return the evidence of the variants that were measured in both ways."""
        measured = [name for name in self.variants if all(self.file_of(name, way).is_file() for way in self.names)]
        return {name: {way: Evidence.read(self.file_of(name, way)) for way in self.names} for name in measured}

    def compare(self, evidence: Found) -> dict[tuple[str, str], Comparison]:
        """Return (variant, measure) -> comparison, over the seeds that both ways finished.

        Also write them into comparison.json, and the learning curves beside it.
        """
        compared = {}
        for variant, files in evidence.items():
            by_seed = [{record["seed"]: record for record in files[name].finished()} for name in self.names]
            seeds = sorted(by_seed[0].keys() & by_seed[1].keys())
            for measure in MEASURES:
                first, second = ([reached(records[seed], measure) for seed in seeds] for records in by_seed)
                compared[variant, measure] = comparison(first, second, self.level)
            (self.folder / f"{file_stem(variant)}.svg").write_text(curves(variant, files), encoding="utf-8")
        write_json(self.folder / "comparison.json", [self._plain(*key, result) for key, result in compared.items()])
        return compared

    def _plain(self, variant: str, measure: str, result: Comparison) -> dict[str, object]:
        both = {name: {"iqm": iqm(values), "interval": interval(values), "seeds": values}
                for name, values in zip(self.names, result[:2], strict=True)}  # fmt: skip
        difference = {"mean": result.mean, "interval": result.difference}
        head = {"variant": variant, "measure": measure, **both}
        return {**head, "difference": difference, "level": self.level, "same": result.same}

    def lines(self, compared: Mapping[tuple[str, str], Comparison]) -> Iterator[str]:
        """Yield two lines to print for each comparison: both ways, and their difference."""
        first, second = self.names
        for (variant, measure), result in compared.items():
            both = f"{first} {iqm_text(result.first)}, {second} {iqm_text(result.second)}"
            yield f"  {variant} {measure:5} {both}, {len(result.first)} seeds"
            yield f"        {second} - {first} {difference(result)}"

    def verdict(self, compared: Mapping[tuple[str, str], Comparison]) -> str:
        """Return in words what is different or was not measured; "" if neither."""
        absent = [f"{name} is not measured" for name in self.variants if (name, MEASURES[0]) not in compared]
        different = [f"{variant} {measure} is different" for (variant, measure), e in compared.items() if not e.same]
        return ", ".join(absent + different)


def comparison(first: Sequence[float], second: Sequence[float], level: float) -> Comparison:
    """Compare the values of the same seeds; UserError for fewer than two seeds."""
    if len(first) < 2:
        raise UserError("a comparison takes at least two seeds that both ways finished")
    return Comparison([*first], [*second], interval(np.subtract(second, first), np.mean, level))


def reached(record: Record, measure: str) -> float:
    """Return a seed's value of one of MEASURES."""
    if measure == "final":
        return float(record["final"]["mean"])
    x, y = np.array(record["curve"]["val"]).T
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))


def curves(variant: str, found: Mapping[str, Evidence]) -> str:
    """Return an SVG with the mean evaluation of each way and its 95 % interval, over env steps."""
    bands = {name: band_of([r["curve"]["val"] for r in evidence.finished()]) for name, evidence in found.items()}
    seeds = min(len(evidence.finished()) for evidence in found.values())
    goal = next(iter(found.values())).goal
    return bands_svg(f"{variant}, {seeds} seeds each, mean and 95 % interval", bands, goal)


def band_of(lines: Sequence[Sequence[tuple[float, float]]]) -> Band:
    """Return the mean of the seeds' curves and its 95 % interval; with one seed, the interval has no width.

    A curve is [(env steps, return), ..]. All runs are evaluated at the same env steps; the shortest one sets the end.
    """
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


VARIANTS = {  # budgets are shorter where eager takes long; the last two have constant learning rates
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
    arguments = parser.parse_args(argv)
    ways = WAYS[arguments.ways]
    seeds = range(1, 1 + (ways.seeds if arguments.seeds is None else arguments.seeds))
    failed = ways.train_missing(seeds, arguments.workers) if seeds else 0
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
    for (variant, measure), result in compared.items():
        spent = [np.median([r["seconds"] for r in found[variant][name].finished()]) for name in ENGINES.names]
        rows.append((
            variant, str(len(result.first)), measure, iqm_text(result.first), iqm_text(result.second),
            difference(result),
            "same" if result.same else "**different**", " and ".join(duration(float(seconds)) for seconds in spent),
        ))  # fmt: skip
    # several commits if it was measured in parts
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
