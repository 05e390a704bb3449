"""Finds the games of VizDoom and stable-retro that are installed on this machine, by their files; it imports neither.

The variable VIZDOOM_SCENARIOS_DIR names a user's own folders (joined with ':' as in PATH). A scenario in them is
preferred to the package's scenario of the same name.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from stride.utils.user_error import UserError

DOOM, RETRO = "VizDoom/", "Retro/"  # ids of these games begin so
FOLDERS = "VIZDOOM_SCENARIOS_DIR"
MAX_NAMES = 20  # names that are shown in one line


def doom_scenarios() -> dict[str, Path]:
    """Return the name of each VizDoom scenario -> its .cfg file: "basic" -> .../basic.cfg."""
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
    """Return the games whose ROM is installed. stable-retro brings one; users import others."""
    game_names = set()
    for folder in _retro_folders():
        for rom in folder.glob("*/rom.*"):
            if rom.suffix not in (".sha", ".delta"):
                game_names.add(rom.parent.name)
    return sorted(game_names)


def retro_starts(game: str) -> list[str]:
    """Return the names of a game's saved states, in which an episode may begin."""
    return sorted({path.stem for folder in _retro_folders() for path in folder.glob(f"{game}/*.state")})


def installed_games(term: str) -> list[str]:
    """Return lines for --list-envs TERM: the installed games of each family (VizDoom, Retro) that the term names."""
    folded, lines = term.casefold(), []
    families: tuple[tuple[str, Callable[[], Iterable[str]]], ...] = ((DOOM, doom_scenarios), (RETRO, retro_games))
    for prefix, find in families:
        family = prefix.casefold()
        if term and (folded in family or folded.startswith(family)):
            names = [*find()]
            lines += [f"{prefix}NAME:ALGORITHM with NAME: {some(names)}"] if names else []
    return lines


def some(names: Sequence[str]) -> str:
    """Return the first names in one text, and how many more there are: "basic, maze and 3 more"."""
    remainder = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return f"{', '.join(names[:MAX_NAMES])}{remainder}"


def _retro_folders() -> list[Path]:
    return [*_in_package("stable_retro", "data/stable"), *_in_package("stable_retro", "data/contrib")]


def _in_package(name: str, folder: str) -> list[Path]:
    """Return the paths of a folder in an installed package, usually one; an empty list if it is not installed."""
    spec = find_spec(name)
    return [Path(package_root) / folder for package_root in (spec.submodule_search_locations or ())] if spec else []
