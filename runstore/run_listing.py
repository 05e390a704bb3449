"""Which runs there are, newest first; the disk is asked again only for what may have changed since."""

import os
import time
from collections.abc import Iterable
from pathlib import Path

from stride.runstore.runs_root import ID, STAMP, runs_root

SETTLED = 1_000_000_000  # ns: a folder that changed just now may change again at the same reading of the disk's clock
LOOKED_AT = 200  # folders that are no runs yet, looked into each time


class Listing:
    """The ids under the runs root: a folder's time tells whether names came or went."""

    def __init__(self) -> None:
        self._root, self._stamp = Path(), 0
        self._ids: dict[str, None] = {}
        self._others: list[str] = []

    def expect(self, root: Path, known: Iterable[str]) -> None:
        """Names that were runs when somebody last looked: of these that are there, nothing else is asked."""
        self._root, self._stamp, self._ids, self._others = root, 0, dict.fromkeys(known), []

    def ids(self) -> dict[str, None]:
        """All runs in the order in which they are shown."""
        root = runs_root()
        try:
            stamp = os.stat(root).st_mtime_ns
        except OSError:
            self._root, self._stamp, self._ids, self._others = root, 0, {}, []
            return {}
        if (root, stamp) != (self._root, self._stamp):
            known = self._ids if root == self._root else {}
            self._root, self._stamp = root, stamp if time.time_ns() - stamp > SETTLED else 0
            self._scan(known)
        grown = {name for name in self._others[:LOOKED_AT] if self._is_run(name)}
        if grown:
            self._others = [name for name in self._others if name not in grown]
            self._ids = _newest_first([*self._ids, *grown])
        return self._ids

    def _scan(self, known: dict[str, None]) -> None:
        with os.scandir(self._root) as entries:
            names = [
                each.name
                for each in entries
                if (each.name in known or ID.fullmatch(each.name)) and each.is_dir(follow_symlinks=False)
            ]
        new = [name for name in names if name not in known]
        self._others = [name for name in new if not self._is_run(name)]
        others = set(self._others)
        self._ids = _newest_first([name for name in names if name not in others])

    def _is_run(self, name: str) -> bool:
        """Whether anything in the folder is called as in a run's; what it is shows when it is read."""
        return any(os.path.lexists(f"{self._root}/{name}/{inside}") for inside in ("config.json", "checkpoints"))


def _newest_first(names: list[str]) -> dict[str, None]:
    """Ids begin with the time; folders named by hand come last."""
    names.sort(reverse=True)
    stamped = dict.fromkeys(name for name in names if STAMP.match(name))
    return stamped if len(stamped) == len(names) else stamped | dict.fromkeys(names)
