"""A queue that nobody who trains ever waits for: where it is full rows are lost, counted, and nothing else is."""

from collections import deque
from collections.abc import Callable, Mapping
from threading import Condition
from typing import Any

from report.trackers.tracker import Tracker

MOST = 2000  # pieces of news that wait; a run has about 200 rows
BEGIN, ROW, VIDEO, ALERT, END = "begin", "row", "video", "alert", "end"
News = Mapping[str, Any]  # `call`: one of these, a method of Tracker; the rest: its arguments


class Mailbox:
    """Between one who must not wait and one who may. Begin, videos, alerts and the end are few and always fit."""

    def __init__(self, most: int = MOST) -> None:
        self.lost = 0  # rows
        self._most = most
        self._news: deque[News] = deque()
        self._changed = Condition()

    def put(self, news: News) -> None:
        with self._changed:
            if news["call"] == ROW and len(self._news) >= self._most:
                self.lost += 1
                return
            self._news.append(news)
            self._changed.notify()

    def take(self) -> News:
        """The oldest; waits until there is one."""
        with self._changed:
            while not self._news:
                self._changed.wait()
            return self._news.popleft()


def bring(news: News, tracker: Tracker) -> bool:
    """Call what the news names; whether that was the end."""
    calls: dict[str, Callable[..., None]]
    calls = {BEGIN: tracker.begin, ROW: tracker.row, VIDEO: tracker.video, ALERT: tracker.alert, END: tracker.end}
    calls[news["call"]](**{name: value for name, value in news.items() if name != "call"})
    return news["call"] == END
