"""Tests a full disk and a read-only folder: the previous checkpoint must load, and the error must be one line.

    python -m lab.faults disk --levels 20        (as root: it mounts a small tmpfs)

The filesystem first has less room than a run needs, in even steps; then it gets more room, and the run is resumed.
After that, another user who may only read the runs folder trains, resumes and forks.
"""

import os
import random
from pathlib import Path

import hydra.core.override_parser.overrides_parser  # noqa: F401  # imported now: another user may not read its folder

from lab.faults.circumstances import FUSED, limited
from lab.faults.rig import TINY, Report, Tally, finish, refused_in_a_line, undisturbed
from stride.commands import train

NOBODY = 65534  # user id without any rights
COMMANDS = (TINY, ("--resume", "@last", "-q"), ("--resume", "@last", "--checkpoint", "best", "-q", "seed=1"))


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    # EXTRA_BYTES is 0, or a training refuses to start on a disk that is too small
    levels, tally, train.EXTRA_BYTES = counts["levels"], Tally(), 0
    reference = undisturbed(FUSED, folder / "straight")
    needed = sum(path.stat().st_size for path in reference.path.rglob("*") if path.is_file() and not path.is_symlink())
    for level in range(levels):
        tally.add(f"level {level}", limited(("room", needed * (level + 1) // (levels + 1)), folder))
    line = f"a disk with room for 1/{levels + 1} to {levels}/{levels + 1} of a run: {tally} ended with one line and "
    line += "complete checkpoints; resumed once there was room, they ended in the same bits as an undisturbed run"
    refusals = read_only(folder)
    words = "new, resumed and forked runs in a read-only folder were refused with exit code 2 and the folder's name"
    return [line, f"{refusals} {words}, in a process of another user"], tally.good and refusals.good


def read_only(folder: Path) -> Tally:
    """Run COMMANDS as another user on a read-only runs folder; each must be refused in one line."""
    root, tally = folder / "locked" / "runs", Tally()
    root.mkdir(parents=True)
    undisturbed(TINY, root)
    for path in (folder, root.parent, *root.parent.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o555 if path.is_dir() else 0o444)
    for words in COMMANDS:
        ended = finish(words, root, lambda: os.setuid(NOBODY))
        good = ended.code == 2 and "cannot write" in ended.said and str(root) in ended.said
        tally.add(f"read-only, {words}", "" if good and refused_in_a_line(ended.said) else f"{ended.code} {ended.said}")
    return tally
