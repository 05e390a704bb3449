"""Builds HTML in which every text is escaped, unless it is an instance of Markup, which was made here.

All tabs of the inspector are built with these functions; inspector.css has their style.
"""

import re
from collections.abc import Iterable, Sequence
from html import escape

# control characters except line breaks and tabs, and characters that reverse the direction of a text
INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


class Markup(str):
    """HTML that was made here; it is inserted without escaping."""

    __slots__ = ()


def safe(value: object) -> Markup:
    """Return Markup unchanged, anything else as escaped text.

    Quotes, braces and backticks are escaped, too, because attributes and Gradio's templates interpret them. Invisible
    characters, which could make a text look like another one, are written as escapes (\\u200e).
    """
    if isinstance(value, Markup):
        return value
    text = INVISIBLE.sub(lambda match: match[0].encode("unicode_escape").decode(), str(value))
    return Markup(escape(text).replace("{", "&#123;").replace("}", "&#125;").replace("`", "&#96;"))


def join(parts: Iterable[object], between: str = "") -> Markup:
    """Return the escaped parts joined; `between` is HTML and not escaped."""
    return Markup(between.join(safe(part) for part in parts))


def tag(name: str, *content: object, **attributes: object) -> Markup:
    """Return an HTML element: `tag("p", "a < b", class_="note", data_run="r1")` is <p class="note" data-run="r1">.

    In the name of an attribute, an underscore stands for a hyphen, and one at the end is dropped."""
    start = f"<{name}"
    for key, value in attributes.items():
        start += f' {key.rstrip("_").replace("_", "-")}="{safe(value)}"'
    return Markup(f"{start}>" if name == "input" else f"{start}>{join(content)}</{name}>")


def table(head: Sequence[object], rows: Iterable[Sequence[object]], kind: str = "") -> Markup:
    """Return a table that scrolls sideways if it is too wide; `kind`: its class in inspector.css."""
    top = tag("tr", *(tag("th", cell) for cell in head))
    body = join(tag("tr", *(tag("td", cell) for cell in row)) for row in rows)
    return tag("div", tag("table", tag("thead", top), tag("tbody", body)), class_=f"scroll {kind}".strip())


def card(title: str, *content: object, kind: str = "") -> Markup:
    return tag("section", tag("h3", title), *content, class_=f"card {kind}".strip())


def note(text: str) -> Markup:
    return tag("p", text, class_="note")


def facts_row(pairs: Iterable[tuple[str, object]]) -> Markup:
    """Return large values with small names, side by side."""
    return tag("dl", *(tag("div", tag("dt", name), tag("dd", value)) for name, value in pairs), class_="facts")
