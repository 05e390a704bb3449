"""The logger "stride": plain lines on stdout, and timestamped lines without colours in a run's run.log.

It also removes secrets from run.log (Hidden). What it changes in the process (handlers, warnings, the threads'
exception hook) is restored at the end of `open_run_log`.
"""

import io
import logging
import os
import re
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import TextIO
from urllib.parse import quote

from stride.runstore.run_files import open_to_write, rename
from stride.utils import streams
from stride.utils.secret_forms import COMPILED, GUESSES, NAMED, PLAIN_VALUES, QUOTED, is_secret_name, netrc_passwords
from stride.utils.user_error import UserError

ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
NOTE = logging.DEBUG + 5  # level of lines that only run.log gets
MAX_LOG_BYTES, OLD_LOGS = 4 << 20, 3  # size at which a new file is started; number of old files kept
logging.addLevelName(NOTE, "NOTE")
ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]
HIDDEN_MARK = "[hidden:"
MIN_SECRET_LENGTH = 8  # characters; a shorter value may occur in a text by chance
# has a digit and no brackets, unlike names and calls in source lines of a traceback
NAMED_VALUE = r"(?=[^\s\"'`,;()]*\d)[^\s\"'`,;()]{8,}"
# every form of a secret contains one of these, most lines none: one search saves fifty, which take a millisecond
SECRET_HINT = re.compile(
    r"[\w-]{11,}|://|-----|AAAA|(?i:pass|pwd|secret|credential|token|key|bearer|otp|pin|cookie|session|aws_|auth|sig|"
    r"basic|login|curl|hook|client|code)"
)


@cache
def _forms() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Return (kind, pattern) for each form of a secret that is replaced in run.log."""
    named_values = re.compile(rf"(?i)(?<![a-z])(?:{NAMED})s?{QUOTED}(?:=|: ?){QUOTED}{NAMED_VALUE}")
    return (*((kind, form) for kind, form in COMPILED if kind not in GUESSES), ("secret by its name", named_values))


class Hidden:
    """`Hidden()(text)` returns the text with `[hidden: KIND]` in place of each secret.

    Values of environment variables with secret names are read when the object is created.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        secrets = {*_secret_values(os.environ if environment is None else environment)}
        self._secret_values = sorted(secrets, key=lambda pair: -len(pair[0]))  # longest first: one may contain another

    def __call__(self, text: str) -> str:
        for value, kind in self._secret_values:
            text = text.replace(value, f"{HIDDEN_MARK} {kind}]")
        for kind, form in _forms() if SECRET_HINT.search(text) else ():
            text = form.sub(partial(_marked, f"{HIDDEN_MARK} {kind}]"), text)
        return text


def _marked(mark: str, match: re.Match[str]) -> str:
    return match[0] if HIDDEN_MARK in match[0] else mark


def _secret_values(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    named_values = [(value.strip(), f"${name[:40]}") for name, value in environment.items() if is_secret_name(name)]
    for value, kind in (*named_values, *((password, "a password of .netrc") for password in netrc_passwords())):
        if len(value) >= MIN_SECRET_LENGTH and value.lower() not in PLAIN_VALUES:
            yield from ((spelling, kind) for spelling in (value, repr(value)[1:-1], quote(value, safe="")))


class _PlainText(logging.Formatter):
    """Formats lines of run.log: without codes for colours and cursor, and without secrets."""

    def __init__(self, form: str) -> None:
        super().__init__(form)
        self._hide = Hidden()

    def format(self, record: logging.LogRecord) -> str:
        return self._hide(ANSI.sub("", super().format(record)))


class _RunLogFile(logging.FileHandler):
    """Writes run.log. If the disk is full a line is lost, but nothing else fails: the training itself reports that.

    A file of MAX_LOG_BYTES becomes run.log.1, the former run.log.1 becomes run.log.2, ...; OLD_LOGS of them are kept.
    """

    def _open(self) -> io.TextIOWrapper:
        file = open_to_write(Path(self.baseFilename), append=True)
        return io.TextIOWrapper(io.BufferedWriter(file), encoding="utf-8", errors="backslashreplace")

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError, UserError):
            if self.stream is None or os.fstat(self.stream.fileno()).st_size >= MAX_LOG_BYTES:
                self._rotate()
            super().emit(record)

    def _rotate(self) -> None:
        """Rename the old files; if that is not possible, the current file grows on."""
        if self.stream is not None:
            self.stream.close()
            self.stream = None  # the next line opens it
        log = Path(self.baseFilename)
        with suppress(OSError, UserError):
            for number in range(OLD_LOGS - 1, 0, -1):
                with suppress(FileNotFoundError):
                    rename(log.with_name(f"{log.name}.{number}"), f"{log.name}.{number + 1}")
            rename(log, f"{log.name}.1")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  (logging's name)
        return

    def close(self) -> None:
        with suppress(OSError):
            super().close()


class _StdoutHandler(logging.Handler):
    """Prints INFO and above. Looks up sys.stdout for every line, because a live table replaces it for a while."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stdout, flush=True)


@contextmanager
def open_run_log(path: Path | str | None, quiet: bool = False) -> Iterator[logging.Logger]:
    """Set up the logger inside the block: `with open_run_log(run.run_log, quiet) as log: log.info(...)`.

    The file also receives warnings (stderr shows them too, unless quiet) and the traceback of an exception that leaves
    the block or ends a thread. With STRIDE_NO_RUN_LOG=1 or without a path there is no file, and warnings are unchanged.
    """
    logger = logging.getLogger("stride")
    handlers, level, propagate = logger.handlers[:], logger.level, logger.propagate
    file = _file_handler(path)
    new_handlers = [*([file] if file else []), *([] if quiet else [_StdoutHandler(logging.INFO)])]
    # never an empty list: logging would then print warnings on stderr by its handler of last resort
    logger.handlers[:] = new_handlers or [logging.NullHandler()]
    logger.setLevel(logging.DEBUG)
    logger.propagate = False

    def note_loss(line: str) -> None:
        _append(file, logging.WARNING, line)

    hooks_before = (warnings.showwarning, threading.excepthook)
    if file:
        _divert(file, quiet)
    for stream in streams.losses:
        note_loss(streams.loss(stream))
    streams.listeners.append(note_loss)
    try:
        yield logger
    except (KeyboardInterrupt, SystemExit) as error:
        _append(file, logging.WARNING, f"stopped by {type(error).__name__}")
        raise
    except BaseException as error:
        _append(file, logging.CRITICAL, "uncaught exception", (type(error), error, error.__traceback__))
        raise
    finally:
        streams.listeners.remove(note_loss)
        warnings.showwarning, threading.excepthook = hooks_before
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)
        if file:
            file.close()


def _file_handler(path: Path | str | None) -> logging.FileHandler | None:
    if path is None or os.environ.get("STRIDE_NO_RUN_LOG") == "1":
        return None
    handler = _RunLogFile(path, mode="a", encoding="utf-8")
    handler.setFormatter(_PlainText("%(asctime)s %(levelname)-7s %(message)s"))
    return handler


def _append(file: logging.FileHandler | None, level: int, message: str, exc_info: ExcInfo | None = None) -> None:
    """Write a record to the file only, because Python itself shows it on stderr."""
    if file:
        file.handle(logging.LogRecord("stride", level, "", 0, message, None, exc_info))


def _divert(log: logging.FileHandler, quiet: bool) -> None:
    """Write warnings and exceptions of threads to the file first, then pass them to where they went before."""
    # not logging.captureWarnings: with it, stderr would not show them
    show_before, hook_before = warnings.showwarning, threading.excepthook

    def showwarning(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        _append(log, logging.WARNING, f"{category.__name__}: {message} ({filename}:{lineno})")
        if not quiet:
            show_before(message, category, filename, lineno, file, line)

    def excepthook(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None:
            cause = (args.exc_type, args.exc_value, args.exc_traceback)
            _append(log, logging.ERROR, "uncaught exception in a thread", cause)
        hook_before(args)

    warnings.showwarning, threading.excepthook = showwarning, excepthook
