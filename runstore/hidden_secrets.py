"""Takes out of a text what is secret: values of this machine's environment and .netrc, and whatever has a token's form.

For files that people hand on without reading them. What only might be a secret (a hash, a name of code) stays legible.
"""

import os
import re
from collections.abc import Iterator, Mapping
from functools import cache, partial
from urllib.parse import quote

from stride.utils.secret_forms import COMPILED, GUESSES, NAMED, PLAIN_VALUES, QUOTED, is_secret_name, netrc_passwords

MARK = "[hidden:"
LEAST = 8  # characters; what is shorter may stand in a text by chance
NAMED_VALUE = r"(?=[^\s\"'`,;()]*\d)[^\s\"'`,;()]{8,}"  # no call or name of a source line in a traceback
# what any of the forms needs to be there: most lines have none of it, and fifty searches of a line take a millisecond
HINT = re.compile(
    r"[\w-]{11,}|://|-----|AAAA|(?i:pass|pwd|secret|credential|token|key|bearer|otp|pin|cookie|session|aws_|auth|sig|"
    r"basic|login|curl|hook|client|code)"
)


@cache
def _forms() -> tuple[tuple[str, re.Pattern[str]], ...]:
    named = re.compile(rf"(?i)(?<![a-z])(?:{NAMED})s?{QUOTED}(?:=|: ?){QUOTED}{NAMED_VALUE}")
    return (*((kind, form) for kind, form in COMPILED if kind not in GUESSES), ("secret by its name", named))


class Hidden:
    """`Hidden()(text)`: the text with `[hidden: what]` in place of each; knows the values there are when it is made."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        found = {*_values(os.environ if environment is None else environment)}
        self._values = sorted(found, key=lambda pair: -len(pair[0]))  # one may hold another

    def __call__(self, text: str) -> str:
        for value, kind in self._values:
            text = text.replace(value, f"{MARK} {kind}]")
        for kind, form in _forms() if HINT.search(text) else ():
            text = form.sub(partial(_put, f"{MARK} {kind}]"), text)
        return text


def _put(mark: str, found: re.Match[str]) -> str:
    return found[0] if MARK in found[0] else mark


def _values(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    named = [(value.strip(), f"${name[:40]}") for name, value in environment.items() if is_secret_name(name)]
    for value, kind in (*named, *((password, "a password of .netrc") for password in netrc_passwords())):
        if len(value) >= LEAST and value.lower() not in PLAIN_VALUES:
            yield from ((spelling, kind) for spelling in (value, repr(value)[1:-1], quote(value, safe="")))
