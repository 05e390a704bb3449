"""A line of a terminal as styled pieces of known width: what rich does with more, and 40 ms of start-up."""

import unicodedata
from collections.abc import Iterable

STYLES = {"": "", "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "magenta": "35", "cyan": "36",
          "reverse": "7", "bold green": "1;32", "bold red": "1;31", "bold yellow": "1;33", "bold cyan": "1;36",
          "bold magenta": "1;35"}  # fmt: skip
RESET = "\x1b[0m"


class Line:
    """Text in pieces, each with one of STYLES; a character is a cell, as `clean` leaves no others."""

    def __init__(self, text: str = "", style: str = "") -> None:
        self.pieces: list[tuple[str, str]] = []
        self.cells = 0
        self.add(text, style)

    def add(self, text: str, style: str = "") -> "Line":
        if text:
            self.pieces.append((text, style))
            self.cells += len(text)
        return self

    def join(self, other: "Line") -> "Line":
        for text, style in other.pieces:
            self.add(text, style)
        return self

    def right(self, other: "Line", width: int) -> "Line":
        """`other` at the right edge, where it fits with two blanks before it."""
        room = width - self.cells - other.cells
        return self.add(" " * room).join(other) if room >= 2 else self

    @property
    def plain(self) -> str:
        return "".join(text for text, _ in self.pieces)

    def cut(self, width: int) -> "Line":
        """As much of it as there is room for."""
        kept, room = Line(), width
        for text, style in self.pieces:
            kept.add(text[:room], style)
            room -= len(text[:room])
        return kept

    def coded(self) -> str:
        """As a terminal takes it."""
        parts = (f"\x1b[{STYLES[style]}m{text}{RESET}" if style else text for text, style in self.pieces)
        return "".join(parts)


def clean(text: object, most: int = 200) -> str:
    """What came from outside as cells of a line: nothing that commands a terminal, nothing wider than a cell."""
    return "".join(c if _one_cell(c) else "?" for c in str(text)[:most])


def _one_cell(c: str) -> bool:
    return " " <= c <= "~" or (
        c.isprintable() and not unicodedata.combining(c) and unicodedata.east_asian_width(c) not in "WF"
    )


def spelled(lines: Iterable[Line], unicode: bool, colours: bool) -> list[str]:
    """Each as it is written; without `unicode` what ASCII lacks becomes `?`, which those who draw avoid."""
    coded = (line.coded() if colours else line.plain for line in lines)
    return [text if unicode else text.replace("±", "+-").encode("ascii", "replace").decode() for text in coded]
