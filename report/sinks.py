"""The sinks of a training and the watchers of a group of runs, in the order in which they are called."""

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
    """`env_steps`: where a resumed run goes on; `exported`: of the last row that belongs to its checkpoint; `events`
    are for programs and replace the console; `logger`: the config's."""
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
        display,  # the last: at the end everything else is on the disk
    ]


def group_watchers(quiet: bool = False) -> list[Watcher]:
    """The page before the console, which prints where the page is."""
    return [GroupPage(), GroupConsole(quiet)]
