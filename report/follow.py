"""How far a run is that another process trains, and how well it does, by its metrics.csv."""

from pathlib import Path

from stride.runstore.history import RATE, STEPS, TRAIN, TRAIN_BEST, VAL, VAL_BEST, History
from stride.runstore.metrics_table import MetricsTable, Row

SHOWN = (STEPS, RATE, TRAIN, VAL, TRAIN_BEST, VAL_BEST)


class Follower(MetricsTable):
    """A look costs what was appended since the last; of a long file the first one reads the end."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, SHOWN)

    look = MetricsTable.refresh

    def begin(self) -> None:
        self.history = History(())

    def take(self, row: Row) -> None:
        self.history.add(row)
