"""Finds what must not be published in a text that a person wrote: secrets, keys, paths, addresses, names.

facts.py decides which texts are scanned, and what happens with the findings.
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

MAX_SHOWN_LETTERS = 3  # first characters of a finding that are shown, but never more than a quarter of it


class SecretFinding(NamedTuple):
    """Something that must not be published."""

    place: str  # where it is: config.description
    kind: str  # what it looks like: "path"
    text: str = ""  # empty for a secret of this machine, of which nothing may be shown

    def __str__(self) -> str:
        if not self.text:
            return f"{self.place} holds {self.kind}"
        beginning = self.text[: min(MAX_SHOWN_LETTERS, len(self.text) // 4)]
        beginning = "".join(c if c.isprintable() else "?" for c in beginning)
        return f"{self.place} contains what looks like a {self.kind}: {beginning}... ({len(self.text)} characters)"


def scan(place: str, text: str, own: Sequence[Secret]) -> list[SecretFinding]:
    """Return the findings in a text, one of each kind. `place`: its name in messages; `own`: this machine's secrets."""
    first_findings = {finding.kind: finding for view in views(text) for finding in _scan(place, view, own)}
    return list(first_findings.values())


def views(text: str) -> list[str]:
    """Return a text and its plainer forms: without invisible characters, with URL and HTML escapes decoded."""
    plain_text = "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")
    return list(
        dict.fromkeys(
            (text, plain_text, unquote(plain_text), html.unescape(plain_text), plain_text.replace("\\/", "/"))
        )
    )


def _scan(place: str, text: str, own: Sequence[Secret]) -> Iterator[SecretFinding]:
    """Yield all findings in one form of a text."""
    yield from (SecretFinding(place, secret.kind) for secret in own if held(text, secret))
    for kind, form in secret_forms.COMPILED:
        match = form.search(text)
        if match:
            yield SecretFinding(place, kind, match[0])
    yield from (SecretFinding(place, kind, address) for kind, address in places.places(text))
    yield from (SecretFinding(place, "key drawn at random", run) for run in random_runs(text))
