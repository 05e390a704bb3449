"""Which worlds of VizDoom and stable-retro lie on this machine, found by their files: nothing is imported.

VIZDOOM_SCENARIOS_DIR names folders of one's own (joined as in PATH); their scenarios win over the package's.
"""

import os
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

DOOM, RETRO = "VizDoom/", "Retro/"
FOLDERS = "VIZDOOM_SCENARIOS_DIR"
FEW = 20  # names shown at most


def doom_scenarios() -> dict[str, Path]:
    """Name -> its .cfg: `basic` of basic.cfg."""
    own = [Path(folder) for folder in os.environ.get(FOLDERS, "").split(os.pathsep) if folder]
    found: dict[str, Path] = {}
    for folder in (*own, *(package / "scenarios" for package in _package("vizdoom"))):
        for path in sorted(folder.glob("*.cfg")):
            found.setdefault(path.stem, path.absolute())
    return found


def retro_games() -> list[str]:
    """Games that stable-retro can play here: those whose ROM is there; it brings one, others are imported."""
    roms = (rom for folder in _retro_folders() for rom in folder.glob("*/rom.*"))
    return sorted({rom.parent.name for rom in roms if rom.suffix not in (".sha", ".delta")})


def retro_starts(game: str) -> list[str]:
    """Where an episode of a game may begin, by the names of its saved states."""
    return sorted({path.stem for folder in _retro_folders() for path in folder.glob(f"{game}/*.state")})


def told_here(term: str) -> list[str]:
    """Lines for --list-envs TERM: what there is of a family, where the term names it."""
    wanted = term.casefold()
    families = ((DOOM, [*doom_scenarios()]), (RETRO, retro_games())) if wanted else ()
    return [
        f"{prefix}NAME:ALGORITHM here: {some(names)}"
        for prefix, names in families
        if names and (wanted in prefix.casefold() or wanted.startswith(prefix.casefold()))
    ]


def some(names: Sequence[str]) -> str:
    """The first few, and how many more there are."""
    more = f" and {len(names) - FEW} more" if len(names) > FEW else ""
    return f"{', '.join(names[:FEW])}{more}"


def _retro_folders() -> list[Path]:
    return [package / "data" / kind for package in _package("stable_retro") for kind in ("stable", "contrib")]


def _package(name: str) -> Iterator[Path]:
    """The folder of an installed package, none where it is not installed."""
    found = find_spec(name)
    yield from map(Path, (found.submodule_search_locations or ()) if found else ())
