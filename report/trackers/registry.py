"""Every tracker that `logger` may name: which package it wants, and who speaks to it."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import NamedTuple

from stride.report.trackers.courier import Courier
from stride.report.trackers.in_child import InChild
from stride.runstore.run_dir import RunDir
from stride.utils.user_error import UserError

CSV = "csv"  # metrics.csv, which every run has


class Kind(NamedTuple):
    """A row of the table."""

    title: str
    package: str
    """That it wants, which is also the name of the extra that installs it; it is imported in a process of its own."""

    @property
    def cure(self) -> str:
        return f"pip install 'stride-rl[{self.package}]'"


KINDS = {
    "tensorboard": Kind("TensorBoard", "tensorboard"),
    "wandb": Kind("W&B", "wandb"),
    "trackio": Kind("Trackio", "trackio"),
}


def check_loggers(loggers: Sequence[str]) -> None:
    """UserError where the package of one of them is missing; nothing is imported."""
    for name in loggers:
        if name in KINDS and not is_installed(KINDS[name].package):
            raise UserError(f"logger: {name} needs the package {KINDS[name].package}: {KINDS[name].cure}")


def is_installed(package: str) -> bool:
    """Nothing is imported; a folder of that name, as W&B makes one wherever it is called, is no package."""
    found = find_spec(package)
    return found is not None and found.origin is not None


def couriers(run: RunDir, loggers: Sequence[str], env_steps: int = 0) -> list[Courier]:
    """A sink for each of them, once; `env_steps`: where a resumed run goes on."""
    names = [name for name in dict.fromkeys(loggers) if name != CSV]
    return [Courier(InChild(name, KINDS[name].title, run.logs), run, env_steps) for name in names]
