"""Values that the command line does not list one by one: combinations (-m), seeds, and the values of a W&B sweep.

A W&B agent writes the values of a sweep into a file before it starts train.py. They pass the same checks as typed
values. Only that file is read: wandb is not imported, and the network not used.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

from stride.config.diff import override_text
from stride.config.raw import value_of
from stride.config.yaml_file import read_yaml
from stride.utils.user_error import UserError

MAX_RUNS = 1000  # that one command may start
SWEEP_VARIABLE, FILE_VARIABLE = "WANDB_SWEEP_ID", "WANDB_SWEEP_PARAM_PATH"
VERSION_KEY = "wandb_version"  # the only key in such a file that is not a config key
TRACKER: Final = "wandb"


def combinations(overrides: Sequence[str]) -> list[tuple[str, ...]]:
    """Return `a=1,2 b=3` as (a=1, b=3) and (a=2, b=3). The grammar is Hydra's: a list such as [64,64] is one value."""
    choices = [values_of(override) for override in overrides]
    if math.prod(map(len, choices)) > MAX_RUNS:
        raise UserError(f"-m: these values make more than {MAX_RUNS:,} combinations")
    return [*product(*choices)]


def values_of(override: str) -> list[str]:
    """Split an override into one per value: `a=1,2` gives a=1 and a=2."""
    from hydra.core.override_parser.overrides_parser import OverridesParser  # here: this import takes 0.2 s
    from hydra.core.override_parser.types import Glob
    from hydra.errors import HydraException

    stripped = override.removeprefix("--")
    key = stripped.partition("=")[0]
    try:
        parsed = OverridesParser.create().parse_override(stripped)
        if not parsed.is_sweep_override():
            return [override]
        if not parsed.is_discrete_sweep() or isinstance(parsed.value(), Glob):
            raise UserError(f"-m {override}: give several values, for example {key}=1e-3,3e-4 or {key}=range(1,5)")
        values = [f"{key}={value}" for value in parsed.sweep_string_iterator()]
    except HydraException as error:
        raise UserError(f"-m {override}: {str(error).splitlines()[0]}") from error
    if key == "seed":
        raise UserError(f"-m {override}: use --seed 1,2,3 for several seeds")
    if len(set(values)) < len(values):
        raise UserError(f"-m {override}: a value is given twice")
    return values


def parse_seeds(text: str) -> tuple[int, ...]:
    """Parse `3`, `1,2,3` or `1-5`; UserError if a seed is given twice."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,40})\s*(?:-\s*(\d{1,40})\s*)?", part)
        if not match:
            raise UserError(f"--seed {text}: seeds are whole numbers, 0 or more, for example 3, 1,2,3 or 1-5")
        first = int(match[1])
        last = int(match[2] or first)
        if last < first:
            raise UserError(f"--seed {text}: {first}-{last} counts down; write the smaller number first")
        if len(seeds) + last - first >= MAX_RUNS:
            raise UserError(f"--seed {text}: a group has at most {MAX_RUNS:,} seeds")
        seeds += range(first, last + 1)
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seed {text}: a seed is given twice")
    return tuple(seeds)


def parse_processes(text: str) -> int:
    """Return the number in --processes: 1 if it is not given, 0 for `auto`."""
    if text == "auto":
        return 0
    if text and not (text.isdecimal() and 1 <= int(text) <= 1024):
        raise UserError(f"--processes takes auto or a number of processes, such as 2 or 4, not {text!r}")
    return int(text or 1)


def parse_steps(text: str) -> int:
    """Parse the env steps of --pause-at: 20000, 20_000 or 2e4."""
    try:
        steps = float(text)
    except ValueError:
        steps = 0.0
    if not 1 <= steps < 2**63 or steps != int(steps):
        raise UserError(f"--pause-at {text}: give env steps as a whole number above 0, for example 20000 or 2e4")
    return int(steps)


class WandbSweep(NamedTuple):
    """The W&B sweep that this process is a run of, and its values by config key."""

    name: str  # "" if the agent does not tell it
    values: dict[str, Any]

    @property
    def line(self) -> str:
        """A line for the run's log: the sweep and its values."""
        return f"sweep {self.name or 'of W&B'}: {', '.join(self._overrides())}"

    def overrides(self, typed: Sequence[str]) -> tuple[str, ...]:
        """Return `typed` with the sweep's values. A command with ${args} repeats them; other values are refused."""
        return (*(text for text in typed if not self._repeats(text)), *self._overrides())

    def _overrides(self) -> list[str]:
        return [override_text(key, value) for key, value in self.values.items()]

    def _repeats(self, text: str) -> bool:
        override = text.removeprefix("--")
        key, _, spelled = override.partition("=")
        if key not in self.values:
            return False
        value = self.values[key]
        if spelled == str(value) or value_of(override) == value:  # agents write values as Python does, or as YAML
            return True
        raise UserError(f"{text}: the sweep sets {override_text(key, value)}; leave one of them out")


def find_sweep(required: bool) -> WandbSweep | None:
    """Return the sweep whose agent started this process, None if there is none. `required`: then raise UserError."""
    name, file = os.environ.get(SWEEP_VARIABLE, ""), os.environ.get(FILE_VARIABLE, "")
    if file and (name or required):
        return WandbSweep(name, read_values(Path(file)))
    if required:
        reason = f"there are no values of a sweep: {FILE_VARIABLE} is not set; start the agent with `wandb agent SWEEP`"
        raise UserError(f"--wandb_sweep: {reason}")
    return None


def read_values(path: Path) -> dict[str, Any]:
    """Return {config key: value} of an agent's file: {"gamma": {"value": 0.98}, "wandb_version": 1}."""
    values: dict[str, Any] = {}
    for key, entry in read_yaml(path).items():
        if key == VERSION_KEY:
            continue
        if not isinstance(entry, Mapping) or "value" not in entry:
            raise UserError(f"{path}: {key} has no value; write `key: {{value: ..}}`")
        values[key] = entry["value"]
    return values


def ignored_sweep() -> str:
    """Return a line about a sweep that is named but has no file of values; "" if there is none."""
    name = os.environ.get(SWEEP_VARIABLE, "")
    if not name or find_sweep(False) is not None:
        return ""
    return f"{SWEEP_VARIABLE}={name} is ignored: {FILE_VARIABLE} is not set, so there are no values"
