"""An episode as the rooms keep it: its page, its films, and a line about it. No torch."""

from pathlib import Path
from typing import NamedTuple

from inspector.markup import Markup


class Recorded(NamedTuple):
    """`films`: the frames first, where they were drawn."""

    page: Markup
    films: tuple[Path, ...]
    said: str
