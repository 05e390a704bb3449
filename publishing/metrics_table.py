"""metrics.csv as others get it: written anew from numbers, under names that metrics.yaml declares, and nothing else."""

from stride.config.metrics import load_metrics
from stride.runstore import run_files
from stride.runstore.metrics_table import MetricsTable, Row, format_number
from stride.runstore.run_dir import RunDir
from stride.utils.user_error import UserError

Rows = list[Row]


def read_metrics(run: RunDir) -> Rows:
    """The rows of a run, [] where it has none yet; UserError for a file that is no table of metrics."""
    if not run_files.exists(run.metrics_csv):
        return []
    table = MetricsTable(run.metrics_csv)
    rows = table.rows()
    for column_number, name in enumerate(table.columns, 1):
        if name not in load_metrics():
            raise UserError(
                f"{run.id}: column {column_number} of metrics.csv is not a declared metric; nothing was published"
            )
    return rows


def write_metrics(rows: Rows) -> bytes:
    """Writes the numbers in the order of metrics.yaml, the clock first."""
    names = sorted(load_metrics(), key=lambda name: "/clock/" not in name)
    columns = [name for name in names if any(name in row for row in rows)]
    lines = [",".join(format_number(row[name]) if name in row else "" for name in columns) for row in rows]
    return "".join(f"{line}\n" for line in (",".join(columns), *lines)).encode()
