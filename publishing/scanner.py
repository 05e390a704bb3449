"""Reads a text that a person wrote as a stranger would: what in it is a secret, a place or a person?

It only finds. What follows from it, and which texts are read, is said by `texts.py`.
"""

import html
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import unquote

from stride.publishing import places
from stride.publishing.own_secrets import Secret, held
from stride.publishing.random_text import random_runs
from stride.utils import secret_forms

SHOWN = 3  # characters of what was found that are shown, and never more than a quarter of it


class SecretFinding(NamedTuple):
    """A text that must not be published, and where it is."""

    place: str
    kind: str
    text: str = ""

    def __str__(self) -> str:
        if not self.text:
            return f"{self.place} holds {self.kind}"
        beginning = self.text[: min(SHOWN, len(self.text) // 4)]
        beginning = "".join(c if c.isprintable() else "?" for c in beginning)
        return f"{self.place} contains what looks like a {self.kind}: {beginning}... ({len(self.text)} characters)"


def scan(place: str, text: str, own: Sequence[Secret]) -> list[SecretFinding]:
    """Everything in the text, one finding of a kind."""
    first_findings = {finding.kind: finding for view in views(text) for finding in _scan(place, view, own)}
    return list(first_findings.values())


def views(text: str) -> list[str]:
    """The text, and what it is without the letters nobody sees, without escapes, and undone as HTML."""
    plain_text = "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")
    return list(
        dict.fromkeys(
            (text, plain_text, unquote(plain_text), html.unescape(plain_text), plain_text.replace("\\/", "/"))
        )
    )


def _scan(place: str, text: str, own: Sequence[Secret]) -> Iterator[SecretFinding]:
    yield from (SecretFinding(place, secret.kind) for secret in own if held(text, secret))
    for kind, form in secret_forms.COMPILED:
        match = form.search(text)
        if match:
            yield SecretFinding(place, kind, match[0])
    yield from (SecretFinding(place, kind, address) for kind, address in places.places(text))
    yield from (SecretFinding(place, "key drawn at random", run) for run in random_runs(text))
