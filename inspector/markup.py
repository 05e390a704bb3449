"""Pieces of HTML, in which every text is escaped unless it is an instance of Markup.

The style is in inspector.css, the content in the other files.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape

# control characters, but for line breaks and tabs, and those that turn the direction of a text around
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Markup(str):
    """HTML that was made here: inserted as it is."""

    __slots__ = ()


def safe(value: object) -> Markup:
    """Markup as it is, anything else escaped, with quotes and braces, which attributes and templates interpret.

    Invisible characters, which could make a text look like another, are spelled out.
    """
    if isinstance(value, Markup):
        return value
    text = HIDDEN.sub(lambda match: match[0].encode("unicode_escape").decode(), str(value))
    return Markup(escape(text).replace("{", "&#123;").replace("}", "&#125;").replace("`", "&#96;"))


def join(parts: Iterable[object], between: str = "") -> Markup:
    return Markup(between.join(safe(part) for part in parts))


def tag(name: str, *content: object, **attributes: object) -> Markup:
    """`tag("p", "a < b", class_="note")`; an underscore in an attribute's name stands for a hyphen."""
    start = f"<{name}"
    for key, value in attributes.items():
        start += f' {key.rstrip("_").replace("_", "-")}="{safe(value)}"'
    return Markup(f"{start}>" if name == "input" else f"{start}>{join(content)}</{name}>")


def table(head: Sequence[object], rows: Iterable[Sequence[object]], kind: str = "") -> Markup:
    """A table that scrolls sideways where it is too wide."""
    top = tag("tr", *(tag("th", cell) for cell in head))
    body = join(tag("tr", *(tag("td", cell) for cell in row)) for row in rows)
    return tag("div", tag("table", tag("thead", top), tag("tbody", body)), class_=f"scroll {kind}".strip())


def card(title: str, *content: object, kind: str = "") -> Markup:
    return tag("section", tag("h3", title), *content, class_=f"card {kind}".strip())


def note(text: str) -> Markup:
    return tag("p", text, class_="note")


def facts_row(pairs: Iterable[tuple[str, object]]) -> Markup:
    """Big numbers with small names, side by side."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs), class_="facts")
