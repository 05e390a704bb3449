"""The exception for mistakes of the person at the keyboard, the "did you mean" that ends its line, and the other one:
for numbers that stopped being numbers."""

from collections.abc import Iterable

from stride.utils.one_line import one_line

LONGEST_NAME = 100  # beyond that nothing is near


class UserError(ValueError):
    """One clear line about what is wrong and how to right it; entry points print it and exit with code 2.

    For what a person can right: words, files, a full disk. Never for our own mistakes, which keep their traceback.
    Whatever text comes in, what goes out is one printable line of bounded length (`one_line`).
    """

    def __init__(self, text: str = "") -> None:
        super().__init__(one_line(text))

    def _render_traceback_(self) -> list[str]:
        """What IPython shows of it instead of a traceback: the line alone."""
        return [f"{type(self).__name__}: {self}"]


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
