"""How a tracker package is informed about a run: plain data (JSON) that each of them can take."""

from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any

Details = Mapping[str, Any]  # text, numbers, lists and mappings of them
BEGIN, ROW, VIDEO, ALERT, END = "begin", "row", "video", "alert", "end"
# `call` is one of these, a method of Tracker; the rest are its arguments:
# {"call": "row", "step": 500, "values": {"train/loss/policy": 0.1}}
Message = Mapping[str, Any]
MOST_MESSAGES = 2000  # that wait; a run has about 200 rows


class TrackerQueue(SimpleQueue[Message]):
    """A queue whose sender never waits: rows that find it full are dropped and counted, all else always fits."""

    def __init__(self, most: int = MOST_MESSAGES) -> None:
        self.dropped_rows = 0
        self._most = most

    def send(self, message: Message) -> None:
        if message["call"] == ROW and self.qsize() >= self._most:
            self.dropped_rows += 1
        else:
            self.put(message)


class Tracker:
    """Called in this order: begin, then row, video and alert in any number, then end.

    It may take its time: it is called by a thread of its own, or in a process of its own.
    """

    title = ""
    location = ""
    """Where its numbers can be seen, and how; known at some time after begin."""
    remark = ""
    """What a person should know: what could not be done, and what was done instead."""

    def receive(self, message: Message) -> None:
        """Call the method that the message names."""
        arguments = dict(message)
        getattr(self, arguments.pop("call"))(**arguments)

    def begin(self, details: Details) -> None:
        """The run, as async_tracker.run_details describes it."""

    def row(self, step: int, values: Mapping[str, float]) -> None:
        """Metrics by the names of config/metrics.yaml, at this env step; rows of a resumed run may step back."""

    def video(self, step: int, path: str) -> None:
        """A complete video was written."""

    def alert(self, step: int, title: str, text: str) -> None:
        """An alert began."""

    def end(self, details: Details | None) -> None:
        """The last call; None: the run failed, or its process is gone. Everything received must now be safe."""
