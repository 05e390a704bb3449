"""A disk that fills up and a folder that cannot be written to: the previous checkpoint loads, the error is one line.

    python -m lab.faults disk --levels 20        (as root: it mounts a small tmpfs)

The filesystem has room for less than a run, drawn over its size; then there is more room, and the run goes on. Then a
person of another user, who may read the runs folder and not write to it, trains, resumes and forks.
"""

import os
import random
from pathlib import Path

import hydra.core.override_parser.overrides_parser  # noqa: F401  # another user may not read where it lies

from lab.faults.circumstances import FUSED, limited
from lab.faults.rig import TINY, Tally, Told, finish, refused_in_a_line, straight
from stride.commands import train

NOBODY = 65534
COMMANDS = (TINY, ("--resume", "@last", "-q"), ("--resume", "@last", "--checkpoint", "best", "-q", "seed=1"))


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Told:
    levels, tally, train.EXTRA_BYTES = counts["levels"], Tally(), 0  # else nothing would begin that cannot end
    whole = straight(FUSED, folder / "straight")
    needed = sum(path.stat().st_size for path in whole.path.rglob("*") if path.is_file() and not path.is_symlink())
    for level in range(levels):
        tally.add(f"level {level}", limited(("room", needed * (level + 1) // (levels + 1)), folder))
    line = f"a disk with room for 1/{levels + 1} to {levels}/{levels + 1} of a run: {tally} ended with one line and "
    line += "complete checkpoints; resumed once there was room, they ended in the same bits as an undisturbed run"
    refused = read_only(folder)
    words = "new, resumed and forked runs in a read-only folder were refused with exit code 2 and the folder's name"
    return [line, f"{refused} {words}, in a process of another user"], tally.good and refused.good


def read_only(folder: Path) -> Tally:
    root, tally = folder / "locked" / "runs", Tally()
    root.mkdir(parents=True)
    straight(TINY, root)
    for path in (folder, root.parent, *root.parent.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o555 if path.is_dir() else 0o444)
    for words in COMMANDS:
        ended = finish(words, root, lambda: os.setuid(NOBODY))
        good = ended.code == 2 and "cannot write" in ended.said and str(root) in ended.said
        tally.add(f"read-only, {words}", "" if good and refused_in_a_line(ended.said) else f"{ended.code} {ended.said}")
    return tally
