"""Finds folders (of Stride, of the user's project, of the caller) and says how a command is started and typed.

The modules have the same names in a checkout and in a wheel, `stride.agents.ppo`. In a checkout the folder agents/ is
beside the folder stride/, and stride/__init__.py adds it to the package; in a wheel it is inside.

A project is the nearest pyproject.toml above with a table [tool.stride]:

    [tool.stride]
    imports = ["walker"]   modules that register environments, policies, wrappers; imported before these are looked up
    configs = "configs"    YAML files, searched before those of Stride
    runs = "runs"          the folder of runs; STRIDE_RUNS overrides it

It is searched from the present folder, or from the folder that --project or STRIDE_PROJECT names; never from the folder
of a run or another file of foreign origin. Modules and kernels that are executed must be in a folder that no other user
can write to.
"""

import os
import pwd
import re
import shlex
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from stride.utils.user_error import UserError, nearest, read_user_file

PROJECT = Path(__file__).resolve().parent.parent  # the folder that holds agents/, config/, utils/, ...
IS_WHEEL = (PROJECT / "commands").is_dir()
HOME = PROJECT if IS_WHEEL else PROJECT / "stride"  # the folder of the package `stride`
ROOT = HOME.parent  # the folder that must be in sys.path for `import stride`
RUN = "run_"  # prefix of files: run_play.py is `stride play`
FILE, TABLE = "pyproject.toml", re.compile(rb"^\s*\[\s*tool\s*\.\s*stride\s*[\].]", re.M)
MAX_FILE_BYTES = 1 << 20  # of a pyproject.toml
CALLED = "STRIDE_CALLED"  # environment variable that `stride` sets for itself and the processes that it starts
VARIABLE = "STRIDE_PROJECT"  # environment variable that --project sets, so that all child processes know the project
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
DEFAULTS: dict[str, object] = {"imports": [], "configs": "configs", "runs": "runs"}
UNKNOWN = 65534  # the user id of owners that a container does not know, such as the owner of its /
_callers: list[str] = []  # present folders in which the running trainings of this process were started


def current_folder() -> Path | None:
    """Return the present folder, None if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def program(command: str) -> list[str]:
    """Return the arguments that start a command such as `train` or `run_play` in a new process.

    In a wheel the command is a module, not a file. -P stops Python from searching the present folder first: a module of
    the user there could hide one that Stride needs.
    """
    if IS_WHEEL:
        return [sys.executable, "-P", "-m", f"stride.commands.{command}"]
    return [sys.executable, str(ROOT / f"{command}.py")]


def spelled(command: str) -> list[str]:
    """Return how a person types a command in the folder where this process was started, as a list of words.

    That is `stride train` if this process was started so, else `python train.py`. The program has its path if PATH
    finds another one, and the file has its path if the checkout is in another folder.
    """
    if IS_WHEEL or BY_STRIDE:
        return [_on_path("stride"), command.removeprefix(RUN)]
    return [_on_path("python"), _from_here(ROOT / f"{command}.py")]


def _on_path(name: str) -> str:
    """Return the name of a program beside our interpreter if a shell would find that one, else its path."""
    ours = Path(sys.executable).with_name(name)
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if os.access(os.path.join(folder, name), os.X_OK):
            return name if os.path.realpath(folder) == os.path.realpath(ours.parent) else _from_here(ours)
    return _from_here(ours)


def _from_here(path: Path) -> str:
    """Return a path as typed in a shell, relative to the folder where this process was started."""
    return shlex.quote(os.path.relpath(path, _began_in) if _began_in else str(path))


def _by_stride() -> bool:
    """Say whether this process was started as `stride WORD`, or by such a process."""
    script = next((word for word in sys.orig_argv[1:] if not word.startswith("-")), "")
    return CALLED in os.environ or os.path.basename(script) == "stride"


_began_in = current_folder()
BY_STRIDE = _by_stride()
TRAIN, PLAY, PUBLISH = (" ".join(spelled(command)) for command in ("train", "run_play", "run_publish"))
COMMAND = re.compile(r"python (train|run_play|run_inspect|run_publish)\.py")


def as_typed(text: str) -> str:
    """Return a help text with commands as typed here: in a wheel `python run_play.py` becomes `stride play`."""
    return COMMAND.sub(lambda match: " ".join(spelled(match[1])), text)


def module_of(path: str) -> str:
    """Return the module name of a file of Stride: agents/ppo.py is stride.agents.ppo."""
    return f"stride.{path.removesuffix('.py').replace('/', '.')}"


class Project(NamedTuple):
    """The checked table [tool.stride] of a pyproject.toml."""

    folder: Path
    imports: tuple[str, ...]
    configs: Path
    runs: Path


def current_project() -> Project | None:
    """Return the project that contains the folder of --project, else the present folder; None if there is none."""
    start = named_folder() or current_folder()
    return None if start is None else project_around(start)


def named_folder() -> Path | None:
    """Return the folder that --project or STRIDE_PROJECT names, None without; UserError if it is no folder."""
    name = os.environ.get(VARIABLE)
    if not name:
        return None
    if not os.path.isdir(name):
        raise UserError(f"--project or {VARIABLE} is {name}, which is not a folder")
    return Path(name).absolute()


@cache
def project_around(folder: Path) -> Project | None:
    """Return the project that contains `folder`, None if there is none.

    A pyproject.toml counts only if it belongs to this user, to root or to the owner of `folder`: it names modules that
    are imported.
    """
    owners = {0, os.geteuid(), folder.stat().st_uid}
    for parent in (folder, *folder.parents):
        file = parent / FILE
        if file.is_file() and file.stat().st_uid in owners:
            data = read_user_file(file, MAX_FILE_BYTES)
            if TABLE.search(data) and (found_project := read_project(file, data)):
                return found_project
    return None


def read_project(file: Path, data: bytes) -> Project | None:
    """Return the checked table [tool.stride] of a pyproject.toml, None without one; UserError for a wrong entry."""
    import tomllib  # here, because most processes are in no project

    try:
        table = tomllib.loads(data.decode()).get("tool", {}).get("stride")
    except ValueError as error:  # not TOML, or not UTF-8
        raise UserError(f"{file}: {error}") from error
    if table is None:
        return None
    for key in table:
        if key not in DEFAULTS:
            raise UserError(f"{file}: [tool.stride] has no key {key!r}{nearest(key, DEFAULTS)}")
    values = DEFAULTS | table
    imports = values["imports"]
    if not isinstance(imports, list) or not all(isinstance(name, str) and MODULE.fullmatch(name) for name in imports):
        raise UserError(f'{file}: [tool.stride] imports must be a list such as ["walker"], not {imports!r}')
    for key in ("configs", "runs"):
        if not isinstance(values[key], str) or not values[key]:
            raise UserError(f"{file}: [tool.stride] {key} must be a folder, not {values[key]!r}")
    folder = file.parent
    return Project(folder, tuple(imports), folder / str(values["configs"]), folder / str(values["runs"]))


def name_project(folder: str | Path) -> None:
    """Make `folder` the project of this process and of all child processes that start from now on."""
    try:
        os.environ[VARIABLE] = os.path.abspath(folder)
    except ValueError as error:
        raise UserError(f"--project {str(folder)!r}: {error}") from error
    named_folder()


@contextmanager
def in_project(folder: str | Path) -> Iterator[None]:
    """Make `folder` the project inside the block only; "" changes nothing."""
    before = os.environ.get(VARIABLE)
    try:
        if folder:
            name_project(folder)
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        if before is not None:
            os.environ[VARIABLE] = before


def default_runs() -> Path:
    """Return the folder of runs if STRIDE_RUNS is not set.

    It is the one that the project around the present folder names, else runs/ in the checkout, or for a wheel runs/ in
    the present folder. --project does not change it: that names modules and settings only.
    """
    folder = current_folder()
    around = project_around(folder) if folder else None
    return around.runs if around else Path("runs") if IS_WHEEL else ROOT / "runs"


def others_may_write(folder: os.stat_result) -> str:
    """Say in words who else may write to a folder, by its mode; "" if nobody.

    The primary groups of this user and of the folder's owner are allowed.
    """
    if folder.st_mode & stat.S_IWOTH:
        return "every user may write to it"
    if folder.st_mode & stat.S_IWGRP and folder.st_gid not in {0, os.getegid(), _primary_group(folder.st_uid)}:
        return f"the group {folder.st_gid} may write to it"
    return ""


def of_another(folder: os.stat_result, *trusted: int) -> str:
    """Say in words who owns a folder, if not root, this user or a user id in `trusted`; else ""."""
    return "" if folder.st_uid in {0, os.geteuid(), *trusted} else f"it belongs to the user {folder.st_uid}"


def _primary_group(user: int) -> int:
    """Return the primary group of a user id; if this machine does not know the user (container), the same id."""
    if user == UNKNOWN:
        return 0  # the owner may be anybody, so trust no group of theirs
    try:
        return pwd.getpwuid(user).pw_gid
    except KeyError:
        return user


@contextmanager
def in_callers_folder() -> Iterator[None]:
    """Put around a training: print paths relative to the present folder, even if the environment calls os.chdir."""
    _callers.append(os.getcwd())
    try:
        yield
    finally:
        back_to_caller()
        _callers.pop()


def back_to_caller() -> None:
    """Change to the caller's folder again, when the environment that changed it is closed."""
    if _callers:
        with suppress(OSError):  # the folder was deleted
            os.chdir(_callers[-1])


def from_caller(path: Path) -> str:
    """Return the path relative to the caller's folder."""
    return os.path.relpath(path, _callers[-1] if _callers else None)
