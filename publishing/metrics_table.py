"""Writes metrics.csv of a published run from its numbers again, so that it contains only numbers and known names."""

from stride.config.metrics import declared, ordered
from stride.runstore import run_files
from stride.runstore.metrics_table import MetricsTable, Row, format_number
from stride.runstore.run_dir import RunDir
from stride.utils.user_error import UserError

Rows = list[Row]


def read_metrics(run: RunDir) -> Rows:
    """Return the rows of a run's metrics, [] if it has none yet; UserError if a column is not a declared metric."""
    if not run_files.exists(run.metrics_csv):
        return []
    table = MetricsTable(run.metrics_csv)
    rows = table.rows()
    for column_number, name in enumerate(table.columns, 1):
        try:
            declared(name)
        except UserError as error:
            problem = f"column {column_number} of metrics.csv is not a declared metric; nothing was published"
            raise UserError(f"{run.id}: {problem}") from error
    return rows


def write_metrics(rows: Rows) -> bytes:
    """Return metrics.csv: columns in the order of metrics.yaml, but clocks first; the user's own metrics last."""
    names = [metric.name for metric in ordered(name for row in rows for name in row)]
    columns = sorted(names, key=lambda name: "/clock/" not in name)
    lines = [",".join(format_number(row[name]) if name in row else "" for name in columns) for row in rows]
    return "".join(f"{line}\n" for line in (",".join(columns), *lines)).encode()
