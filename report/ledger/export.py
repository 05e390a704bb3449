"""Runs as a table for programs and papers: CSV, JSON, LaTeX (booktabs); a line each, or one of the seeds together."""

import csv
import io
import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from statistics import median

from stride.report.ledger.table import LEFT_ALIGNED, cell, data
from stride.runstore.run_brief import Brief
from stride.runstore.run_facts import few
from stride.runstore.run_query import FIELDS, SHOWN, Look
from stride.utils.one_line import printable
from stride.utils.statistics import FEWEST, interval, iqm, mean_and_deviation
from stride.utils.typography import duration
from stride.utils.user_error import UserError

COLUMNS = ("id", "run", "seed", "status", "result", "test", "test_episodes", "best", "steps", "took")
LATEX_ESCAPES = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
                 "<": r"\textless{}", ">": r"\textgreater{}", **{sign: f"\\{sign}" for sign in "&%$#_{}"}}  # fmt: skip
HEADS = {"run": "variant", "mean": "return", "iqm": "IQM", "low": r"95\,\% interval", "test": "test", "took": "time"}
JOINED = ("settings", "test_episodes", "std", "high")  # columns of variants that LaTeX shows in others, or not at all
FORMULA = ("=", "+", "-", "@")  # signs at the beginning of a cell that a spreadsheet computes
Row = dict[str, float | str | None]
Briefs = Sequence[Brief]


def exported(briefs: Briefs, columns: Sequence[str], fields: Mapping[str, Look], form: str, by: str) -> str:
    """The complete text."""
    if by == "variant":
        if columns:
            raise UserError("--by variant has columns of its own; --columns goes with --by run")
        rows = variant_rows(briefs)
        columns = list(rows[0]) if rows else list(_variant_row("", "", []))
    elif form == "json" and not columns:
        return json.dumps([data(brief, FIELDS) for brief in briefs], indent=1) + "\n"
    else:
        special = SHOWN if form == "latex" else {}  # where a verdict says how few episodes its test had
        columns = columns or [name for name in COLUMNS if form != "latex" or name != "test_episodes"]
        rows = [{name: special.get(name, fields[name])(brief) for name in columns} for brief in briefs]
    if form == "json":
        return json.dumps(rows, indent=1) + "\n"
    return latex(rows, columns, by) if form == "latex" else as_csv(rows, columns)


def variant_rows(briefs: Briefs) -> list[Row]:
    """Runs whose configs differ in nothing but the seed, together; only those that were tested count."""
    groups: dict[tuple[str, str], list[Brief]] = {}
    for brief in briefs:
        if brief.test is not None:
            groups.setdefault((brief.variant, brief.settings), []).append(brief)
    return [_variant_row(variant, settings, members) for (variant, settings), members in groups.items()]


def _variant_row(variant: str, settings: str, members: Briefs) -> Row:
    tests = [brief.test for brief in members if brief.test is not None]
    seconds = [brief.took for brief in members if brief.took is not None]
    mean, deviation = mean_and_deviation(tests) if tests else (None, None)
    low, high = interval(tests) if len(tests) >= FEWEST else (None, None)
    return {
        "run": variant, "settings": settings, "runs": len(members),
        "solved": sum(brief.result == "solved" for brief in members),
        "test_episodes": min((brief.episodes for brief in members), default=0), "mean": mean, "std": deviation,
        "iqm": iqm(tests) if tests else None, "low": low, "high": high,
        "steps": median(brief.tail.steps for brief in members) if members else None,
        "took": median(seconds) if seconds else None,
    }  # fmt: skip


def as_csv(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """RFC 4180; numbers in full. All text is quoted: a spreadsheet that splits at ';' makes no cell of its end."""
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(columns)
    for row in rows:
        writer.writerow(["" if row[name] is None else _harmless(row[name]) for name in columns])
    return output.getvalue()


def _harmless(value: float | str | None) -> float | str | None:
    """A text as one line, behind a quote where a spreadsheet would compute it, wide signs like narrow ones."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if unicodedata.normalize("NFKC", text).strip()[:1] in FORMULA else text


def latex(rows: Sequence[Row], columns: Sequence[str], by: str) -> str:
    """A tabular for \\usepackage{booktabs}; of variants mean and deviation in one cell, and the interval in another."""
    names = [name for name in columns if by == "run" or name not in JOINED]
    sides = "".join("l" if name in LEFT_ALIGNED else "r" for name in names)
    heads = " & ".join(HEADS.get(name, escaped(name)) for name in names)
    body = [" & ".join(_latex_cell(name, row, by) for name in names) + r" \\" for row in rows]
    return "\n".join([
        "% \\usepackage{booktabs}", rf"\begin{{tabular}}{{{sides}}}", r"\toprule", rf"{heads} \\", r"\midrule", *body,
        r"\bottomrule", r"\end{tabular}", "",
    ])  # fmt: skip


def _latex_cell(name: str, row: Row, by: str) -> str:
    value = row[name]
    if by == "variant" and name == "mean":
        return rf"${row['mean']:.1f} \pm {row['std']:.1f}$"
    if by == "variant" and name == "solved" and value:
        return f"{value}{few([int(row['test_episodes'] or 0)])}"
    if by == "variant" and name == "low":
        return "--" if value is None else rf"$[{row['low']:.1f}, {row['high']:.1f}]$"
    if isinstance(value, float):
        if not math.isfinite(value):
            return "--"
        if name in ("iqm", "test", "best", "score", "last"):
            return f"${value:.1f}$"
        if name == "took":
            return duration(value)
    return escaped(cell(name, value)) or "--"


def escaped(text: str) -> str:
    """Special characters of LaTeX as themselves; what is not ASCII as a question mark, what cannot be printed spelled
    out."""
    plain = printable(text).encode("ascii", "replace").decode()
    return "".join(LATEX_ESCAPES.get(character, character) for character in plain)
