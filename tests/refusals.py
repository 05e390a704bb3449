"""Wrong inputs and the lines that refuse them, as one text: `assert refusals(call, inputs) == snapshot`."""

from collections.abc import Callable, Iterable

import pytest
from snapshots import shown

from stride.utils.user_error import UserError


def refusal(call: Callable[..., object], *arguments: object) -> str:
    """The line of the UserError: one, short and printable."""
    try:
        call(*arguments)
    except UserError as error:
        line = str(error)
    else:
        pytest.fail(f"{arguments!r} was taken")
    assert line.isprintable() and len(line) < 300, line
    return line


def refusals(call: Callable[..., object], inputs: Iterable[object]) -> str:
    """Every input with the line of its refusal below it."""
    return shown("\n".join(f"{words!r}\n    {refusal(call, words)}" for words in inputs))
