"""A queue that nobody who trains ever waits for: where it is full rows are lost, counted, and nothing else is."""

from collections import deque
from threading import Condition

from stride.report.trackers.tracker import ROW, News

MOST = 2000  # pieces of news that wait; a run has about 200 rows


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
