"""The trackers that `logger` may name, and the package that each of them needs."""

from collections.abc import Sequence
from importlib.util import find_spec

from stride.report.trackers.async_tracker import AsyncTracker
from stride.report.trackers.process_tracker import ProcessTracker
from stride.runstore.run_dir import RunDir
from stride.utils.user_error import UserError

CSV = "csv"  # metrics.csv, which every run has
# by the name of its package, which is also the name of the extra that installs it, and is imported in a process apart
TITLES = {"tensorboard": "TensorBoard", "wandb": "W&B", "trackio": "Trackio"}


def check_loggers(loggers: Sequence[str]) -> None:
    """UserError where the package of one of them is missing; nothing is imported."""
    for logger_name in loggers:
        if logger_name in TITLES and not is_installed(logger_name):
            install = f"pip install 'stride-rl[{logger_name}]'"
            raise UserError(f"logger: {logger_name} needs the package {logger_name}: {install}")


def is_installed(package: str) -> bool:
    """Nothing is imported; a folder of that name, as W&B makes one wherever it is called, is no package."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


def async_trackers(run: RunDir, loggers: Sequence[str], env_steps: int = 0) -> list[AsyncTracker]:
    """A sink for each of them, once; `env_steps`: where a resumed run goes on."""
    names = dict.fromkeys(logger_name for logger_name in loggers if logger_name != CSV)
    return [
        AsyncTracker(ProcessTracker(logger_name, TITLES[logger_name], run.logs), run, env_steps)
        for logger_name in names
    ]
