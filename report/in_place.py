"""Lines of a terminal that are drawn over themselves; on an empty screen where it has changed its size meanwhile."""

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

HIDE, SHOW, ERASE, CLEAR = "\x1b[?25l", "\x1b[?25h", "\x1b[J", "\x1b[H\x1b[2J"


class InPlace:
    """`draw` again and again, then `erase`; the cursor is hidden in between."""

    def __init__(self, terminal: Console) -> None:
        self._terminal = terminal
        self._size = terminal.size
        self._rows = 0  # on the screen

    def draw(self, lines: Sequence[Text]) -> None:
        """Each line shorter than the terminal is wide, all of them fewer than it has rows."""
        with self._terminal.capture() as captured:
            for line in lines:
                self._terminal.print(line, no_wrap=True, overflow="crop", crop=True, highlight=False)
        self._write(HIDE + self._back() + captured.get())
        self._rows = len(lines)

    def erase(self) -> None:
        """As if nothing had been drawn."""
        self._write(self._back() + SHOW)
        self._rows = 0

    def _back(self) -> str:
        """To where the first line begins, and nothing below. A terminal that changes its width folds what is there, and
        nobody knows where it lies then."""
        before, self._size = self._size, self._terminal.size
        if self._rows and before != self._size:
            return CLEAR
        return "\r" + (f"\x1b[{self._rows}A" if self._rows else "") + ERASE

    def _write(self, text: str) -> None:
        self._terminal.file.write(text)
        self._terminal.file.flush()
