"""Reads a text that a person wrote as a stranger would: what in it is a secret, a place or a person?

It only finds. What follows from it, and which texts are read, is said by `texts.py`.
"""

import html
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from stride.publishing import places
from stride.publishing.own_secrets import Own, held
from stride.publishing.random_text import random_runs
from stride.utils import secret_forms

SHOWN = 3  # characters of what was found that are shown, and never more than a quarter of it


class Finding(NamedTuple):
    """What must not leave, and where it stands."""

    place: str
    kind: str
    found: str = ""

    def __str__(self) -> str:
        if not self.found:
            return f"{self.place} holds {self.kind}"
        head = self.found[: min(SHOWN, len(self.found) // 4)]
        head = "".join(c if c.isprintable() else "?" for c in head)
        return f"{self.place} holds what looks like a {self.kind}: {head}... ({len(self.found)} characters)"


def scan(place: str, text: str, own: Sequence[Own]) -> list[Finding]:
    """Everything in the text, one finding of a kind."""
    found = {finding.kind: finding for view in views(text) for finding in _scan(place, view, own)}
    return list(found.values())


def views(text: str) -> list[str]:
    """The text, and what it is without the letters nobody sees, without escapes, and undone as HTML."""
    plain = "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")
    return list(dict.fromkeys((text, plain, unquote(plain), html.unescape(plain), plain.replace("\\/", "/"))))


def _scan(place: str, text: str, own: Sequence[Own]) -> Iterator[Finding]:
    yield from (Finding(place, each.kind) for each in own if held(text, each))
    for kind, form in secret_forms.COMPILED:
        match = form.search(text)
        if match:
            yield Finding(place, kind, match[0])
    yield from (Finding(place, kind, found) for kind, found in places.places(text))
    yield from (Finding(place, "key drawn at random", run) for run in random_runs(text))
