"""An episode as the rooms keep it: its page, its films, and a line about it. No torch."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from stride.inspector.markup import Markup


class Recorded(NamedTuple):
    """`films`: the frames first, where they were drawn."""

    page: Markup
    films: tuple[Path, ...]
    said: str
    key: str = ""
    """what the page calls it"""
    dream: Callable[[object], Markup] | None = None
    """what is imagined from a step, for dreams.js; None where nothing dreams"""
