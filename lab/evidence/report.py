"""Makes Markdown tables, cells and SVG curves of evidence, for docs/results.md and the learners' pages.

Also the rows of docs/results.md that were measured before the campaign. This module does not import torch.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lab.evidence import public
from lab.evidence.file import Evidence, Record, is_solved, summary
from stride.utils.curve import Point, seeds_svg
from stride.utils.typography import duration, number, plain, score

MEAN_POINTS = 200  # points of the bold curve, the mean over seeds
HEAD = (
    "variant", "seeds", "goal", "solved", "stopped at the goal", "IQM [95 %]", "mean", "worst seed",
    "exact value, IQM (worst)", "best checkpoint, IQM", "env steps, median (max)", "wall time, median",
)  # fmt: skip
OLDER_HOW = ("variant", "command", "commit", "machine", "versions")
OLDER = (
    "These rows are of November 20 to 25, 2026, by code of that time, some at commits that are in no repository or "
    "with uncommitted changes. A seed that *stopped at the goal* was stopped by the very test that is its score, so it "
    "cannot be below the goal. They stay until the campaign has measured their variant."
)


def older_part(older: Sequence[Evidence]) -> list[str]:
    """Return the parts of the page about variants that the campaign has not measured yet; [] if there are none."""
    if not older:
        return []
    parts = ["## Rows of older code", OLDER, table([HEAD, *map(row_of, older)])]
    return [*parts, "### Older commands and commits", table([OLDER_HOW, *map(_older_how, older)])]


def not_solved(evidence: Evidence) -> list[str]:
    """Return a line for every finished seed whose final weights are below its goal."""
    lines = []
    for record in evidence.finished():
        if record["goal"] is not None and not is_solved(record["final"], record["goal"]):
            final, best = (score_text(record[weights].get("mean")) for weights in ("final", "best"))
            final += f", exactly {record['final']['exact']:.4g}," if "exact" in record["final"] else ""
            what = f"{final} after {record['env_steps']:,} steps ({record['reason']}), best checkpoint {best}"
            lines.append(f"{evidence.variant} seed {record['seed']}: {what}, goal {plain(record['goal'])}")
    return lines


def failures(evidence: Evidence) -> list[str]:
    """Return a line for every seed whose training broke off; such a seed is in no average."""
    name = evidence.variant
    return [f"{name} seed {seed['seed']}: exit code {seed['code']}: {seed['line']}" for seed in evidence.failed()]


def curve(evidence: Evidence) -> str:
    """Return an SVG of the learning curves: a line for each seed, their mean, the goal, and published results."""
    finished = evidence.finished()
    # evaluations if every seed has some, else the returns of training episodes
    kind = "val" if all(len(record["curve"]["val"]) > 1 for record in finished) else "train"
    lines = [[Point(x, y) for x, y in record["curve"][kind]] for record in finished]
    seeds = f"{len(finished)} seed{'s' if len(finished) > 1 else ''}"
    title = f"{evidence.variant}, {seeds}" + (", training" if kind == "train" else "")
    last_step = max((line[-1].x for line in lines if line), default=0.0)
    env = evidence.variant.rpartition(":")[0]
    published = public.overlay(env, evidence.algorithm, last_step, evidence.config.get("frame_skip", 1))
    return seeds_svg(title, lines, mean_curve(lines), _goal(evidence), published)


def mean_curve(lines: Sequence[Sequence[Point]]) -> list[Point]:
    """Return the mean over all seeds, from the step at which all have a value.

    A seed that has stopped keeps its last value: otherwise the end would be the mean of the slowest seeds only.
    """
    drawn = [line for line in lines if line]
    if not drawn:
        return []
    grid = np.linspace(max(line[0].x for line in drawn), max(line[-1].x for line in drawn), MEAN_POINTS)
    heights = [np.interp(grid, [point.x for point in line], [point.y for point in line]) for line in drawn]
    return [Point(float(x), float(y)) for x, y in zip(grid, np.mean(heights, 0), strict=True)]


def row_of(evidence: Evidence) -> tuple[str, ...]:
    """Return a row of the older table, a cell for each column of HEAD.

    The learners' pages show some of its cells for every variant.
    """
    finished, goal = evidence.finished(), _goal(evidence)
    # counted among all seeds: a seed that failed has not solved the task
    solved = f"{sum(is_solved(each['final'], each['goal']) for each in finished)} of {len(evidence.seeds)}"
    stopped = f"{sum(each['reason'] == 'goal reached' for each in finished)} of {len(finished)}"
    first_cells = (
        evidence.variant,
        ranges(evidence.seeds),
        *(("", "", "") if goal is None else (plain(goal), solved, stopped)),
    )
    if not finished:
        return (*first_cells, *["none finished"] * (len(HEAD) - len(first_cells)))
    totals = summary(finished)
    final, best, exact = totals.get("final"), totals.get("best"), totals.get("final_exact")
    steps = [record["env_steps"] for record in finished]
    return (
        *first_cells, iqm_text(final), score_text(final and final["mean"]), score_text(final and final["worst"]),
        f"{exact['iqm']:.4g} ({exact['worst']:.4g})" if exact else "", iqm_text(best),
        f"{statistics.median(steps):,.0f} ({max(steps):,})",
        duration(statistics.median(record["seconds"] for record in finished)),
    )  # fmt: skip


def _goal(evidence: Evidence) -> float | None:
    goals: list[float | None] = [record["goal"] for record in evidence.finished()]
    return goals[0] if goals else evidence.goal


def _older_how(evidence: Evidence) -> tuple[str, ...]:
    commands, codes = "<br>".join(evidence.typed()), ", ".join(evidence.codes())
    return evidence.variant, commands, codes, evidence.where, versions_of(evidence.finished())


def versions_of(finished: Sequence[Record]) -> str:
    """Return the package versions that the records name: "torch 2.5.1, numpy 2.1.0"; several sets with "; "."""
    texts = {", ".join(f"{name} {v}" for name, v in record["versions"].items() if v) for record in finished}
    return "; ".join(sorted(texts))


def iqm_text(values: Mapping[str, Any] | None) -> str:
    """Return "487 [471, 496]" for a result of `spread`; without an interval "487", for None ""."""
    if not values:
        return ""
    bounds = "" if values["low"] is None else f" [{score_text(values['low'])}, {score_text(values['high'])}]"
    return score_text(values["iqm"]) + bounds


def score_text(value: float | None) -> str:
    """Return a score as headlines show it, but with three decimals below 1 (a share of episodes); None is "none"."""
    if value is None:
        return "none"
    return number(value, 3) if abs(value) < 1 else score(value)


def ranges(seeds: Iterable[int]) -> str:
    """Return seeds in words: "1-5", or "1-3, 5"."""
    bounds: list[list[int]] = []
    for seed in sorted(seeds):
        if bounds and seed == bounds[-1][1] + 1:
            bounds[-1][1] = seed
        else:
            bounds.append([seed, seed])
    return ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in bounds)


def listed(title: str, lines: Iterable[str]) -> list[str]:
    """Return a heading and a Markdown list; [] without lines."""
    items = "\n".join(f"- {line}" for line in lines)
    return [f"## {title}", items] if items else []


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first row is its head."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in lines)
