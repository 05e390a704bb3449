"""Which run of a group has exactly this config: whoever asks, on whichever machine, is told of the same one. No torch.

A claim is a file, named by the config's hash, that holds the run's id. It is made in one instant and never changed, so
of two processes that want to begin one run the second learns of the first's. It says nothing of who trains it: that is
the run's lock.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from stride.runstore import run_files
from stride.runstore.run_dir import root_of_groups
from stride.runstore.run_names import GROUP
from stride.runstore.runs_root import check_id
from stride.utils.user_error import UserError


def key_of(config: Mapping[str, object]) -> str:
    """The hash of a config in plain data, its seed included."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:32]


def claimed(group: str, config: Mapping[str, object]) -> str:
    """The id of the group's run with this config, "" where nobody has begun it."""
    return run_of(group, key_of(config))


def run_of(group: str, key: str) -> str:
    """The same by the config's hash."""
    path = _path(group, key)
    return _read(path) if run_files.exists(path) else ""


def claim(group: str, config: Mapping[str, object], run_id: str) -> str:
    """Have the group's run with this config be called `run_id`, or learn what it is called already."""
    path = _path(group, key_of(config))
    try:
        run_files.make_folder(path.parent)
        return run_id if run_files.put(path, f"{run_id}\n") else _read(path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error


def check_group(name: str) -> str:
    """The name itself, if it can only name a folder in that of all groups."""
    if not GROUP.fullmatch(name):
        shown = name if len(name) <= 60 else f"{name[:57]}..."
        raise UserError(
            f"--group {shown!r}: a group's name has at most 64 letters, digits, '.', '_' and '-', and begins with a "
            "letter or digit"
        )
    return name


def _path(group: str, key: str) -> Path:
    return root_of_groups() / check_group(group) / "claims" / key


def _read(path: Path) -> str:
    return check_id(run_files.read_bytes(path).decode(errors="replace").strip())
