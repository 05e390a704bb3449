"""The alerts of a run that is watched: by the rules of metrics.yaml, from the rows as they come.

They are judged here as the training judges them, because a file of numbers does not hold advice; what that needs takes
a fifth of a second to load, so it is loaded when the first screen stands.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stride.report.monitor.watched import Look, Rows
from stride.runstore.history import STEPS, Alert
from stride.runstore.run_facts import LARGEST
from stride.utils.user_error import UserError

if TYPE_CHECKING:
    from stride.trainer_callbacks.watch import Watch


class Judge:
    """Of one run."""

    def __init__(self) -> None:
        self._watch: Watch | None = None
        self._refused = False

    def alarming(self, look: Look, rows: Rows) -> Sequence[Alert]:
        """The alerts that are open."""
        if rows.anew:
            self._watch, rows.anew = None, False
        if not look.config or self._refused:
            return []
        if self._watch is None and not self._begin(look):
            return []
        assert self._watch is not None
        while rows.unjudged:
            row = rows.unjudged.popleft()
            if 0 <= row.get(STEPS, 0.0) <= LARGEST:
                self._watch.add(row)
        return [alert for alert in self._watch.alerts if alert.open]

    def _begin(self, look: Look) -> bool:
        from stride.config.loader import from_plain  # what they import takes longer than the first screen may
        from stride.trainer_callbacks.watch import Watch

        try:
            self._watch = Watch(from_plain(look.config, look.id), look.goal)
        except UserError:  # written by another version: its numbers are shown without advice
            self._refused = True
        return self._watch is not None
