"""What a sweep of W&B chose for this run, as overrides: its agent writes the values into a file before it starts us.

They pass every check that typed ones pass. Nothing is imported and nobody is asked: the file is all there is to it.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from stride.config.overrides import in_words, value_of
from stride.config.yaml_file import read_yaml
from stride.utils.user_error import UserError

SWEEP, VALUES = "WANDB_SWEEP_ID", "WANDB_SWEEP_PARAM_PATH"
HEADER = "wandb_version"
TRACKER: Final = "wandb"


class Sweep(NamedTuple):
    """The one that this process is a run of."""

    name: str  # "" of an agent that does not say
    values: dict[str, Any]

    @property
    def line(self) -> str:
        """For the log of the run."""
        chosen = ", ".join(in_words(key, value) for key, value in self.values.items())
        return f"sweep {self.name or 'of W&B'}: {chosen}"

    def overrides(self, typed: Sequence[str]) -> tuple[str, ...]:
        """`typed` with the sweep's values; a command with ${args} repeats them, and anything else is refused."""
        kept = [text for text in typed if not self._repeats(text)]
        return (*kept, *(in_words(key, value) for key, value in self.values.items()))

    def _repeats(self, text: str) -> bool:
        bare = text.removeprefix("--")
        key, _, spelled = bare.partition("=")
        if key not in self.values:
            return False
        value = self.values[key]
        if spelled == str(value) or value_of(bare) == value:  # as Python spells it, as agents do, or as we do
            return True
        raise UserError(f"{text}: the sweep says {in_words(key, value)}; leave one of them out")


def find_sweep(wanted: bool) -> Sweep | None:
    """The sweep that an agent started this process for; `wanted`: --wandb_sweep says that there is one."""
    name, file = os.environ.get(SWEEP, ""), os.environ.get(VALUES, "")
    if file and (name or wanted):
        return Sweep(name, read_values(Path(file)))
    if wanted:
        raise UserError(
            f"--wandb_sweep: no sweep chose anything, {VALUES} is not set; `wandb agent SWEEP` starts us so"
        )
    return None


def read_values(path: Path) -> dict[str, Any]:
    """Config key -> value, of a file as W&B's agents write them."""
    found = read_yaml(path)
    if not isinstance(found, Mapping):
        raise UserError(f"{path} holds no values of a sweep")
    values: dict[str, Any] = {}
    for key, told in found.items():
        if key == HEADER:
            continue
        if not isinstance(key, str) or not isinstance(told, Mapping) or "value" not in told:
            raise UserError(f"{path}: {key} has no value; a sweep's file holds `key: {{value: ..}}`")
        values[key] = told["value"]
    return values


def unheeded_sweep() -> str:
    """A sweep that is named, and whose values nobody left here; "" where all is well."""
    name = os.environ.get(SWEEP, "")
    return (
        f"{SWEEP}={name} is ignored: no agent left its values ({VALUES})" if name and find_sweep(False) is None else ""
    )
