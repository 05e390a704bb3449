"""The monitor's full-screen terminal: it writes only lines that changed, and restores the old content at the end."""

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

ENTER, LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"  # switch to the second screen and hide the cursor; undo
MIN_COLUMNS, MIN_LINES = 20, 4  # a smaller terminal is treated as having this size
ARROWS = {"A": "up", "B": "down", "C": "right", "D": "left"}
NAMED_KEYS = {"\r": "enter", "\n": "enter", "\x1b": "escape", "\x03": "q", "\x04": "q"}


class Screen:
    """Use as `with Screen() as screen`: `draw` lines made for `page`, then wait for a `key`."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._output = sys.stdout.fileno()
        self._unicode = "utf" in (sys.stdout.encoding or "").casefold()
        self._colours = not os.environ.get("NO_COLOR")
        self._drawn: list[str] = []  # the lines on the terminal
        self._drawn_page = Page(0, 0)  # the page they were drawn for
        self._pending = ""  # typed characters that no call of `key` returned yet
        self._old_mode: list[Any] = []  # termios settings before
        self._handlers: dict[int, Any] = {}  # signal handlers before
        self._is_ended = False  # a signal asked the program to end
        self._is_continued = False  # the program was continued after Ctrl-Z

    def __enter__(self) -> Self:
        self._old_mode = termios.tcgetattr(self._input)
        for number in (*ENDING, signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT):
            self._handlers[number] = signal.signal(number, self._on_signal)
        # Python writes a byte into this pipe when a signal comes, so that a signal ends the wait for a key
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        os.set_blocking(self._wake_read, False)
        self._old_wake = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._begin()
        return self

    def _begin(self) -> None:
        """Switch to the second screen, where everything has to be drawn again."""
        tty.setcbreak(self._input, termios.TCSANOW)
        self._drawn = []
        self._is_continued = False
        self._write(ENTER)

    def _leave(self) -> None:
        self._write(LEAVE)
        with suppress(termios.error):  # the terminal was closed
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
        elif number == signal.SIGTSTP:  # Ctrl-Z: restore the terminal for the shell, then stop
            self._leave()
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTSTP)
            signal.signal(signal.SIGTSTP, self._on_signal)
        elif number == signal.SIGCONT:
            self._is_continued = True

    @property
    def page(self) -> Page:
        """The space to draw on."""
        size = os.terminal_size((81, 24))
        with suppress(OSError):  # the terminal was closed
            size = os.get_terminal_size(self._output)
        return Page(max(MIN_COLUMNS, size.columns) - 1, max(MIN_LINES, size.lines), not self._unicode)

    def draw(self, lines: Sequence[Text]) -> None:
        """Draw lines that were made for `page`; they are cut if the terminal's size has changed since."""
        if self._is_continued:
            self._begin()
        page = self.page
        for line in lines:
            line.truncate(page.width)
        encoded_lines = encoded(lines[: page.height], self._unicode, self._colours)
        encoded_lines += [""] * (page.height - len(encoded_lines))
        # \x1b[2J clears the screen, \x1b[5H goes to line 5, \x1b[K clears the rest of the line
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
        """Wait for a key: a letter, left, right, up, down, enter, escape; "" after `seconds` or a change of size.

        Return q also for Ctrl-C, for a closed terminal, and after a signal that ends the program.
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
        """Remove one key from the typed characters; an arrow is three characters, which ssh may deliver in pieces."""
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
