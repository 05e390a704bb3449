"""Every place the numbers of a run go to: a row each, told in this order."""

from report.console import Console
from report.log_lines import LogLines
from report.metrics_csv import MetricsCsv
from report.page import ReportPage
from report.sink import Sink
from utils.run_dir import RunDir


def sinks_of(run: RunDir, env_steps: int = 0, exported: int | None = None, quiet: bool = False) -> list[Sink]:
    """`env_steps`: where a resumed run goes on; `exported`: of the last row that belongs to its checkpoint."""
    return [
        MetricsCsv(run.metrics_csv, exported),
        LogLines(run),
        ReportPage(run),
        Console(quiet, env_steps),  # the last: who is told the end finds all of it on the disk
    ]
