"""Finds texts that tell where a machine or its files are, or who its user is: paths, network and e-mail addresses."""

import re
from collections.abc import Iterator
from ipaddress import AddressValueError, IPv4Address, IPv6Address

URL = re.compile(r"\bhttps?://[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+(?::\d+)?(?:/[\w.~%/+@-]*)?")
# folders at the root of Linux, macOS and Windows, with which paths begin
ROOTS = r"home|Users|root|usr|var|etc|opt|mnt|media|tmp|srv|proc|private|Volumes|Library|cygdrive|scratch|nfs|gpfs"
AT, DOT = (rf"(?:\s*[\[({{<]\s*{separator}\s*[\])}}>]\s*|\s+{separator}\s+)" for separator in ("at", "dot"))
FORMS: tuple[tuple[str, str], ...] = (  # (kind for messages, pattern)
    ("path", rf"[/\\](?:{ROOTS})(?:[/\\]|\b(?![\w-]))"),
    ("path", r"(?<![\w)\]>.~</])/{1,2}[A-Za-z_.][\w.@+-]+"),
    ("path", r"(?<![\w)\]>.</])/\w/\w+"),  # /c/Users, as some shells on Windows write it
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
PATTERNS = tuple((kind, re.compile(pattern)) for kind, pattern in FORMS)
IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?!\.?\d)")
IPV6 = re.compile(r"(?<![0-9A-Fa-f])[0-9A-Fa-f:]*:[0-9A-Fa-f:]*:[0-9A-Fa-f:]*(?!\w)")
MIN_IPV6_DIGITS = 5  # with fewer, it may be a slice in Python (a[1::2])


def places(text: str) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of everything in a text that tells where or who: the first of each pattern, all addresses."""
    text_without_urls = URL.sub(" ", text)  # addresses of web pages are public
    for kind, pattern in PATTERNS:
        address = pattern.search(text_without_urls)
        if address:
            yield kind, address[0]
    yield from (("network address", address) for address in IPV4.findall(text) if _holds(IPv4Address, address))
    for address in IPV6.findall(text):  # also tried without its start, as in `host:fe80::1`, and without a last colon
        if any(
            _holds(IPv6Address, candidate) for candidate in (address, address.partition(":")[2], address.rstrip(":"))
        ):
            yield "network address", address


def _holds(address: type[IPv4Address] | type[IPv6Address], text: str) -> bool:
    """Return whether the text is an address of this type."""
    if sum(c.isalnum() for c in text) < (MIN_IPV6_DIGITS if address is IPv6Address else 0):
        return False
    try:
        address(text)
    except AddressValueError:
        return False
    return True
