"""Names of a run's files and the folder of each; files with names of any other form are not ours.

Nothing is opened here. No torch.
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
PLAYED = re.compile(rf"play-({CHECKPOINT.pattern})-seed([0-9]{{1,20}})-episode([0-9]{{1,18}})\.mp4")  # by run_play.py
LINK = re.compile(r"(?:best|last)\.(?:ckpt|json)")
GROUP = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")  # runs that belong together: of one command, or of one --group
TIMED = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")  # a group that nobody gave a name
OF_GROUP = ("groups", GROUP.pattern)  # a group's folder, in that of all runs
CLAIM = re.compile(r"[0-9a-f]{32}")  # which run of a group has a config of this hash
FOLDERS = ("checkpoints", "checkpoints/segments", "videos", "logs")  # of a run


class Form(NamedTuple):
    """Pattern of a file's name, the folders of the run that it may be in (each a pattern), and how many bytes are
    read at most."""

    name: re.Pattern[str]
    folders: tuple[str, ...]
    most: int
    there_only: bool = False  # elsewhere it is no name of a run's file


FORMS = (
    Form(re.compile(r"plan\.json|report\.md|curve\.svg|runs\.csv"), OF_GROUP, 16 << 20, there_only=True),
    Form(CLAIM, (*OF_GROUP, "claims"), 4096, there_only=True),
    Form(re.compile(r"[A-Za-z0-9@][A-Za-z0-9._@-]{0,127}\.json"), ("removed",), 32 << 20, there_only=True),
    Form(re.compile(r"config\.json"), (), 16 << 20),
    Form(re.compile(r"metrics\.csv"), (), 1 << 30),
    Form(re.compile(r"metrics\.mmap"), (), 512 << 20),
    Form(re.compile(r"metrics\.damaged-[0-9]{1,6}\.csv"), (), 1 << 30),
    Form(re.compile(r"run\.log(?:\.[1-9])?"), (), 1 << 30),  # with a number: what was written before
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
    # TensorBoard's: when, then where and by which process
    Form(re.compile(r"events\.out\.tfevents\.[0-9]{1,20}(?:\.[A-Za-z0-9._-]{1,200})?"), ("logs",), 1 << 30, True),
    Form(re.compile(r"[a-z0-9_]{1,40}\.(?:csv|jsonl?|txt)"), ("logs",), 1 << 30, there_only=True),  # a sink's own
)


class FilePlace(NamedTuple):
    """Where a file of a run is: the folder that is trusted to be one, those below it, its name there."""

    root: Path
    folders: tuple[str, ...]
    name: str
    most: int


def locate(path: Path) -> FilePlace:
    """The run's folder and the way from there to the file, by the form of the name alone."""
    for form in FORMS:
        root, folders = _climb(path.parent, form.folders)
        placed = not form.there_only or len(folders) == len(form.folders)
        if placed and form.name.fullmatch(path.name):
            return FilePlace(root, folders, path.name, form.most)
    raise UserError(f"{shown(path)} is not the name of a run's file")


def _climb(folder: Path, wanted: tuple[str, ...]) -> tuple[Path, tuple[str, ...]]:
    subfolders: tuple[str, ...] = ()
    for name in wanted[::-1]:
        if not re.fullmatch(name, folder.name):
            break
        folder, subfolders = folder.parent, (folder.name, *subfolders)
    return folder, subfolders


def below(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """The run's folder, and the names from there to this one of FOLDERS, or of a group's; of any other itself."""
    for way in ((*OF_GROUP, "claims"), OF_GROUP):
        root, names = _climb(folder, way)
        if len(names) == len(way):
            return root, names
    ways = [folder.split("/") for folder in FOLDERS]
    return _climb(folder, next((tuple(way) for way in ways if way[-1] == folder.name), ()))


def shown(path: Path) -> str:
    """The path in a line: printable and not too long."""
    printable_text = "".join(c if c.isprintable() else "?" for c in str(path))
    return printable_text if len(printable_text) <= 200 else f"...{printable_text[-197:]}"


ID = re.compile(r"[A-Za-z0-9@][A-Za-z0-9._@-]{0,127}")
STAMP = re.compile(r"\d{8}-\d{6}-")


@contextmanager
def runs_in(folder: str) -> Iterator[None]:
    """Runs are made in this folder while the block lasts, by this process and by those that it starts."""
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
    """A folder for the runs of the block, deleted at its end."""
    with tempfile.TemporaryDirectory(prefix="stride-runs-") as folder, runs_in(folder):
        yield Path(folder)


def runs_root() -> Path:
    """The folder of all runs: $STRIDE_RUNS, or the project's (`default_runs`); a folder, or nothing yet."""
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
    """The id itself, if it can only name a folder directly under the runs root; whatever came from outside."""
    if not ID.fullmatch(run_id) or ".." in run_id:
        shown = run_id if len(run_id) <= 60 else f"{run_id[:57]}..."
        raise UserError(f"{shown!r} is not a run id: at most 128 letters, digits, '.', '_', '-' and '@', no '..'")
    return run_id
