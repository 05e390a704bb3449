"""List the sinks of a training and the watchers of a group of runs, in the order in which they are called.

A new sink is one more row here.
"""

from collections.abc import Sequence

from stride.report.console import Console, in_notebook
from stride.report.group_console import GroupConsole
from stride.report.group_page import GroupPage
from stride.report.json_events import JsonEvents
from stride.report.log_lines import LogLines
from stride.report.metrics_sinks import MetricsCsv, MetricsMmap
from stride.report.notebook import Notebook
from stride.report.page import ReportPage
from stride.report.trackers.registry import async_trackers
from stride.runstore.run_dir import RunDir
from stride.runstore.seed_group import Watcher
from stride.trainer_callbacks.sink import Sink
from stride.utils.streams import Events


def sinks_of(
    run: RunDir,
    env_steps: int = 0,
    exported: int | None = None,
    quiet: bool = False,
    events: Events | None = None,
    logger: Sequence[str] = (),
) -> list[Sink]:
    """Make the sinks of a training.

    `env_steps`: env steps at which a resumed run continues; `exported`: env steps of the last row that belongs to its
    checkpoint. `events`: where --json writes; they replace the console. `logger`: the config's list of trackers.
    """
    display: Sink
    if events is not None:
        display = JsonEvents(events, run, env_steps)
    elif in_notebook() and not quiet:
        display = Notebook(run, env_steps)
    else:
        display = Console(quiet, env_steps)
    return [
        MetricsCsv(run.metrics_csv, exported),
        MetricsMmap(run, env_steps),
        LogLines(run),
        ReportPage(run),
        *async_trackers(run, logger, env_steps),
        display,  # last: when it prints the end, all files are written
    ]


def group_watchers(quiet: bool = False) -> list[Watcher]:
    """Make the watchers of a group: first the page, then the console, which prints the page's path."""
    return [GroupPage(), GroupConsole(quiet)]
