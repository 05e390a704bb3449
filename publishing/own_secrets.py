"""Secrets of this machine, whatever their form: values of the environment, of .netrc, the Hub's token, and who and
where we are. Values are compared as they stand and as JSON, HTML, Markdown, URLs, base64 and hex would write them.
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

EVERYONES = {  # names of machines and users that tell nothing
    "root", "user", "users", "admin", "ubuntu", "debian", "fedora", "test", "tester", "runner", "nobody", "guest",
    "docker", "jovyan", "ec2-user", "vscode", "codespace", "default", "localhost", "local", "vm", "box", "host",
    "server", "computer", "laptop", "desktop", "worker", "build", "agent", "gym", "train",
}  # fmt: skip
NAME = "the name of this machine or its user"
LEAST, LONG = 4, 8  # characters of a secret at all, and of one that is found inside words, too


class Secret(NamedTuple):
    """A value that stays here, and what it is: never shown itself."""

    kind: str
    value: str

    @property
    def certain(self) -> bool:
        """Whether finding it anywhere means that it leaked, since no word or number of a run would be it by chance."""
        word = re.fullmatch(r"[a-z]{1,11}|\d{1,11}", self.value) or self.kind == NAME
        return len(self.value) >= LONG and not word


def find_own(token: str | None = None, environment: Mapping[str, str] | None = None) -> list[Secret]:
    """Everything of this machine that is known to be secret, the longest first."""
    candidates = list(of_environment(os.environ if environment is None else environment))
    candidates += [Secret("the token of the Hub", token or "")]
    candidates += [Secret("a password of .netrc", password) for password in netrc_passwords()]
    candidates += [Secret("the home folder", str(Path.home())), Secret("the working folder", os.getcwd())]
    candidates += [Secret(NAME, name) for name in _names()]
    secrets = {
        own for own in candidates if len(own.value) >= LEAST and own.value.strip("/").lower() not in PLAIN_VALUES
    }
    return sorted(secrets, key=lambda own: (-len(own.value), own))


def of_environment(environment: Mapping[str, str]) -> Iterable[Secret]:
    """Values of the variables whose name says so, and of those that look like a key; of URLs the password, too."""
    for name, value in environment.items():
        kind, value = f"the value of ${name[:40]}", value.strip()
        if is_secret_name(name) or (" " not in value and is_random(value)):
            yield Secret(kind, value)
        password = _password(value)
        if password:
            yield from (Secret(kind, value), Secret(kind, password), Secret(kind, unquote(password)))


def held(text: str, own: Secret) -> bool:
    """Whether the text holds the value in any spelling; a short one as a word of its own."""
    if len(own.value) < LONG or own.kind == NAME:
        return re.search(rf"(?<![A-Za-z0-9]){re.escape(own.value)}(?![A-Za-z0-9])", text, re.IGNORECASE) is not None
    folded_text = text.casefold()
    return any(spelling.casefold() in folded_text for spelling in spellings(own.value))


def spellings(value: str) -> set[str]:
    """How a value may be written so that it can be read back."""
    data = value.encode("utf-8", "surrogateescape")
    cell = " ".join(value.split()).replace("|", "\\|").replace("<", "&lt;")  # as card.py writes a cell
    variants = {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], html.escape(value), cell}
    variants |= {
        html.escape(value, quote=False),
        quote(value, errors="replace"),
        quote(value, safe="", errors="replace"),
    }
    variants |= {data.hex(), repr(value)[1:-1]}
    for offset in range(3):  # base64 of a text that begins anywhere in front
        encoded = base64.b64encode(b"\0" * offset + data).decode()
        stable_part = encoded[(0, 2, 3)[offset] : len(encoded) - (0 if (offset + len(data)) % 3 == 0 else 4)]
        variants |= {stable_part, stable_part.replace("+", "-").replace("/", "_")}
    return {spelling for spelling in variants if len(spelling) >= LONG}


def _password(value: str) -> str:
    try:
        return urlsplit(value).password or ""
    except ValueError:  # not a URL after all
        return ""


def _names() -> Iterable[str]:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        user = ""
    return [name for name in (socket.gethostname(), user) if name.lower() not in EVERYONES]
