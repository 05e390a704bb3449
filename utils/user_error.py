"""UserError, the exception for mistakes that the user can fix, and checks of numbers and files that raise it.

Any text in a message becomes one printable line for a terminal and a log. Only the standard library is imported.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

MAX_LINE = 290  # characters of a line; with "error: " in front it stays below 300
WORD_LIMITS = (120, 60, 40)  # if a line is too long, its words are cut to the first of these lengths that is enough
MAX_NAME = 100  # characters of a wrong name that are compared with the right ones
MOST_DIGITS, DEEPEST = 40, 20  # limits of a config's values: digits of a number; lists inside lists
LARGEST = 2**63 - 1  # the largest int64, in tensors and files


class UserError(ValueError):
    """One clear line that says what is wrong and how to fix it; entry points print it and exit with code 2.

    For what the user can fix: arguments, files, a full disk. Never for bugs of Stride, which keep their traceback. Any
    text becomes one printable line of limited length (`one_line`).
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(one_line(text))

    def _render_traceback_(self) -> list[str]:
        """IPython shows this line instead of a traceback."""
        return [f"{type(self).__name__}: {self}"]


@contextmanager
def errors_in(where: str) -> Iterator[None]:
    """Put `where` (a file, a block or a key) in front of the message of a UserError that the block raises."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


class NumbersError(ArithmeticError, ValueError):
    """A NaN or an infinity was found before anything was learnt from it. Exit code 1."""


def nearest(word: str, options: Iterable[str], n: int = 3) -> str:
    """Return `"; did you mean a, b?"` with up to `n` options similar to `word`, or `""` if none is."""
    from difflib import get_close_matches  # only an error needs it

    original = {option.lower(): option for option in options}
    lower = word[:MAX_NAME].lower()
    close = get_close_matches(lower, original, n=n, cutoff=0.6)
    if not close and len(lower) >= 2:
        close = sorted(option for option in original if lower in option or (len(option) >= 2 and option in lower))[:n]
    return f"; did you mean {', '.join(original[option] for option in close)}?" if close else ""


def one_line(text: str, most: int = MAX_LINE) -> str:
    """Return the text as one printable line of at most `most` characters; long words, then the line, are shortened."""
    line = printable(" ".join(shortened(text, 1 << 16).split()))
    for longest in WORD_LIMITS:
        if len(line) > most:
            line = " ".join(shortened(word, longest) for word in line.split(" "))
    return shortened(line, most)


def printable(text: str) -> str:
    """Return the text with unprintable characters, line breaks too, replaced by their escapes, such as \\n."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def shortened(text: str, most: int) -> str:
    """Shorten the text to at most `most` characters: the middle becomes "…"."""
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[: most - 1 - half]}…{text[-half:]}"


def describe_error(error: BaseException) -> str:
    """Return an error with the name of its class as one line: `ZeroDivisionError: division by zero`."""
    import traceback  # only an error needs it

    name = type(error).__name__
    if isinstance(error, SyntaxError):  # format_exception_only gives several lines, and str(error) has the file
        return one_line(f"{name}: {error}")
    text = " ".join(traceback.format_exception_only(error)).partition(": ")[2].strip()
    return one_line(f"{name}: {text}" if text else name)


def whole_number(text: str) -> int:
    """Return the integer in a text such as 1_000; ValueError if it is none or has too many digits."""
    if len(text) > 2 * MOST_DIGITS:  # Python refuses thousands of digits with another message
        raise ValueError(f"more than {MOST_DIGITS} digits")
    number = int(text)
    if abs(number) >= 10**MOST_DIGITS:
        raise ValueError(f"more than {MOST_DIGITS} digits")
    return number


def check_value(name: str, value: object, depth: int = 0) -> None:
    """Raise UserError for a value that no setting can have: a huge number, invalid text, too deep nesting."""
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
    """Return the bytes of an ordinary file of at most `most` bytes.

    UserError if it is larger, cannot be read, or is a device or a pipe, which may never end.
    """
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            ordinary = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            data = file.read(most + 1) if ordinary else b""
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:  # a null byte or half a character in the path
        raise UserError(f"cannot read {str(path)!r}: {error}") from error
    if not ordinary:
        raise UserError(f"cannot read {path}: it is a device or a pipe, not an ordinary file")
    if len(data) > most:
        raise UserError(f"cannot read {path}: it has more than {most:,} bytes")
    return data


def _open_without_waiting(path: str, flags: int) -> int:
    """Open a file; for a pipe do not wait until somebody writes to it."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def check_file_name(path: str, flag: str) -> None:
    """Raise UserError if no file can have this path: it is too long, has a null byte, or a parent is no folder.

    `flag`: the option or key that gave the path, for the message.
    """
    try:
        os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"{flag} {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{flag} {path!r}: {error}") from error
