"""A file that somebody asked for, put in its place in one instant."""

from pathlib import Path

from stride.utils.durable_file import replacing
from stride.utils.user_error import UserError


def written(file: str, text: str) -> None:
    """UserError where that place cannot be written to."""
    try:
        with replacing(Path(file)) as out:
            out.write(text.encode())
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from error
