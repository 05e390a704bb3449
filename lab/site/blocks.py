"""Generated parts of hand-written pages: between `<!-- MAKER arguments -->` and `<!-- end -->` stands what MAKER says.

<!-- keys PPOConfig -->
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
    """The text of a page with each of its blocks made anew; a blank line within the marks stays or stays out."""
    return BLOCK.sub(_made, text)


def pages(folder: Path) -> list[Path]:
    """The pages that have generated parts."""
    return [path for path in sorted(folder.rglob("*.md")) if BLOCK.search(path.read_text(encoding="utf-8"))]


def _made(match: re.Match[str]) -> str:
    name, arguments, blank = match[1], match[2], match[3]
    if name not in MAKERS:
        raise UserError(f"<!-- generated: {name} -->: no such maker; there are {', '.join(MAKERS)}")
    return f"<!-- generated: {name}{arguments} -->\n{blank}{MAKERS[name](*shlex.split(arguments))}\n{blank}<!-- end -->"
