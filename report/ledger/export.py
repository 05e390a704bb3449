"""Runs as a table for programs and papers: CSV, JSON, LaTeX (booktabs); a line each, or one of the seeds together."""

import csv
import io
import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from statistics import median

from stride.report.ledger.table import AT_LEFT, cell, data
from stride.runstore.run_brief import Brief
from stride.runstore.run_facts import few
from stride.runstore.run_query import FIELDS, SHOWN, Look
from stride.utils.statistics import FEWEST, interval, iqm, mean_and_deviation
from stride.utils.typography import duration
from stride.utils.user_error import UserError, printable

COLUMNS = ("id", "run", "seed", "status", "result", "test", "test_episodes", "best", "steps", "took")
OF_VARIANTS = (
    "run",
    "settings",
    "runs",
    "solved",
    "test_episodes",
    "mean",
    "std",
    "iqm",
    "low",
    "high",
    "steps",
    "took",
)
SPECIAL = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
SPECIAL |= {each: f"\\{each}" for each in "&%$#_{}"} | {"<": r"\textless{}", ">": r"\textgreater{}"}
HEADS = {"run": "variant", "mean": "return", "iqm": "IQM", "low": r"95\,\% interval", "test": "test", "took": "time"}
FORMULA = ("=", "+", "-", "@")  # what a cell begins with that a spreadsheet computes
Row = dict[str, float | str | None]


def exported(lines: Sequence[Brief], columns: Sequence[str], fields: Mapping[str, Look], form: str, by: str) -> str:
    """The whole text."""
    if by == "variant":
        if columns:
            raise UserError("--by variant has columns of its own; --columns goes with --by run")
        rows, columns = of_variants(lines), OF_VARIANTS
    elif form == "json" and not columns:
        return json.dumps([data(line, FIELDS) for line in lines], indent=1) + "\n"
    else:
        shown = SHOWN if form == "latex" else {}  # where a verdict says how few episodes its test had
        columns = columns or [name for name in COLUMNS if not shown or name != "test_episodes"]
        rows = [{name: shown.get(name, fields[name])(line) for name in columns} for line in lines]
    if form == "json":
        return json.dumps(rows, indent=1) + "\n"
    return latex(rows, columns, by) if form == "latex" else as_csv(rows, columns)


def of_variants(lines: Sequence[Brief]) -> list[Row]:
    """Runs whose configs differ in nothing but the seed, together; only those that were tested count."""
    groups: dict[tuple[str, str], list[Brief]] = {}
    for line in lines:
        if line.test is not None:
            groups.setdefault((line.variant, line.settings), []).append(line)
    return [_together(variant, settings, found) for (variant, settings), found in groups.items()]


def _together(variant: str, settings: str, found: Sequence[Brief]) -> Row:
    tests = [line.test for line in found if line.test is not None]
    mean, deviation = mean_and_deviation(tests)
    low, high = interval(tests) if len(tests) >= FEWEST else (None, None)
    took = [line.took for line in found if line.took is not None]
    return {
        "run": variant, "settings": settings, "runs": len(found),
        "solved": sum(line.result == "solved" for line in found),
        "test_episodes": min(line.episodes for line in found), "mean": mean, "std": deviation, "iqm": iqm(tests),
        "low": low, "high": high, "steps": median(line.tail.steps for line in found),
        "took": median(took) if took else None,
    }  # fmt: skip


def as_csv(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """RFC 4180; numbers in full. Every text is quoted: a spreadsheet that splits at ';' makes no cell of its end."""
    out = io.StringIO()
    file = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    file.writerow(columns)
    for row in rows:
        file.writerow(["" if row[name] is None else _safe(row[name]) for name in columns])
    return out.getvalue()


def _safe(value: float | str | None) -> float | str | None:
    """A text as one harmless line, behind a quote where a spreadsheet would compute it, wide signs like narrow ones."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if unicodedata.normalize("NFKC", text).strip()[:1] in FORMULA else text


def latex(rows: Sequence[Row], columns: Sequence[str], by: str) -> str:
    """A tabular for \\usepackage{booktabs}; of variants mean and deviation in one cell, and the interval in another."""
    shown = [name for name in columns if by == "run" or name not in ("settings", "test_episodes", "std", "high")]
    sides = "".join("l" if name in AT_LEFT else "r" for name in shown)
    heads = " & ".join(HEADS.get(name, escaped(name)) for name in shown)
    body = [" & ".join(_cell(name, row, by) for name in shown) + r" \\" for row in rows]
    return "\n".join([
        "% \\usepackage{booktabs}", rf"\begin{{tabular}}{{{sides}}}", r"\toprule", rf"{heads} \\", r"\midrule", *body,
        r"\bottomrule", r"\end{tabular}", "",
    ])  # fmt: skip


def _cell(name: str, row: Row, by: str) -> str:
    value = row[name]
    if by == "variant" and name == "mean":
        return rf"${row['mean']:.1f} \pm {row['std']:.1f}$"
    if by == "variant" and name == "solved" and value:
        return f"{value}{few([int(row['test_episodes'] or 0)])}"
    if by == "variant" and name == "low":
        return "--" if value is None else rf"$[{row['low']:.1f}, {row['high']:.1f}]$"
    if isinstance(value, float) and not math.isfinite(value):
        return "--"
    if isinstance(value, float) and name in ("iqm", "test", "best", "score", "last"):
        return f"${value:.1f}$"
    return duration(value) if name == "took" and isinstance(value, float) else escaped(cell(name, value)) or "--"


def escaped(text: str) -> str:
    """Characters that mean something to LaTeX as themselves; what it has no letter for as a question mark, and what
    cannot be printed spelled out."""
    plain = printable(text).encode("ascii", "replace").decode()
    return "".join(SPECIAL.get(each, each) for each in plain)
