"""Texts of other people's code, as one harmless line for a terminal and a log."""

import traceback

MOST = 300  # characters


def one_line(text: str, most: int = MOST) -> str:
    """The text without line breaks; what is not printable (control characters, escape sequences) is spelled out."""
    words = " ".join(text[: 20 * most].split())
    spelled = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in words[: 2 * most])
    return spelled if len(spelled) <= most else f"{spelled[: most - 3]}..."


def told(error: BaseException) -> str:
    """`ZeroDivisionError: the sky fell`; an error that cannot say what it is says that."""
    if isinstance(error, SyntaxError):  # of several lines otherwise, and the file is in none of them
        return one_line(f"{type(error).__name__}: {error}")
    text = " ".join(traceback.format_exception_only(error)).partition(": ")[2].strip()
    return one_line(f"{type(error).__name__}: {text}" if text else type(error).__name__)
