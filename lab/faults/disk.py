"""A disk that fills up and a folder that cannot be written to: the previous checkpoint loads, the error is one line.

    python -m lab.faults disk --levels 20        (as root: it mounts a small tmpfs)

The filesystem is filled up to a level below which training fits, drawn over the size of a run, and trained on.
"""

import ctypes
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import hydra.core.override_parser.overrides_parser  # noqa: F401  # another user may not read where it lies

from lab.faults.rig import TINY, faults, finish, last_run, refused_in_a_line
from stride.agents.trained.loading import load_run
from stride.commands import train
from stride.runstore import checkpoint_set

SIZE = 30 << 20
NOBODY = 65534
PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2
WORDS = (*(word for word in TINY if "keep" not in word), "checkpoint_keep_last=50", "hidden_dims=[128,128]")


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    levels = counts["levels"]
    mount = folder / "small"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", mount], capture_output=True, text=True
    )
    if done.returncode:
        return [f"not run: a tmpfs could not be mounted here ({done.stderr.strip()})"], False
    try:
        lines, good = filled(levels, mount)
    finally:
        subprocess.run(["umount", mount], check=True)
    more, fine = read_only(folder)
    return lines + more, good and fine


def filled(levels: int, mount: Path) -> tuple[list[str], bool]:
    """Room for so much of a run, from hardly a checkpoint to nearly all of it."""
    train.MARGIN = 0  # else nothing would begin that cannot end
    ended = finish(WORDS, mount / "runs")
    assert ended.code == 0, ended.said
    needed = sum(
        path.stat().st_size for path in (mount / "runs").rglob("*") if path.is_file() and not path.is_symlink()
    )
    kept = one_line = resumed = 0
    for level in range(levels):
        shutil.rmtree(mount / "runs")
        room = int(needed * (level + 1) / (levels + 1))
        filler = mount / "filler"
        with open(filler, "wb") as file:
            file.write(b"\0" * max(0, shutil.disk_usage(mount).free - room))
        ended = finish(WORDS, mount / "runs")
        one_line += ended.code in (1, 2) and refused_in_a_line(ended.said)
        run = last_run(mount / "runs")
        before = run is not None and bool(checkpoint_set.names(run.checkpoints))
        if before and run is not None:
            kept += not faults(run) and load_run(str(run.path), "last").progress["env_steps"] > 0
        else:
            kept += ended.code != 0  # it ended before there was one
        if ended.code == 0 or not one_line:
            print(f"level {level}: {ended.code} {ended.said[-400:]}")
        filler.unlink()
        words = ["--resume", "@last", "-q"] if run is not None else list(WORDS)
        resumed += finish(words, mount / "runs").code == 0
    lines = [
        f"a disk with room for 1/{levels + 1} to {levels}/{levels + 1} of a run: **{kept} of {levels}** times the "
        f"last checkpoint was whole and loaded (or none was yet), {one_line} of {levels} ended in one line",
        f"{resumed} of {levels} went on to their end once there was room",
    ]
    return lines, kept == one_line == resumed == levels


def read_only(folder: Path) -> tuple[list[str], bool]:
    """A person who may read the runs folder and not write to it; the whole command, imports and all."""
    root = folder / "locked" / "runs"
    root.mkdir(parents=True)
    ended = finish(TINY, root)
    assert ended.code == 0
    for path in (folder, root.parent, *root.parent.rglob("*")):
        if not path.is_symlink():
            # root may write all the same: hence two ways not to be root
            path.chmod(0o555 if path.is_dir() else 0o444)
    commands = (TINY, ("--resume", "@last", "-q"), ("--resume", "@last", "--checkpoint", "best", "-q", "seed=1"))
    found, slowest = 0, 0.0
    for words in commands:
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, train.__file__, *words], capture_output=True, text=True, preexec_fn=like_anybody,
            env={**os.environ, "STRIDE_RUNS": str(root)},
        )  # fmt: skip
        slowest = max(slowest, time.monotonic() - began)
        found += refused(words, done.returncode, done.stdout + done.stderr, root)
    other = 0
    for words in commands:
        ended = finish(words, root, lambda: os.setuid(NOBODY))
        other += refused(words, ended.code, ended.said, root)
    what = "read-only runs folder (new, resumed, forked run): refused with exit code 2 and the folder's name"
    lines = [
        f"{what} {found} of 3 times by a process that may not override permissions, {slowest:.1f} s from the start of "
        "Python to its end",
        f"{other} of 3 times by a process of another user (uid {NOBODY}), forked after the imports",
    ]
    return lines, found == other == 3


def like_anybody() -> None:
    """Takes from root what nobody else has: to write where permissions do not let it."""
    for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def refused(words: tuple[str, ...], code: int, said: str, root: Path) -> bool:
    good = code == 2 and "cannot write" in said and str(root) in said and refused_in_a_line(said)
    if not good:
        print(f"read-only, {words}: {code} {said}")
    return good
