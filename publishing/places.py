"""Where a machine, its files and its people are: paths of three systems, addresses in the network, e-mail."""

import re
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address, IPv6Address

URL = re.compile(r"\bhttps?://[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+(?::\d+)?(?:/[\w.~%/+@-]*)?")
ROOTS = r"home|Users|root|usr|var|etc|opt|mnt|media|tmp|srv|proc|private|Volumes|Library|cygdrive|scratch|nfs|gpfs"
AT, DOT = (rf"(?:\s*[\[({{<]\s*{separator}\s*[\])}}>]\s*|\s+{separator}\s+)" for separator in ("at", "dot"))
FORMS: tuple[tuple[str, str], ...] = (
    ("path", rf"[/\\](?:{ROOTS})(?:[/\\]|\b(?![\w-]))"),
    ("path", r"(?<![\w)\]>.~</])/{1,2}[A-Za-z_.][\w.@+-]+"),
    ("path", r"(?<![\w)\]>.</])/\w/\w+"),  # /c/Users, as some shells of Windows write it
    ("path", r"(?<![\w.])\.\.[/\\]"),
    ("home folder", r"(?<![\w~])~[A-Za-z_][\w.-]*[/\\]|(?<![\w~])~[/\\]|(?<![\w/])(?:home|Users)[/\\][\w.-]+[/\\]"),
    ("home folder", r"\$\{?(?:HOME|USERPROFILE|env:\w+)\b|%(?:USERPROFILE|HOMEPATH|(?:LOCAL)?APPDATA|TEMP|USERNAME)%"),
    ("path of Windows", r"(?<![A-Za-z])[A-Za-z]:[\\/]{1,2}[^\s\\/]|(?i:[\\/]users[\\/]\w|\busers\\\w|\\appdata\\)"),
    ("path of Windows", r"\\\\[\w.?$-]+\\|(?<![A-Za-z])[A-Za-z]:[\w ]+\\"),
    ("path", r"(?i)\b(?:file|vscode|sftp|ssh|scp|rsync|smb|afp|nfs|ftp|git\+ssh)://?\S|\bfile:\S"),
    ("path of a host", r"\b[\w.-]+@[\w.-]+:[\w/~.]"),
    ("e-mail address", r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}"),
    ("e-mail address", rf"(?i)[\w.+-]+{AT}[\w-]+{DOT}[a-z]{{2,}}"),
    ("name of a host", r"(?i)\b[\w-]+\.(?:local|localdomain|internal|intranet|corp|lan|home\.arpa|private)\b"),
    ("hardware address", r"(?<![\w-])(?:[0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}(?!\w)"),
    ("login on a host", r"(?i)\b(?:ssh|scp|sftp|rsync|mosh)\s+(?:-\S+\s+)*[\w.-]+@[\w.-]+"),
)  # fmt: skip
COMPILED = tuple((kind, re.compile(pattern)) for kind, pattern in FORMS)
NUMBERS = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?!\.?\d)")
GROUPS = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f:]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:]*(?!\w)")
GROUP_DIGITS = 5  # of an address that is more than a slice in Python


def places(text: str) -> Iterator[tuple[str, str]]:
    """(kind, what was found) of everything that tells where or who."""
    text_without_urls = URL.sub(" ", text)  # a page on the web is a place that everybody knows
    for kind, pattern in COMPILED:
        address = pattern.search(text_without_urls)
        if address:
            yield kind, address[0]
    yield from (("network address", address) for address in NUMBERS.findall(text) if _holds(IPv4Address, address))
    for address in GROUPS.findall(text):  # after the colon of `host:fe80::1`, too
        if any(
            _holds(IPv6Address, candidate) for candidate in (address, address.partition(":")[2], address.rstrip(":"))
        ):
            yield "network address", address


def _holds(address: type[IPv4Address] | type[IPv6Address], text: str) -> bool:
    if sum(c.isalnum() for c in text) < (GROUP_DIGITS if address is IPv6Address else 0):
        return False
    try:
        address(text)
    except AddressValueError:
        return False
    return True
