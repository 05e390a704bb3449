"""Write a file that a person asked for, completely or not at all."""

from pathlib import Path

from stride.utils.durable_file import replacing
from stride.utils.user_error import UserError


def write_output(file: str, text: str) -> None:
    """Write the text to the file; UserError if that is not possible."""
    try:
        with replacing(Path(file)) as output:
            output.write(text.encode())
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from error
