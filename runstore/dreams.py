"""dreams.json: how far a world model's dreams stray at the end of a run, as it is written, read and told."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stride.runstore import run_files
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import mapping
from stride.utils.user_error import UserError

PREFIX = "test/dream/"
STEPS = (1, 5, 15)  # after which errors are told
MAX_OBSERVATIONS = 1000  # observations of which the file tells


class Dreams(NamedTuple):
    """Errors [.., steps] in deviations of each observation, NaN where there is none."""

    steps: tuple[int, ...]
    names: tuple[str, ...]
    dreamt: Sequence[Sequence[float]]
    unchanged: Sequence[Sequence[float]]
    """had everything stayed as it was where the dream began"""
    starts: tuple[int, ...]
    """from how many remembered instants, [steps]"""

    def means(self) -> tuple[list[float], list[float]]:
        """Over the observations that ever change: of dreams, and had nothing changed."""
        return mean_rows(self.dreamt, len(self.steps)), mean_rows(self.unchanged, len(self.steps))

    def table(self) -> tuple[list[str], list[list[str]]]:
        """Its head, and a line of each observation."""
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
        """By their names in metrics.yaml; an error that there is not is left out."""
        rows_of_all = zip(("error", "unchanged"), self.means(), strict=True)
        return {
            f"{PREFIX}{kind}/{step}": value
            for kind, values in rows_of_all
            for step, value in zip(self.steps, values, strict=True)
            if math.isfinite(value)
        }


def mean_rows(rows: Sequence[Sequence[float]], count: int) -> list[float]:
    """The mean of each column over what is finite in it."""
    columns = [
        [row[column_number] for row in rows if math.isfinite(row[column_number])] for column_number in range(count)
    ]
    return [sum(column) / len(column) if column else math.nan for column in columns]


def shown(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else "-"


def words(metrics: Mapping[str, float]) -> str:
    """One line of the metrics, "" where there are none."""
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
        for name, dreamt, unchanged in list(zip(dreams.names, dreams.dreamt, dreams.unchanged, strict=True))[
            :MAX_OBSERVATIONS
        ]
    ]
    contents = {"unit": "deviations of each observation", "steps": dreams.steps, "starts": dreams.starts}
    run_files.write_json(run.dreams, {**contents, "observations": observations})


def plain(values: Sequence[float]) -> list[float | None]:
    """Six digits; what is no number, which JSON has no word for, as None."""
    return [float(f"{value:.6g}") if math.isfinite(value) else None for value in values]


def read_dreams(run: RunDir) -> Dreams | None:
    """None where there is no such file; UserError, one line, where it is another one than `write_dreams` makes."""
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
    """() for what is none."""
    some = values if isinstance(values, list) and len(values) <= 8 else []
    return tuple(some) if all(type(value) is int for value in some) else ()


def errors(values: object, count: int, run: RunDir) -> list[float]:
    if not isinstance(values, list) or len(values) != count:
        raise UserError(f"{run.dreams} does not have the errors of dreams")
    return [float(value) if type(value) in (int, float) else math.nan for value in values]
