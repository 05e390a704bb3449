"""A file that a person asked for, written at once and completely."""

from pathlib import Path

from stride.utils.durable_file import replacing
from stride.utils.user_error import UserError


def write_output(file: str, text: str) -> None:
    """UserError where the file cannot be written."""
    try:
        with replacing(Path(file)) as output:
            output.write(text.encode())
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from error
