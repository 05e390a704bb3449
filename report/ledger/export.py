"""Implement `stride runs export`: a table of runs as CSV, JSON or LaTeX, with a line per run or per variant.

A variant joins the runs whose configs differ in the seed only.
"""

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
from stride.utils.statistics import FEWEST, interval, iqm, mean_and_deviation
from stride.utils.typography import duration
from stride.utils.user_error import UserError, printable

COLUMNS = ("id", "run", "seed", "status", "result", "test", "test_episodes", "best", "steps", "took",
           "changes")  # fmt: skip
LATEX_ESCAPES = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
                 "<": r"\textless{}", ">": r"\textgreater{}", **{sign: f"\\{sign}" for sign in "&%$#_{}"}}  # fmt: skip
HEADS = {"run": "variant", "mean": "return", "iqm": "IQM", "low": r"95\,\% interval", "test": "test", "took": "time"}
# Columns of variants without a column of their own in LaTeX: another one contains them ("mean": mean and std), or none
HIDDEN_IN_LATEX = ("settings", "test_episodes", "std", "high")
FORMULA_SIGNS = ("=", "+", "-", "@")  # a spreadsheet takes a cell that begins with one of these for a formula
Row = dict[str, float | str | None]
Briefs = Sequence[Brief]


def exported(briefs: Briefs, columns: Sequence[str], fields: Mapping[str, Look], form: str, by: str) -> str:
    """Return the text of the table. `form`: csv, json or latex. `by`: "run" or "variant"."""
    if by == "variant":
        if columns:
            raise UserError("--columns needs --by run; --by variant has fixed columns")
        table_rows = variant_rows(briefs)
        columns = list(table_rows[0]) if table_rows else list(_variant_row("", "", []))
    elif form == "json" and not columns:
        return json.dumps([data(run_brief, FIELDS) for run_brief in briefs], indent=1) + "\n"
    else:
        special = SHOWN if form == "latex" else {}  # SHOWN adds to a verdict how few episodes its test had
        columns = columns or [
            column_name for column_name in COLUMNS if form != "latex" or column_name != "test_episodes"
        ]
        looks = {column_name: special.get(column_name, fields[column_name]) for column_name in columns}
        table_rows = [{column_name: look(run_brief) for column_name, look in looks.items()} for run_brief in briefs]
    if form == "json":
        return json.dumps(table_rows, indent=1) + "\n"
    return latex(table_rows, columns, by) if form == "latex" else as_csv(table_rows, columns)


def variant_rows(briefs: Briefs) -> list[Row]:
    """Return a row for each set of runs whose configs differ in the seed only; runs without a test do not count."""
    groups: dict[tuple[str, str], list[Brief]] = {}
    for run_brief in briefs:
        if run_brief.test is not None:
            groups.setdefault((run_brief.variant, run_brief.settings), []).append(run_brief)
    return [_variant_row(variant, settings, members) for (variant, settings), members in groups.items()]


def _variant_row(variant: str, settings: str, members: Briefs) -> Row:
    tests = [run_brief.test for run_brief in members if run_brief.test is not None]
    seconds = [run_brief.took for run_brief in members if run_brief.took is not None]
    mean, deviation = mean_and_deviation(tests) if tests else (None, None)
    low, high = interval(tests) if len(tests) >= FEWEST else (None, None)
    changes = members[0].changes if members else ""
    return {
        "run": f"{variant} {changes}".strip(), "settings": settings, "runs": len(members),
        "solved": sum(run_brief.result == "solved" for run_brief in members),
        "test_episodes": min((run_brief.episodes for run_brief in members), default=0), "mean": mean,
        "std": deviation if len(tests) > 1 else None,
        "iqm": iqm(tests) if tests else None, "low": low, "high": high,
        "steps": median(run_brief.tail.steps for run_brief in members) if members else None,
        "took": median(seconds) if seconds else None,
    }  # fmt: skip


def as_csv(rows: Sequence[Row], columns: Sequence[str]) -> str:
    """Return CSV (RFC 4180) with numbers at full precision.

    All texts are quoted, so that a spreadsheet that splits at ';' does not split them.
    """
    output = io.StringIO()
    writer = csv.writer(output, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(columns)
    for table_row in rows:
        writer.writerow([_harmless(table_row[column_name]) for column_name in columns])
    return output.getvalue()


def _harmless(value: float | str | None) -> float | str | None:
    """Return a text in one line, with a leading ' if a spreadsheet would take it for a formula."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    # NFKC turns wide signs, which spreadsheets accept, too, into ASCII
    return f"'{text}" if unicodedata.normalize("NFKC", text).strip()[:1] in FORMULA_SIGNS else text


def latex(rows: Sequence[Row], columns: Sequence[str], by: str) -> str:
    """Return a tabular for \\usepackage{booktabs}; for variants, mean ± deviation and the interval take a cell each."""
    column_names = [column_name for column_name in columns if by == "run" or column_name not in HIDDEN_IN_LATEX]
    sides = "".join("l" if column_name in LEFT_ALIGNED else "r" for column_name in column_names)
    heads = " & ".join(HEADS.get(column_name, escaped(column_name)) for column_name in column_names)
    body = [
        " & ".join(_latex_cell(column_name, table_row, by) for column_name in column_names) + r" \\"
        for table_row in rows
    ]
    return "\n".join([
        "% \\usepackage{booktabs}", rf"\begin{{tabular}}{{{sides}}}", r"\toprule", rf"{heads} \\", r"\midrule", *body,
        r"\bottomrule", r"\end{tabular}", "",
    ])  # fmt: skip


def _latex_cell(column_name: str, table_row: Row, by: str) -> str:
    value = table_row[column_name]
    if by == "variant" and column_name == "mean":
        deviation = "" if table_row["std"] is None else rf" \pm {table_row['std']:.1f}"
        return f"${table_row['mean']:.1f}{deviation}$"
    if by == "variant" and column_name == "solved" and value:
        return f"{value}{few([int(table_row['test_episodes'] or 0)])}"
    if by == "variant" and column_name == "low":
        return "--" if value is None else rf"$[{table_row['low']:.1f}, {table_row['high']:.1f}]$"
    if isinstance(value, float):
        if not math.isfinite(value):
            return "--"
        if column_name in ("iqm", "test", "best", "score", "last"):
            return f"${value:.1f}$"
        if column_name == "took":
            return duration(value)
    return escaped(cell(column_name, value)) or "--"


def escaped(text: str) -> str:
    """Escape LaTeX's special characters; characters beyond ASCII become `?`, unprintable ones are spelled out."""
    plain = printable(text).encode("ascii", "replace").decode()
    return "".join(LATEX_ESCAPES.get(character, character) for character in plain)
