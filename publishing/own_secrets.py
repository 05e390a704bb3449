"""Collects the secrets of this machine, so that publishing can check that no file contains one of them.

These are values of environment variables, passwords of .netrc, the Hub's token, and the names and folders of machine
and user. They are searched for as they are, and as JSON, HTML, Markdown, URLs, base64 and hex would write them.
"""

import base64
import getpass
import html
import json
import os
import re
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit

from stride.publishing.random_text import is_random
from stride.utils.secret_forms import PLAIN_VALUES, is_secret_name, netrc_passwords

COMMON_NAMES = {  # names of machines and users that identify nobody
    "root", "user", "users", "admin", "ubuntu", "debian", "fedora", "test", "tester", "runner", "nobody", "guest",
    "docker", "jovyan", "ec2-user", "vscode", "codespace", "default", "localhost", "local", "vm", "box", "host",
    "server", "computer", "laptop", "desktop", "worker", "build", "agent", "gym", "train",
}  # fmt: skip
MACHINE_OR_USER = "the name of this machine or its user"
MIN_LETTERS = 4  # characters; a shorter value is not searched for
LONG_LETTERS = 8  # characters; from this length on, a value is also found inside other words


class Secret(NamedTuple):
    """A value that must not be published. Messages show its kind, never the value."""

    kind: str  # what it is: "the value of $WANDB_API_KEY"
    value: str

    @property
    def certain(self) -> bool:
        """Whether a file that contains it must have leaked it: no short word or number, which may occur by chance."""
        word = re.fullmatch(r"[a-z]{1,11}|\d{1,11}", self.value) or self.kind == MACHINE_OR_USER
        return len(self.value) >= LONG_LETTERS and not word


def find_own(token: str | None = None, environment: Mapping[str, str] | None = None) -> list[Secret]:
    """Return all known secrets of this machine, the longest first. `token`: of the Hub."""
    candidates = list(of_environment(os.environ if environment is None else environment))
    candidates += [Secret("the token of the Hub", token or "")]
    candidates += [Secret("a password of .netrc", password) for password in netrc_passwords()]
    candidates += [Secret("the home folder", str(Path.home())), Secret("the working folder", os.getcwd())]
    candidates += [Secret(MACHINE_OR_USER, name) for name in _names()]
    secrets = {
        own for own in candidates if len(own.value) >= MIN_LETTERS and own.value.strip("/").lower() not in PLAIN_VALUES
    }
    return sorted(secrets, key=lambda own: (-len(own.value), own))


def of_environment(environment: Mapping[str, str]) -> Iterable[Secret]:
    """Yield the values of variables with a name like a secret's, values that look like keys, and passwords in URLs."""
    for name, value in environment.items():
        kind, value = f"the value of ${name[:40]}", value.strip()
        if is_secret_name(name) or (" " not in value and is_random(value)):
            yield Secret(kind, value)
        password = _password(value)
        if password:
            yield from (Secret(kind, value), Secret(kind, password), Secret(kind, unquote(password)))


def held(text: str, own: Secret) -> bool:
    """Return whether the text contains the secret in any spelling; a short secret or a name only as a whole word."""
    if len(own.value) < LONG_LETTERS or own.kind == MACHINE_OR_USER:
        return re.search(rf"(?<![A-Za-z0-9]){re.escape(own.value)}(?![A-Za-z0-9])", text, re.IGNORECASE) is not None
    folded_text = text.casefold()
    return any(spelling.casefold() in folded_text for spelling in spellings(own.value))


def spellings(value: str) -> set[str]:
    """Return all texts from which a value can be read back: escaped, as base64, as hex, ..."""
    data = value.encode("utf-8", "surrogateescape")
    cell = " ".join(value.split()).replace("|", "\\|").replace("<", "&lt;")  # as card.py writes it into a table
    variants = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], html.escape(value), cell}
    variants |= {
        html.escape(value, quote=False),
        quote(value, errors="replace"),
        quote(value, safe="", errors="replace"),
    }
    variants |= {data.hex(), repr(value)[1:-1]}
    # Base64 encodes 3 bytes as 4 letters, so a value inside a longer text has one of three encodings, by the position
    # where it begins. The first and last letters, which also depend on its neighbours, are cut off.
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + data).decode()
        stable_part = encoded[(0, 2, 3)[offset] : len(encoded) - (0 if (offset + len(data)) % 3 == 0 else 4)]
        variants |= {stable_part, stable_part.replace("+", "-").replace("/", "_")}
    return {spelling for spelling in variants if len(spelling) >= LONG_LETTERS}


def _password(value: str) -> str:
    """Return the password in a URL; "" if there is none."""
    try:
        return urlsplit(value).password or ""
    except ValueError:  # not a URL after all
        return ""


def _names() -> Iterable[str]:
    """Return the names of this machine and its user, unless they are common ones."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = ""
    return [name for name in (socket.gethostname(), user) if name.lower() not in COMMON_NAMES]
