"""Fills the generated parts of hand-written pages: a block with a maker's name contains the text that it returns.

<!-- generated: keys PPOConfig -->
(the table of its keys)
<!-- end -->
"""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

from lab.site import learners, measured, symptoms, tables
from stride.utils.user_error import UserError

BLOCK = re.compile(r"^<!-- generated: (\w+)((?: [^\n]*)?) -->\n(\n?)(?:.*?\n)??<!-- end -->$", re.M | re.S)
# name in a mark -> function that returns the text, called with the mark's arguments
MAKERS: dict[str, Callable[..., str]] = {
    "alerts": symptoms.alerts,
    "code": learners.code,
    "cures": symptoms.cures,
    "curves": learners.curves,
    "environments": learners.environments,
    "keys": learners.keys,
    "learners": learners.overview,
    "measured": measured.table,
    "mujoco": tables.mujoco,
    "off_policy": tables.off_policy,
    "peers": tables.peers,
    "public": learners.public,
    "reached": learners.reached,
    "refused": symptoms.refused,
    "resumed": measured.resumed,
    "speed": learners.speed,
    "speed_environments": tables.environments,
    "speed_packages": tables.packages,
    "speed_families": tables.families,
}


def filled(text: str) -> str:
    """Return the text of a page with all its blocks made again; blank lines inside the marks are kept."""
    return BLOCK.sub(_made, text)


def pages(folder: Path) -> list[Path]:
    """Return the pages that have generated parts."""
    return [path for path in sorted(folder.rglob("*.md")) if BLOCK.search(path.read_text(encoding="utf-8"))]


def _made(match: re.Match[str]) -> str:
    name, arguments, blank = match[1], match[2], match[3]
    if name not in MAKERS:
        raise UserError(f"<!-- generated: {name} -->: no such maker; there are {', '.join(MAKERS)}")
    return f"<!-- generated: {name}{arguments} -->\n{blank}{MAKERS[name](*shlex.split(arguments))}\n{blank}<!-- end -->"
