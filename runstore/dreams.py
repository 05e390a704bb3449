"""Read and write dreams.json: how wrong a world model's predictions ("dreams") are at the end of a run.

Dreamer and PlaNet runs have this file; the report and the inspector show it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stride.runstore import run_files
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import mapping
from stride.utils.user_error import UserError

PREFIX = "test/dream/"
STEPS = (1, 5, 15)  # steps of prediction after which the error is measured
MAX_OBSERVATIONS = 1000  # number of observation components in the file


class Dreams(NamedTuple):
    """Errors [observation components, steps], in standard deviations of each component; NaN if there is none."""

    steps: tuple[int, ...]
    names: tuple[str, ...]
    dreamt: Sequence[Sequence[float]]
    unchanged: Sequence[Sequence[float]]
    """errors of predicting that nothing changes from the dream's start on"""
    starts: tuple[int, ...]
    """the number of stored moments from which dreams of each length started, [steps]"""

    def means(self) -> tuple[list[float], list[float]]:
        """Return mean errors [steps] over the components that ever change: of dreams, and of predicting no change."""
        return mean_rows(self.dreamt, len(self.steps)), mean_rows(self.unchanged, len(self.steps))

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Return the column names and a row of texts per component, and one for all."""
        kinds = ("dreamt", "unchanged")
        column_names = ["observation", *(f"{kind} +{step}" for kind in kinds for step in self.steps)]
        rows_of_all = zip(self.names, self.dreamt, self.unchanged, strict=True)
        lines = [[name, *map(shown, (*dreamt, *unchanged))] for name, dreamt, unchanged in rows_of_all]
        dreamt, unchanged = self.means()
        return column_names, [
            *lines,
            *([["all", *map(shown, (*dreamt, *unchanged))]] if len(lines) > 1 else []),
        ]

    def metrics(self) -> dict[str, float]:
        """Return the mean errors by their names in metrics.yaml, without those that are NaN."""
        rows_of_all = zip(("error", "unchanged"), self.means(), strict=True)
        return {
            f"{PREFIX}{kind}/{step}": value
            for kind, values in rows_of_all
            for step, value in zip(self.steps, values, strict=True)
            if math.isfinite(value)
        }


def mean_rows(rows: Sequence[Sequence[float]], count: int) -> list[float]:
    """Return the mean of each column [count], of its finite values."""
    columns = [
        [row[column_number] for row in rows if math.isfinite(row[column_number])] for column_number in range(count)
    ]
    return [sum(column) / len(column) if column else math.nan for column in columns]


def shown(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "-"


def words(metrics: Mapping[str, float]) -> str:
    """Return one line about these metrics; "" if there are none."""
    steps = [step for step in STEPS if f"{PREFIX}error/{step}" in metrics]
    if not steps:
        return ""
    dreamt, unchanged = (
        " / ".join(f"{metrics.get(f'{PREFIX}{kind}/{step}', math.nan):.2f}" for step in steps)
        for kind in ("error", "unchanged")
    )
    steps_text = " / ".join(map(str, steps))
    return f"error {dreamt} standard deviations after {steps_text} steps; {unchanged} if nothing changed"


MEANING = (
    "Root mean square errors of the final world model's predictions without further observations, for the actions that "
    "were taken, in standard deviations of each observation over the replay memory. Predicting the mean would have the "
    "error 1. Unchanged: the error of predicting no change."
)


def write_dreams(run: RunDir, dreams: Dreams) -> None:
    rows_of_all = list(zip(dreams.names, dreams.dreamt, dreams.unchanged, strict=True))
    observations = [
        {"name": name, "dreamt": plain(dreamt), "unchanged": plain(unchanged)}
        for name, dreamt, unchanged in rows_of_all[:MAX_OBSERVATIONS]
    ]
    contents = {"unit": "deviations of each observation", "steps": dreams.steps, "starts": dreams.starts}
    run_files.write_json(run.dreams, {**contents, "observations": observations})


def plain(values: Sequence[float]) -> list[float | None]:
    """Return values with six digits; None for NaN and infinities, which JSON does not have."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]


def read_dreams(run: RunDir) -> Dreams | None:
    """Return the run's errors, None without a file; UserError, one line, if `write_dreams` did not make it."""
    if not run_files.exists(run.dreams):
        return None
    contents = mapping(run_files.read_json(run.dreams))
    steps, starts = whole_numbers(contents.get("steps")), whole_numbers(contents.get("starts"))
    rows = contents.get("observations")
    if not (0 < len(steps) == len(starts) and isinstance(rows, list) and len(rows) <= MAX_OBSERVATIONS):
        raise UserError(f"{run.dreams} does not have the errors of dreams")
    rows = [mapping(row) for row in rows]
    dreamt, unchanged = ([errors(row.get(kind), len(steps), run) for row in rows] for kind in ("dreamt", "unchanged"))
    names = tuple(str(row.get("name", ""))[:200] for row in rows)
    return Dreams(steps, names, dreamt, unchanged, starts)


def whole_numbers(values: object) -> tuple[int, ...]:
    """Return the values as a tuple if they are a short list of whole numbers, else ()."""
    numbers = values if isinstance(values, list) and len(values) <= 8 else []
    return tuple(numbers) if all(type(value) is int for value in numbers) else ()


def errors(values: object, count: int, run: RunDir) -> list[float]:
    if not isinstance(values, list) or len(values) != count:
        raise UserError(f"{run.dreams} does not have the errors of dreams")
    return [float(value) if type(value) in (int, float) else math.nan for value in values]
