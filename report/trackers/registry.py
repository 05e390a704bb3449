"""List the trackers that the config key `logger` may name, check their packages, and make their sinks."""

from collections.abc import Sequence
from importlib.util import find_spec

from stride.report.trackers.async_tracker import AsyncTracker
from stride.report.trackers.process_tracker import ProcessTracker
from stride.runstore.run_dir import RunDir
from stride.utils.user_error import UserError

CSV = "csv"  # metrics.csv, which every run has
# Titles by name: a tracker has the name of its package and of Stride's extra that installs it
TITLES = {"tensorboard": "TensorBoard", "wandb": "W&B", "trackio": "Trackio"}


def check_loggers(loggers: Sequence[str]) -> None:
    """Raise UserError if the package of a tracker is not installed; nothing is imported."""
    for logger_name in loggers:
        if logger_name in TITLES and not is_installed(logger_name):
            install = f"pip install 'stride-rl[{logger_name}]'"
            raise UserError(f"logger: {logger_name} needs the package {logger_name}: {install}")


def is_installed(package: str) -> bool:
    """Return whether a package is installed, without importing it. A mere folder of that name, as W&B makes one in the
    working directory, does not count."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


def async_trackers(run: RunDir, loggers: Sequence[str], env_steps: int = 0) -> list[AsyncTracker]:
    """Make a sink for each tracker, once; `env_steps`: env steps at which a resumed run continues."""
    names = dict.fromkeys(logger_name for logger_name in loggers if logger_name != CSV)
    return [
        AsyncTracker(ProcessTracker(logger_name, TITLES[logger_name], run.logs), run, env_steps)
        for logger_name in names
    ]
