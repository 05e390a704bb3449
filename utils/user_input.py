"""What a person hands over, bounded before it is taken: numbers by their digits, files by what they are. No torch."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from stride.utils.user_error import UserError

MOST_DIGITS, DEEPEST = 40, 20
LARGEST = 2**63 - 1  # what tensors and files can count


def whole(text: str) -> int:
    """The whole number in a text, which may have underscores; ValueError where it is none, or endless."""
    if len(text) > 2 * MOST_DIGITS:
        raise ValueError(f"more than {MOST_DIGITS} digits")
    return checked_whole(int(text))


def checked_whole(number: int) -> int:
    """The number itself; ValueError where no setting could mean it."""
    if abs(number) >= 10**MOST_DIGITS:
        raise ValueError(f"more than {MOST_DIGITS} digits")
    return number


def check_value(name: str, value: object, depth: int = 0) -> None:
    """UserError for what no setting is: longer numbers, text that cannot be written, lists in lists in lists."""
    if depth > DEEPEST:
        raise UserError(f"{name} is nested too deep: more than {DEEPEST} times")
    if isinstance(value, int) and abs(value) >= 10**MOST_DIGITS:
        raise UserError(f"{name} takes no number of more than {MOST_DIGITS} digits")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise UserError(f"{name}: {value!r} is no text: {error.reason}") from error
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
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UserError(f"cannot read {path}: it is a device or a pipe, not an ordinary file")
            data = file.read(most + 1)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except UserError:
        raise
    except ValueError as error:  # a null byte, half a character
        raise UserError(f"cannot read {str(path)!r}: {error}") from error
    if len(data) > most:
        raise UserError(f"cannot read {path}: it has more than {most:,} bytes")
    return data


def _without_waiting(path: str, flags: int) -> int:
    """A pipe that nobody writes to is opened all the same."""
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def check_name(path: str, flag: str) -> None:
    """UserError where no file could ever have that name: too long, a null byte, below what is no folder."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(f"{flag} {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{flag} {path!r}: {error}") from error
