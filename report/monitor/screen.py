"""The whole of a terminal, drawn over itself: only lines that changed are written, and what was there comes back."""

import os
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from contextlib import suppress
from select import select
from types import FrameType, TracebackType
from typing import Any, Self

from rich.text import Text

from stride.report.terminal import Page, encoded
from stride.utils.interrupted import ENDING

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # the other screen, without a cursor; and back
NARROWEST, LOWEST = 20, 4
ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
NAMED = {"\r": "enter", "\n": "enter", "\x1b": "escape", "\x03": "q", "\x04": "q"}


class Screen:
    """`with Screen() as screen`: draw, and wait for keys; a change of size is a key, too."""

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._unicode = "utf" in (sys.stdout.encoding or "").casefold()
        self._colours = not os.environ.get("NO_COLOR")
        self._shown: list[str] = []
        self._drawn_at = Page(0, 0)
        self._pending = ""
        self._before: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._ended = self._begins = False

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._in)
        for number in (*ENDING, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT):
            self._handlers[number] = signal.signal(number, self._noted)
        # a signal wakes up who waits for a key
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)
        self._old_wake = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._begin()
        return self

    def _begin(self) -> None:
        tty.setcbreak(self._in, termios.TCSANOW)
        self._shown, self._begins = [], False
        self._write(ENTER)

    def _leave(self) -> None:
        self._write(LEAVE)
        with suppress(termios.error):  # it was closed
            termios.tcsetattr(self._in, termios.TCSANOW, self._before)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._old_wake)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._wake_read)
        os.close(self._wake_write)
        self._leave()

    def _noted(self, number: int, frame: FrameType | None) -> None:
        if number in ENDING:
            self._ended = True
        elif number == signal.SIGTSTP:  # Ctrl-Z: the shell gets its terminal as it was
            self._leave()
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, self._noted)
        elif number == signal.SIGCONT:
            self._begins = True

    @property
    def page(self) -> Page:
        """What may be drawn on."""
        try:
            size = os.get_terminal_size(self._out)
        except OSError:  # it was closed
            return Page(80, 24, not self._unicode)
        return Page(max(NARROWEST, size.columns) - 1, max(LOWEST, size.lines), not self._unicode)

    def draw(self, lines: Sequence[Text]) -> None:
        """Lines that were made for its page; of another size what is beyond is not shown."""
        if self._begins:
            self._begin()
        page = self.page
        for line in lines:
            line.truncate(page.width)
        wanted = encoded(lines[: page.height], self._unicode, self._colours)
        wanted += [""] * (page.height - len(wanted))
        begins = page != self._drawn_at or len(self._shown) != len(wanted)
        changed = [f"\x1b[{row}H{text}\x1b[K" for row, text in enumerate(wanted, 1)
                   if begins or text != self._shown[row - 1]]  # fmt: skip
        if changed:
            self._write(("\x1b[2J" if begins else "") + "".join(changed))
        self._shown, self._drawn_at = wanted, page

    def key(self, seconds: float) -> str:
        """The next key: a letter, left, right, up, down, enter, escape; "" where none came in time or the size changed.

        q also for Ctrl-C, and where the terminal or a signal says that this is the end.
        """
        if not self._pending:
            ready = select([self._in, self._wake_read], [], [], max(0.0, seconds))[0]
            if self._wake_read in ready:
                os.read(self._wake_read, 512)
            if self._ended:
                return "q"
            if self._in not in ready:
                return ""
            self._pending = self._read()
            if not self._pending:  # nobody is there any more
                return "q"
        return self._next()

    def _read(self) -> str:
        try:
            return os.read(self._in, 1024).decode(errors="replace")
        except OSError:
            return ""

    def _next(self) -> str:
        """Take one key off what was typed; an arrow is three characters, which ssh may deliver in pieces."""
        while self._pending in ("\x1b", "\x1b[", "\x1bO") and select([self._in], [], [], 0.05)[0]:
            more = self._read()
            self._pending += more
            if not more:
                break
        if self._pending[:2] in ("\x1b[", "\x1bO"):
            arrow, self._pending = ARROWS.get(self._pending[2:3], ""), self._pending[3:]
            return arrow
        first, self._pending = self._pending[0], self._pending[1:]
        return NAMED.get(first, first)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
