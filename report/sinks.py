"""Every place the numbers of a run go to, and all who watch a group of runs: a row each, told in this order."""

from collections.abc import Sequence

from stride.report.console import Console
from stride.report.group_console import GroupConsole
from stride.report.group_page import GroupPage
from stride.report.json_events import JsonEvents
from stride.report.log_lines import LogLines
from stride.report.metrics_csv import MetricsCsv
from stride.report.metrics_mmap import MetricsMmap
from stride.report.notebook import Notebook, in_notebook
from stride.report.page import ReportPage
from stride.report.trackers.registry import async_trackers
from stride.runstore.run_dir import RunDir
from stride.runstore.seed_group import Watcher
from stride.trainer_callbacks.sink import Sink
from stride.utils.events import Events


def sinks_of(
    run: RunDir,
    env_steps: int = 0,
    exported: int | None = None,
    quiet: bool = False,
    events: Events | None = None,
    logger: Sequence[str] = (),
) -> list[Sink]:
    """`env_steps`: where a resumed run goes on; `exported`: of the last row that belongs to its checkpoint; `events`
    are for programs, and take the console's place; `logger`: the config's."""
    eyes = Notebook(run, env_steps) if in_notebook() and not quiet else Console(quiet, env_steps)
    return [
        MetricsCsv(run.metrics_csv, exported),
        MetricsMmap(run, env_steps),
        LogLines(run),
        ReportPage(run),
        *async_trackers(run, logger, env_steps),
        # the last: who is told the end finds all of it on the disk
        eyes if events is None else JsonEvents(events, run, env_steps),
    ]


def group_watchers(quiet: bool = False) -> list[Watcher]:
    """Of a group; the console says where the page lies."""
    return [GroupPage(), GroupConsole(quiet)]
