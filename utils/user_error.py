"""The exception for mistakes of the person at the keyboard, the "did you mean" that ends its line, and the other one:
for numbers that stopped being numbers."""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST_NAME = 100  # beyond that nothing is near
MOST = 290  # characters of a line; with "error: " in front it stays below 300
WORDS = (120, 60, 40)  # what words are cut to where a line is longer, the first that is enough


class UserError(ValueError):
    """One clear line about what is wrong and how to right it; entry points print it and exit with code 2."""

    def __init__(self, text: str = "") -> None:
        super().__init__(one_line(text))


class NumbersError(ArithmeticError, ValueError):
    """A NaN or an infinity where learning needs a number; nothing has learnt from it. Exit code 1."""


def nearest(word: str, options: Iterable[str], n: int = 3) -> str:
    """`"; did you mean a, b?"` with up to `n` options close to `word`, or `""` when none is."""
    original = {option.lower(): option for option in options}
    lower = word[:LONGEST_NAME].lower()
    close = get_close_matches(lower, original, n=n, cutoff=0.6)
    if not close and len(lower) >= 2:
        close = sorted(option for option in original if lower in option or (len(option) >= 2 and option in lower))[:n]
    return f"; did you mean {', '.join(original[option] for option in close)}?" if close else ""


def one_line(text: str) -> str:
    """The text as one line a terminal can show: nothing unprintable, and what is long in it shortened in the middle."""
    line = " ".join(shortened(text, 1 << 16).split())
    if not line.isprintable():
        line = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
    for longest in WORDS:
        if len(line) > MOST:
            line = " ".join(shortened(word, longest) for word in line.split(" "))
    return shortened(line, MOST)


def shortened(text: str, most: int) -> str:
    """At most so many characters: what is left out lay in the middle."""
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[: most - 1 - half]}…{text[-half:]}"
