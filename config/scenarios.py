"""The games of VizDoom and stable-retro that are on this machine, by their files: nothing is imported.

VIZDOOM_SCENARIOS_DIR names folders of one's own (joined as in PATH); their scenarios win over the package's.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from stride.utils.user_error import UserError

DOOM, RETRO = "VizDoom/", "Retro/"
FOLDERS = "VIZDOOM_SCENARIOS_DIR"
MAX_NAMES = 20  # names shown at most


def doom_scenarios() -> dict[str, Path]:
    """Name -> its .cfg: `basic` of basic.cfg."""
    folders = [Path(folder) for folder in os.environ.get(FOLDERS, "").split(os.pathsep) if folder]
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{FOLDERS}: there is no folder {folder}")
    scenarios: dict[str, Path] = {}
    for folder in (*folders, *_in_package("vizdoom", "scenarios")):
        for path in sorted(folder.glob("*.cfg")):
            scenarios.setdefault(path.stem, path.absolute())
    return scenarios


def retro_games() -> list[str]:
    """Games that stable-retro can play here: those whose ROM is there; it brings one, others are imported."""
    game_names = set()
    for folder in _retro_folders():
        for rom in folder.glob("*/rom.*"):
            if rom.suffix not in (".sha", ".delta"):
                game_names.add(rom.parent.name)
    return sorted(game_names)


def retro_starts(game: str) -> list[str]:
    """The names of a game's saved states, where an episode may begin."""
    return sorted({path.stem for folder in _retro_folders() for path in folder.glob(f"{game}/*.state")})


def installed_games(term: str) -> list[str]:
    """Lines for --list-envs TERM: the games of a family, where the term names it."""
    folded, lines = term.casefold(), []
    families: tuple[tuple[str, Callable[[], Iterable[str]]], ...] = ((DOOM, doom_scenarios), (RETRO, retro_games))
    for prefix, find in families:
        family = prefix.casefold()
        if term and (folded in family or folded.startswith(family)):
            names = [*find()]
            lines += [f"{prefix}NAME:ALGORITHM with NAME: {some(names)}"] if names else []
    return lines


def some(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    remainder = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"{', '.join(names[:MAX_NAMES])}{remainder}"


def _retro_folders() -> list[Path]:
    return [*_in_package("stable_retro", "data/stable"), *_in_package("stable_retro", "data/contrib")]


def _in_package(name: str, folder: str) -> list[Path]:
    """A folder of an installed package; nothing where it is not installed."""
    spec = find_spec(name)
    return [Path(package_root) / folder for package_root in (spec.submodule_search_locations or ())] if spec else []
