"""Any text as one harmless line for a terminal and a log."""

MOST = 290  # characters of a line; with "error: " in front it stays below 300
WORDS = (120, 60, 40)  # what words are cut to where a line is longer, the first that is enough


def one_line(text: str, most: int = MOST) -> str:
    """No line breaks, nothing unprintable (it is spelled out), what is long shortened in the middle."""
    line = printable(" ".join(shortened(text, 1 << 16).split()))
    for longest in WORDS:
        if len(line) > most:
            line = " ".join(shortened(word, longest) for word in line.split(" "))
    return shortened(line, most)


def printable(text: str) -> str:
    """The text with what is unprintable spelled out, line breaks too."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def shortened(text: str, most: int) -> str:
    """At most so many characters: what is left out lay in the middle."""
    half = (most - 1) // 2
    return text if len(text) <= most else f"{text[: most - 1 - half]}…{text[-half:]}"


def describe_error(error: BaseException) -> str:
    """`ZeroDivisionError: the sky fell`; an error that cannot say what it is says that."""
    import traceback  # only an error needs it

    if isinstance(error, SyntaxError):  # of several lines otherwise, and the file is in none of them
        return one_line(f"{type(error).__name__}: {error}")
    text = " ".join(traceback.format_exception_only(error)).partition(": ")[2].strip()
    return one_line(f"{type(error).__name__}: {text}" if text else type(error).__name__)
