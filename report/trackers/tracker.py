"""The base class of trackers and the messages they receive: plain data, which can be sent to a process as JSON."""

from collections.abc import Mapping
from queue import SimpleQueue
from typing import Any

Details = Mapping[str, Any]  # texts, numbers, lists and mappings of them
BEGIN, ROW, VIDEO, ALERT, END = "begin", "row", "video", "alert", "end"
# `call` is one of these, a method of Tracker; the rest are its arguments:
# {"call": "row", "step": 500, "values": {"train/loss/policy": 0.1}}
Message = Mapping[str, Any]
MAX_MESSAGES = 2000  # messages in a queue before rows are dropped; a run has about 200 rows


class TrackerQueue(SimpleQueue[Message]):
    """A queue whose sender never waits: if it is full, rows are dropped and counted; other messages always fit."""

    def __init__(self, most: int = MAX_MESSAGES) -> None:
        self.dropped_rows = 0
        self._most = most

    def send(self, message: Message) -> None:
        if message["call"] == ROW and self.qsize() >= self._most:
            self.dropped_rows += 1
        else:
            self.put(message)


class Tracker:
    """Receives `begin` once, then any number of `row`, `video` and `alert`, then `end` once.

    Its methods may be slow, because they run in their own thread or process.
    """

    title = ""
    location = ""
    """Where its numbers can be seen, an address or a command; set during or after `begin`."""
    remark = ""
    """What the person should know: what failed, and what was done instead."""

    def receive(self, message: Message) -> None:
        """Call the method that the message names."""
        arguments = dict(message)
        getattr(self, arguments.pop("call"))(**arguments)

    def begin(self, details: Details) -> None:
        """Receive the facts of the run, made by async_tracker.run_details."""

    def row(self, step: int, values: Mapping[str, float]) -> None:
        """Receive metrics, {"train/loss/policy": 0.1, ..}, at this env step; after a resume it may step back."""

    def video(self, step: int, path: str) -> None:
        """Receive the path of a complete video."""

    def alert(self, step: int, title: str, text: str) -> None:
        """Receive an alert that began."""

    def end(self, details: Details | None) -> None:
        """Store or send everything that was received: this is the last call. None: the run failed or was killed."""
