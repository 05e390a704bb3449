"""The exception for mistakes of the person at the keyboard, and checks that raise it: of numbers, of files.

Any text becomes one harmless line for a terminal and a log. Only the standard library.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

MOST = 290  # characters of a line; with "error: " in front it stays below 300
WORD_LIMITS = (120, 60, 40)  # what words are cut to where a line is longer, the first that is enough
LONGEST_NAME = 100  # no option is similar to anything longer
MOST_DIGITS, DEEPEST = 40, 20
LARGEST = 2**63 - 1  # what tensors and files can count


class UserError(ValueError):
    """One clear line about what is wrong and how to right it; entry points print it and exit with code 2.

    For what a person can right: arguments, files, a full disk. Never for our own mistakes, which keep their traceback.
    Any text is turned into one printable line of bounded length (`one_line`).
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(one_line(text))

    def _render_traceback_(self) -> list[str]:
        """IPython shows this line instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


@contextmanager
def errors_in(where: str) -> Iterator[None]:
    """Inside, the line of a UserError begins with `where`: the file, block or key that it is about."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


class NumbersError(ArithmeticError, ValueError):
    """A NaN or an infinity where learning needs a number; nothing has learnt from it. Exit code 1."""


def nearest(word: str, options: Iterable[str], n: int = 3) -> str:
    """`"; did you mean a, b?"` with up to `n` options close to `word`, or `""` when none is."""
    from difflib import get_close_matches  # only an error needs it

    original = {option.lower(): option for option in options}
    lower = word[:LONGEST_NAME].lower()
    close = get_close_matches(lower, original, n=n, cutoff=0.6)
    if not close and len(lower) >= 2:
        close = sorted(option for option in original if lower in option or (len(option) >= 2 and option in lower))[:n]
    return f"; did you mean {', '.join(original[option] for option in close)}?" if close else ""


def one_line(text: str, most: int = MOST) -> str:
    """No line breaks, nothing unprintable (it is spelled out), long words and then the line shortened in the middle."""
    line = printable(" ".join(shortened(text, 1 << 16).split()))
    for longest in WORD_LIMITS:
        if len(line) > most:
            line = " ".join(shortened(word, longest) for word in line.split(" "))
    return shortened(line, most)


def printable(text: str) -> str:
    """The text with unprintable characters spelled out, line breaks too."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def shortened(text: str, most: int) -> str:
    """At most this many characters: the middle is left out."""
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[: most - 1 - half]}…{text[-half:]}"


def describe_error(error: BaseException) -> str:
    """`ZeroDivisionError: the sky fell`, in one line."""
    import traceback  # only an error needs it

    name = type(error).__name__
    if isinstance(error, SyntaxError):  # formatted it has several lines, and the file is in none of them
        return one_line(f"{name}: {error}")
    text = " ".join(traceback.format_exception_only(error)).partition(": ")[2].strip()
    return one_line(f"{name}: {text}" if text else name)


def whole_number(text: str) -> int:
    """The integer in a text, which may have underscores; ValueError where it is none, or has too many digits."""
    if len(text) > 2 * MOST_DIGITS:  # Python itself refuses thousands of digits by another error
        raise ValueError(f"more than {MOST_DIGITS} digits")
    number = int(text)
    if abs(number) >= 10**MOST_DIGITS:
        raise ValueError(f"more than {MOST_DIGITS} digits")
    return number


def check_value(name: str, value: object, depth: int = 0) -> None:
    """UserError for what no setting is: a longer number, text that cannot be written, lists in lists in lists."""
    if depth > DEEPEST:
        raise UserError(f"{name} is nested too deep: more than {DEEPEST} times")
    if isinstance(value, int) and abs(value) >= 10**MOST_DIGITS:
        raise UserError(f"{name} has a number of more than {MOST_DIGITS} digits")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"{name}: {value!r} is not text: {error.reason}") from error
    elif isinstance(value, Mapping):
        for key, item in value.items():
            check_value(name, key, depth + 1)
            check_value(f"{name}.{key}", item, depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            check_value(f"{name}[{index}]", item, depth + 1)


def read_user_file(path: Path, most: int) -> bytes:
    """The bytes of an ordinary file of at most `most`; a device or a pipe, which may never end, is not read."""
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            ordinary = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            data = file.read(most + 1) if ordinary else b""
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:  # a null byte, half a character
        raise UserError(f"cannot read {str(path)!r}: {error}") from error
    if not ordinary:
        raise UserError(f"cannot read {path}: it is a device or a pipe, not an ordinary file")
    if len(data) > most:
        raise UserError(f"cannot read {path}: it has more than {most:,} bytes")
    return data


def _open_without_waiting(path: str, flags: int) -> int:
    """A pipe is opened although nobody writes to it."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def check_file_name(path: str, flag: str) -> None:
    """UserError where no file could ever have that name: too long, a null byte, below what is no folder."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"{flag} {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{flag} {path!r}: {error}") from error
