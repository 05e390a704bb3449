"""The names that files of a run may have, the folder of each, and the root of all runs. run_files uses it.

A file whose name has none of these forms is not a file of a run. Nothing is opened here. No torch.
"""

import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from stride.utils.places import default_runs
from stride.utils.user_error import UserError

SEGMENT = re.compile(r"[0-9]{1,18}-[0-9]{1,18}-[0-9a-f]{16}\.rows")  # first, last and hash of a replay memory's rows
CHECKPOINT = re.compile(r"(?:epoch|step)=[0-9]{1,18}")
PLAYED = re.compile(
    rf"play-({CHECKPOINT.pattern})-seed([0-9]{{1,20}})-episode([0-9]{{1,18}})\.mp4"
)  # run_play.py's video
LINK = re.compile(r"(?:best|last)\.(?:ckpt|json)")
GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # name of a group: runs of one command, or of one --group
TIMED = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")  # name of a group that was started without --group
OF_GROUP = ("groups", GROUP.pattern)  # patterns of the folders from the runs root to a group's folder
CLAIM = re.compile(r"[0-9a-f]{32}")  # file named by a config's hash; it contains the id of the group's run with it
FOLDERS = ("checkpoints", "checkpoints/segments", "videos", "logs")  # in a run's folder


class Form(NamedTuple):
    """A kind of file: pattern of its name, patterns of the folders between the run and it, limit in bytes."""

    name: re.Pattern[str]
    folders: tuple[str, ...]
    most: int
    there_only: bool = False  # whether the name counts only in these folders; else also directly in the run's folder


FORMS = (
    Form(re.compile(r"plan\.json|report\.md|curve\.svg|runs\.csv"), OF_GROUP, 16 << 20, there_only=True),
    Form(CLAIM, (*OF_GROUP, "claims"), 4096, there_only=True),
    Form(re.compile(r"[A-Za-z0-9@][A-Za-z0-9._@-]{0,127}\.json"), ("removed",), 32 << 20, there_only=True),
    Form(re.compile(r"config\.json"), (), 16 << 20),
    Form(re.compile(r"metrics\.csv"), (), 1 << 30),
    Form(re.compile(r"metrics\.mmap"), (), 512 << 20),
    Form(re.compile(r"metrics\.damaged-[0-9]{1,6}\.csv"), (), 1 << 30),
    Form(re.compile(r"run\.log(?:\.[1-9])?"), (), 1 << 30),  # with a number: an older part
    Form(re.compile(r"report\.md"), (), 16 << 20),
    Form(re.compile(r"labels\.json"), (), 1 << 16),
    Form(re.compile(r"dreams\.json"), (), 1 << 20),
    Form(re.compile(r"\.lock|\.clock"), (), 4096),
    Form(re.compile(rf"(?:{CHECKPOINT.pattern}|best|last)\.json"), ("checkpoints",), 16 << 20),
    Form(re.compile(rf"(?:{CHECKPOINT.pattern}|best|last)\.ckpt"), ("checkpoints",), 16 << 30),
    Form(SEGMENT, ("checkpoints", "segments"), 4 << 30),
    Form(re.compile(r"epoch=[0-9]{1,18}\.mp4"), ("videos",), 4 << 30),
    Form(PLAYED, ("videos",), 4 << 30),
    Form(re.compile(rf"{TIMED.pattern}\.json"), ("groups",), 1 << 20),  # a group's plan before groups had folders
    Form(re.compile(r"curve\.svg|debug\.csv|trace\.json"), ("logs",), 1 << 30),
    # TensorBoard's: time, then host and process
    Form(re.compile(r"events\.out\.tfevents\.[0-9]{1,20}(?:\.[A-Za-z0-9._-]{1,200})?"), ("logs",), 1 << 30, True),
    Form(re.compile(r"[a-z0-9_]{1,40}\.(?:csv|jsonl?|txt)"), ("logs",), 1 << 30, there_only=True),  # any sink's file
)


class FilePlace(NamedTuple):
    """Where a file is: the run's folder (trusted), the folders below it, the file's name, its limit in bytes."""

    root: Path
    folders: tuple[str, ...]
    name: str
    most: int


def locate(path: Path) -> FilePlace:
    """Split a path into the run's folder and the way to the file, by the name's form; UserError if none fits."""
    for form in FORMS:
        root, folders = _climb(path.parent, form.folders)
        placed = not form.there_only or len(folders) == len(form.folders)
        if placed and form.name.fullmatch(path.name):
            return FilePlace(root, folders, path.name, form.most)
    raise UserError(f"{shown(path)} is not the name of a run's file")


def _climb(folder: Path, patterns: tuple[str, ...]) -> tuple[Path, tuple[str, ...]]:
    """Go up from `folder` while its name matches the last one of `patterns`; return the end and the names passed."""
    subfolders: tuple[str, ...] = ()
    for pattern in patterns[::-1]:
        if not re.fullmatch(pattern, folder.name):
            break
        folder, subfolders = folder.parent, (folder.name, *subfolders)
    return folder, subfolders


def below(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """Return the run's (or runs) folder and the names from there to `folder`, which may be one of FOLDERS or a group's.

    Any other folder is returned as it is, with no names.
    """
    for folders in ((*OF_GROUP, "claims"), OF_GROUP):
        root, names = _climb(folder, folders)
        if len(names) == len(folders):
            return root, names
    folder_lists = [folder.split("/") for folder in FOLDERS]
    return _climb(folder, next((tuple(folders) for folders in folder_lists if folders[-1] == folder.name), ()))


def shown(path: Path) -> str:
    """Return the path for a message: printable, and at most 200 characters."""
    printable_text = "".join(c if c.isprintable() else "?" for c in str(path))
    return printable_text if len(printable_text) <= 200 else f"...{printable_text[-197:]}"


ID = re.compile(r"[A-Za-z0-9@][A-Za-z0-9._@-]{0,127}")
STAMP = re.compile(r"\d{8}-\d{6}-")


@contextmanager
def runs_in(folder: str) -> Iterator[None]:
    """Set the runs root to this folder inside the block, for this process and those that it starts."""
    before = os.environ.get("STRIDE_RUNS")
    os.environ["STRIDE_RUNS"] = folder
    try:
        yield
    finally:
        os.environ.pop("STRIDE_RUNS")
        if before is not None:
            os.environ["STRIDE_RUNS"] = before


@contextmanager
def temporary_runs() -> Iterator[Path]:
    """Yield a temporary runs root, which is deleted at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="stride-runs-") as folder, runs_in(folder):
        yield Path(folder)


def runs_root() -> Path:
    """Return the folder of all runs: $STRIDE_RUNS, or the project's (`default_runs`). It may not exist yet.

    Raises UserError if it is not a folder or cannot be read.
    """
    from_environment = os.environ.get("STRIDE_RUNS")
    root = Path(from_environment or default_runs()).absolute()
    description = "STRIDE_RUNS is" if from_environment else "the folder of runs is"
    try:
        if not stat.S_ISDIR(os.stat(root).st_mode):
            raise UserError(f"{description} {root}, which is not a folder")
    except FileNotFoundError:
        if root.is_symlink():
            raise UserError(f"{description} {root}, a broken link") from None
        return root
    except OSError as error:
        raise UserError(f"{description} {root}: {error.strerror}") from error
    return root


def check_id(run_id: str) -> str:
    """Return the id if it can only name a folder directly below the runs root, else raise UserError."""
    if not ID.fullmatch(run_id) or ".." in run_id:
        shown = run_id if len(run_id) <= 60 else f"{run_id[:57]}..."
        raise UserError(f"{shown!r} is not a run id: at most 128 letters, digits, '.', '_', '-' and '@', no '..'")
    return run_id
