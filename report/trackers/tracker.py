"""What a tracker of others is told of a run, in words that any of them can take: plain data, nothing of ours."""

from collections.abc import Mapping
from typing import Any

Facts = Mapping[str, Any]  # text, numbers, lists and mappings of them: JSON
BEGIN, ROW, VIDEO, ALERT, END = "begin", "row", "video", "alert", "end"
News = Mapping[str, Any]  # `call`: one of these, a method of Tracker; the rest: its arguments


class Tracker:
    """Told in this order: begin, then row, video and alert in any number, then end.

    Called where waiting harms nobody: in a thread of the courier's, or in a process of its own.
    """

    title = ""
    where = ""
    """Where its numbers can be seen, and how; known at some time after begin."""
    remark = ""
    """What a person should know: what could not be done, and what was done instead."""

    def tell(self, news: News) -> None:
        """Call the method that the news names."""
        getattr(self, news["call"])(**{name: value for name, value in news.items() if name != "call"})

    def begin(self, facts: Facts) -> None:
        """The run; courier.facts_of says what."""

    def row(self, step: int, values: Mapping[str, float]) -> None:
        """Metrics by the names of config/metrics.yaml, at this env step; rows of a resumed run may step back."""

    def video(self, step: int, path: str) -> None:
        """A video was written, whole."""

    def alert(self, step: int, title: str, text: str) -> None:
        """An alert began."""

    def end(self, facts: Facts | None) -> None:
        """Nothing comes after this; None: it failed, or whoever trained is gone. What was told must now be safe."""
