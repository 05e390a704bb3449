"""One call of a command under watch: what it said and gave, how long it took, what it wrote or ran that it should not.

Files are watched by Python's audit events: every open, rename, link or removal, with where the path really leads. What
is opened beside a descriptor of its folder (O_NOFOLLOW) cannot be told from that; it cannot lead elsewhere, either."""

import contextlib
import io
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import yaml

LIMIT = 5.0  # seconds that a wrong word may take, of its own where others use the machine too
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
PLAIN = ("os.truncate",)  # takes no folder's descriptor
ANYTHING = (  # that a bug raises
    ArithmeticError, AssertionError, AttributeError, BufferError, EOFError, ImportError, LookupError, MemoryError,
    NameError, OSError, RuntimeError, SyntaxError, SystemExit, TypeError, ValueError, yaml.YAMLError,
)  # fmt: skip
RUNS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "webbrowser.open")


class Hang(BaseException):
    """It took longer than LIMIT; no handler for errors takes it for one."""


class Seen(NamedTuple):
    """What came of one call."""

    code: int | None  # None where it raised
    said: str
    raised: str
    touched: tuple[str, ...]  # what was written elsewhere, read that is secret, or executed

    @property
    def wrong(self) -> str:
        """What should not have been, "" where a line or nothing was said."""
        lines = self.said.splitlines()
        errors = [line for line in lines if line.startswith("error: ")]
        if self.raised or self.touched:
            return self.raised or f"touched {self.touched[0]}"
        if self.code not in (0, 1, 2):
            return f"exit code {self.code}"
        if self.code and (len(errors) != 1 or len(lines) > MOST_LINES):
            return f"{len(lines)} lines, {len(errors)} of them errors"
        if any(len(line) > 300 or not line.isprintable() for line in errors):
            return "a line that is too long or cannot be printed"
        return ""


MOST_LINES = 12  # notes that stand before the error
_watching: list["Watch"] = []


class Watch:
    """Who is allowed to write where, and what must not even be read."""

    def __init__(self, writable: tuple[Path, ...], secret: Path) -> None:
        self.writable = tuple(f"{os.path.realpath(path)}{os.sep}" for path in (*writable, Path("/dev")))
        self.secret = f"{os.path.realpath(secret)}{os.sep}"
        self.touched: list[str] = []
        if not getattr(Watch, "hooked", False):
            sys.addaudithook(_hook)
            Watch.hooked = True

    hooked = False

    def call(self, command: Callable[[], int | None]) -> Seen:
        said, raised, code = io.StringIO(), "", None
        with self.under(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            try:
                code = command() or 0
            except Hang:
                raised = f"hangs: more than {LIMIT:g} s"
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else 1
            except ANYTHING as error:
                place = traceback.extract_tb(error.__traceback__)[-1]
                raised = f"{type(error).__name__} in {Path(place.filename).name}:{place.lineno}: {str(error)[:80]!r}"
        return Seen(code, said.getvalue(), raised, tuple(self.touched))

    @contextlib.contextmanager
    def under(self) -> Iterator[None]:
        self.touched = []
        self.clock = self.last = time.process_time()
        before = signal.signal(signal.SIGALRM, self.too_long)
        _watching.append(self)
        signal.setitimer(signal.ITIMER_REAL, LIMIT, LIMIT)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            _watching.pop()
            signal.signal(signal.SIGALRM, before)

    def too_long(self, number: int, frame: FrameType | None) -> None:
        """Over the limit, unless most of that time was spent on other processes and it does go on."""
        now = time.process_time()
        if now - self.clock >= 0.8 * LIMIT or now - self.last < 0.02 * LIMIT:
            raise Hang
        self.last = now

    def saw(self, event: str, arguments: tuple[Any, ...]) -> None:
        """One audit event: folders' descriptors are its last arguments, two of a rename or link, else one; -1: none."""
        if event in RUNS:
            self.touched.append(f"{event} {arguments!r}"[:200])
        elif event == "open":
            path, _, flags = arguments
            if isinstance(path, int) or (flags & os.O_NOFOLLOW and not os.path.isabs(path)):
                return
            real = os.path.realpath(os.fsdecode(path)) if "\0" not in os.fsdecode(path) else ""
            if flags & WRITES and not self._may(real):
                self.touched.append(f"write {real}")
            elif real.startswith(self.secret):
                self.touched.append(f"read {real}")
        elif event in CHANGES:
            two = event in ("os.rename", "os.link")
            for place in (0, 1) if event == "os.rename" else (1,) if "link" in event else (0,):
                path = arguments[place]
                if isinstance(path, str | bytes | os.PathLike):
                    beside = arguments[2 + place] if two else arguments[-1] if event not in PLAIN else -1
                    above = f"/proc/self/fd/{beside}" if isinstance(beside, int) and beside >= 0 else os.getcwd()
                    folder, name = os.path.split(os.path.join(above, os.fsdecode(path)))
                    real = os.path.join(os.path.realpath(folder), name)
                    if not self._may(real):
                        self.touched.append(f"{event} {real}")

    def _may(self, real: str) -> bool:
        return f"{real}{os.sep}".startswith(self.writable) or "__pycache__" in real


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching and (event == "open" or event in CHANGES or event in RUNS):
        watch = _watching.pop()  # its own look at links is nobody's
        try:
            watch.saw(event, arguments)
        finally:
            _watching.append(watch)
