"""Every tracker that `logger` may name: which package it wants, and who speaks to it."""

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import NamedTuple

from report.trackers.courier import Courier
from report.trackers.in_child import InChild
from report.trackers.tensorboard_events import TensorBoardEvents
from report.trackers.tracker import Tracker
from report.trackers.trackio_run import TrackioRun
from report.trackers.wandb_run import WandbRun
from utils.run_dir import RunDir
from utils.user_error import UserError

CSV = "csv"  # metrics.csv, which every run has


class Kind(NamedTuple):
    """A row of the table."""

    title: str
    package: str  # that it wants, "" for none; also the name of the extra that installs it
    made: Callable[[], Tracker]

    @property
    def cure(self) -> str:
        return f"pip install 'stride-rl[{self.package}]'"


KINDS = {
    "tensorboard": Kind("TensorBoard", "", TensorBoardEvents),
    "wandb": Kind("W&B", "wandb", WandbRun),
    "trackio": Kind("Trackio", "trackio", TrackioRun),
}


def check_loggers(loggers: Sequence[str]) -> None:
    """UserError where the package of one of them is missing; nothing is imported."""
    for name in loggers:
        package = KINDS[name].package if name in KINDS else ""
        if package and find_spec(package) is None:
            raise UserError(f"logger: {name} needs the package {package}: {KINDS[name].cure}")


def couriers(run: RunDir, loggers: Sequence[str], env_steps: int = 0) -> list[Courier]:
    """A sink for each of them, once; `env_steps`: where a resumed run goes on."""
    names = [name for name in dict.fromkeys(loggers) if name != CSV]
    return [Courier(_tracker(name, run), run, env_steps) for name in names]


def _tracker(name: str, run: RunDir) -> Tracker:
    """Packages of others are imported in another process; what is written by ourselves is written here."""
    kind = KINDS[name]
    return InChild(name, kind.title, run.logs) if kind.package else kind.made()


def in_this_process(name: str) -> Tracker:
    """For the child."""
    return KINDS[name].made()
