"""What must not leave this machine: secrets, absolute paths, the names of the machine and of its user."""

import getpass
import netrc
import os
import re
import socket
from pathlib import Path
from typing import Any

from utils.user_error import UserError

REMOVED = "[removed]"
SECRET_NAMES = re.compile(r"TOKEN|API_?KEY|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.IGNORECASE)
PATTERNS = (
    re.compile(r"\bhf_[A-Za-z0-9]{8,}"),
    re.compile(r"\b(?:wandb_v\d+_|ghp_|github_pat_|glpat-|sk-)[A-Za-z0-9_-]{16,}"),
    re.compile(r"\bAKIA[0-9A-Z]{16}\b"),
    re.compile(r"\bfile://[^\s\"'<>|]+"),
    re.compile(r"(?<![\w/:.<*])~?/(?:[\w.@+=-]+/)+[\w.@+=-]*"),
    re.compile(r"(?<![\w/:.<*])/(?:home|root|Users|tmp|work|mnt|data|etc|srv|opt|var)\b"),
    re.compile(r"(?<!\w)[A-Za-z]:\\[^\s\"'<>|]+"),
)


def secrets(token: str | None = None) -> list[str]:
    """Values that are secret here: of the environment's variables by their names, of .netrc, and the Hub's token."""
    found = {value for name, value in os.environ.items() if SECRET_NAMES.search(name)} | {token or ""}
    try:
        hosts = netrc.netrc().hosts
        found |= {entry[2] for entry in hosts.values() if entry[2]}
    except (OSError, netrc.NetrcParseError):
        pass
    return sorted((value.strip() for value in found if len(value.strip()) >= 8), key=len, reverse=True)


def scrub(text: str, hidden: list[str]) -> str:
    """The text without secrets and absolute paths."""
    for value in hidden:
        text = text.replace(value, REMOVED)
    home = str(Path.home())
    if len(home) > 3:
        text = re.sub(re.escape(home) + r"[\w.@+=/-]*", REMOVED, text)
    for pattern in PATTERNS:
        text = pattern.sub(REMOVED, text)
    return text


def scrub_prose(text: str, hidden: list[str]) -> str:
    """The same for what a person wrote freely, where the names of the machine and its user go too."""
    text = scrub(text, hidden)
    for name in sorted({socket.gethostname(), _user()}, key=len, reverse=True):
        if len(name) > 2:
            text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", REMOVED, text)
    return text


def scrub_plain(value: Any, hidden: list[str], prose: bool = False) -> Any:
    """Every text inside plain data; `prose` as for scrub_prose."""
    if isinstance(value, dict):
        return {scrub(str(key), hidden): scrub_plain(item, hidden, prose) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrub_plain(item, hidden, prose) for item in value]
    if isinstance(value, str):
        return scrub_prose(value, hidden) if prose else scrub(value, hidden)
    return value


def check_nothing_left(files: dict[str, bytes], hidden: list[str]) -> None:
    """The last door: UserError if a secret is in a file after all."""
    for name, data in files.items():
        if any(value.encode() in data for value in hidden):
            raise UserError(f"{name} holds the value of a secret of this machine; nothing was published")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return ""
