"""Tables, cells and curves of evidence, and the rows of docs/results.md that are older than the campaign. No torch."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lab.evidence import public
from lab.evidence.file import Evidence, Record, is_solved, summary
from stride.utils.curve import Point, seeds_svg
from stride.utils.typography import duration, number, plain, score

MEAN_POINTS = 200  # of the bold curve
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
    """The rows that the campaign has not measured yet."""
    if not older:
        return []
    parts = ["## Rows of older code", OLDER, table([HEAD, *map(row_of, older)])]
    return [*parts, "### Older commands and commits", table([OLDER_HOW, *map(_older_how, older)])]


def not_solved(evidence: Evidence) -> list[str]:
    lines = []
    for record in evidence.finished():
        if record["goal"] is not None and not is_solved(record["final"], record["goal"]):
            final, best = (score_text(record[which].get("mean")) for which in ("final", "best"))
            final += f", exactly {record['final']['exact']:.4g}," if "exact" in record["final"] else ""
            what = f"{final} after {record['env_steps']:,} steps ({record['reason']}), best checkpoint {best}"
            lines.append(f"{evidence.variant} seed {record['seed']}: {what}, goal {plain(record['goal'])}")
    return lines


def failures(evidence: Evidence) -> list[str]:
    """A line for every seed whose training broke off: it is in no average."""
    name = evidence.variant
    return [f"{name} seed {each['seed']}: exit code {each['code']}: {each['line']}" for each in evidence.failed()]


def curve(evidence: Evidence) -> str:
    finished = evidence.finished()
    kind = "val" if all(len(record["curve"]["val"]) > 1 for record in finished) else "train"
    lines = [[Point(x, y) for x, y in record["curve"][kind]] for record in finished]
    seeds = f"{len(finished)} seed{'s' if len(finished) > 1 else ''}"
    title = f"{evidence.variant}, {seeds}" + (", training" if kind == "train" else "")
    last = max((line[-1].x for line in lines if line), default=0.0)
    env = evidence.variant.rpartition(":")[0]
    published = public.overlay(env, evidence.algorithm, last, evidence.config.get("frame_skip", 1))
    return seeds_svg(title, lines, mean_curve(lines), _goal(evidence), published)


def mean_curve(lines: Sequence[Sequence[Point]]) -> list[Point]:
    """Mean over all seeds from where each has a value; one that has stopped goes on with its last, so that the mean
    does not become that of the stragglers."""
    drawn = [line for line in lines if line]
    if not drawn:
        return []
    grid = np.linspace(max(line[0].x for line in drawn), max(line[-1].x for line in drawn), MEAN_POINTS)
    heights = [np.interp(grid, [point.x for point in line], [point.y for point in line]) for line in drawn]
    return [Point(float(x), float(y)) for x, y in zip(grid, np.mean(heights, 0), strict=True)]


def row_of(evidence: Evidence) -> tuple[str, ...]:
    """A row of the older table; the learners' pages show some of its cells for every variant."""
    finished, goal = evidence.finished(), _goal(evidence)
    # of all seeds, as one that failed has solved nothing
    solved = f"{sum(is_solved(each['final'], each['goal']) for each in finished)} of {len(evidence.seeds)}"
    stopped = f"{sum(each['reason'] == 'goal reached' for each in finished)} of {len(finished)}"
    start = (
        evidence.variant,
        ranges(evidence.seeds),
        *(("", "", "") if goal is None else (plain(goal), solved, stopped)),
    )
    if not finished:
        return (*start, *["none finished"] * (len(HEAD) - len(start)))
    found = summary(finished)
    final, best, exact = found.get("final"), found.get("best"), found.get("final_exact")
    steps = [each["env_steps"] for each in finished]
    return (
        *start, iqm_text(final), score_text(final and final["mean"]), score_text(final and final["worst"]),
        f"{exact['iqm']:.4g} ({exact['worst']:.4g})" if exact else "", iqm_text(best),
        f"{statistics.median(steps):,.0f} ({max(steps):,})",
        duration(statistics.median(each["seconds"] for each in finished)),
    )  # fmt: skip


def _goal(evidence: Evidence) -> float | None:
    goals: list[float | None] = [record["goal"] for record in evidence.finished()]
    return goals[0] if goals else evidence.goal


def _older_how(evidence: Evidence) -> tuple[str, ...]:
    commands, codes = "<br>".join(evidence.typed()), ", ".join(evidence.codes())
    return evidence.variant, commands, codes, evidence.where, versions_of(evidence.finished())


def versions_of(finished: Sequence[Record]) -> str:
    texts = {", ".join(f"{name} {v}" for name, v in record["versions"].items() if v) for record in finished}
    return "; ".join(sorted(texts))


def iqm_text(found: Mapping[str, Any] | None) -> str:
    if not found:
        return ""
    bounds = "" if found["low"] is None else f" [{score_text(found['low'])}, {score_text(found['high'])}]"
    return score_text(found["iqm"]) + bounds


def score_text(value: float | None) -> str:
    """As in headlines, but small values (a share of episodes) with three decimals."""
    if value is None:
        return "none"
    return number(value, 3) if abs(value) < 1 else score(value)


def ranges(seeds: Iterable[int]) -> str:
    """`1-5`, or `1-3, 5`."""
    found: list[list[int]] = []
    for seed in sorted(seeds):
        if found and seed == found[-1][1] + 1:
            found[-1][1] = seed
        else:
            found.append([seed, seed])
    return ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in found)


def listed(title: str, lines: Iterable[str]) -> list[str]:
    items = "\n".join(f"- {line}" for line in lines)
    return [f"## {title}", items] if items else []


def table(rows: Sequence[Sequence[str]]) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
