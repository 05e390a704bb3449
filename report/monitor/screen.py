"""A complete terminal, drawn over itself: only lines that changed are written, and the old content comes back."""

import os
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from contextlib import suppress
from select import select
from types import FrameType
from typing import Any, Self

from rich.text import Text

from stride.report.terminal import Page, encoded
from stride.utils.interrupted import ENDING

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # the other screen, without a cursor; and back
NARROWEST, LOWEST = 20, 4
ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
NAMED_KEYS = {"\r": "enter", "\n": "enter", "\x1b": "escape", "\x03": "q", "\x04": "q"}


class Screen:
    """`with Screen() as screen`: draw, and wait for keys; a change of size is a key, too."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._output = sys.stdout.fileno()
        self._unicode = "utf" in (sys.stdout.encoding or "").casefold()
        self._colours = not os.environ.get("NO_COLOR")
        self._drawn: list[str] = []
        self._drawn_page = Page(0, 0)
        self._pending = ""  # characters that were typed and not taken yet
        self._old_mode: list[Any] = []
        self._handlers: dict[int, Any] = {}
        self._is_ended = False
        self._is_continued = False

    def __enter__(self) -> Self:
        self._old_mode = termios.tcgetattr(self._input)
        for number in (*ENDING, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT):
            self._handlers[number] = signal.signal(number, self._on_signal)
        # a signal ends the wait for a key
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)
        self._old_wake = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._begin()
        return self

    def _begin(self) -> None:
        tty.setcbreak(self._input, termios.TCSANOW)
        self._drawn = []
        self._is_continued = False
        self._write(ENTER)

    def _leave(self) -> None:
        self._write(LEAVE)
        with suppress(termios.error):  # it was closed
            termios.tcsetattr(self._input, termios.TCSANOW, self._old_mode)

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(self._old_wake)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._wake_read)
        os.close(self._wake_write)
        self._leave()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number in ENDING:
            self._is_ended = True
        elif number == signal.SIGTSTP:  # Ctrl-Z: the shell gets its terminal as it was
            self._leave()
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, self._on_signal)
        elif number == signal.SIGCONT:
            self._is_continued = True

    @property
    def page(self) -> Page:
        """The space that may be drawn on."""
        size = os.terminal_size((81, 24))
        with suppress(OSError):  # it was closed
            size = os.get_terminal_size(self._output)
        return Page(max(NARROWEST, size.columns) - 1, max(LOWEST, size.lines), not self._unicode)

    def draw(self, lines: Sequence[Text]) -> None:
        """Draw lines that were made for its page; where the size changed meanwhile they are cut."""
        if self._is_continued:
            self._begin()
        page = self.page
        for line in lines:
            line.truncate(page.width)
        encoded_lines = encoded(lines[: page.height], self._unicode, self._colours)
        encoded_lines += [""] * (page.height - len(encoded_lines))
        output = ""
        if page != self._drawn_page or not self._drawn:
            output = "\x1b[2J"
            self._drawn = [""] * page.height
        for index, encoded_line in enumerate(encoded_lines):
            if encoded_line != self._drawn[index]:
                output += f"\x1b[{index + 1}H{encoded_line}\x1b[K"
        if output:
            self._write(output)
        self._drawn = encoded_lines
        self._drawn_page = page

    def key(self, seconds: float) -> str:
        """The next key: a letter, left, right, up, down, enter, escape; "" where none came in time or the size changed.

        q also for Ctrl-C, and where the terminal is closed or a signal ends the program.
        """
        if not self._pending:
            ready, _, _ = select([self._input, self._wake_read], [], [], max(0.0, seconds))
            if self._wake_read in ready:
                os.read(self._wake_read, 512)
            if self._is_ended:
                return "q"
            if self._input not in ready:
                return ""
            self._pending = self._read()
            if not self._pending:  # the terminal is closed
                return "q"
        return self._next_key()

    def _read(self) -> str:
        try:
            return os.read(self._input, 1024).decode(errors="replace")
        except OSError:
            return ""

    def _next_key(self) -> str:
        """Take one key off what was typed; an arrow is three characters, which ssh may deliver in pieces."""
        while self._pending in ("\x1b", "\x1b[", "\x1bO") and select([self._input], [], [], 0.05)[0]:
            more = self._read()
            self._pending += more
            if not more:
                break
        if self._pending[:2] in ("\x1b[", "\x1bO"):
            arrow = ARROWS.get(self._pending[2:3], "")
            self._pending = self._pending[3:]
            return arrow
        character = self._pending[0]
        self._pending = self._pending[1:]
        return NAMED_KEYS.get(character, character)

    def _write(self, encoded_line: str) -> None:
        sys.stdout.write(encoded_line)
        sys.stdout.flush()
