"""Folders: of this program, of the user's project, and of whoever calls; and how a command is started.

The modules have the same names in a checkout and in a wheel, `stride.agents.ppo`. In a checkout the folder agents/ is
beside the folder stride/, and stride/__init__.py adds it to the package; in a wheel it is inside.

A project is the nearest pyproject.toml above with a table [tool.stride]:

    [tool.stride]
    imports = ["walker"]   modules that register environments, policies, wrappers; imported before these are looked up
    configs = "configs"    YAML files, before the shipped ones
    runs = "runs"          the folder of runs; STRIDE_RUNS overrides it

It is searched from the present folder, or from the folder that --project or STRIDE_PROJECT names; never from the folder
of a run or of anything else that others made. Modules and kernels that are run must be in a folder that nobody else can
write to.
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
HOME = PROJECT if IS_WHEEL else PROJECT / "stride"  # the folder `stride`
ROOT = HOME.parent  # on sys.path it makes `import stride` work
RUN = "run_"  # run_play.py is `stride play`
FILE, TABLE = "pyproject.toml", re.compile(rb"^\s*\[\s*tool\s*\.\s*stride\s*[\].]", re.M)
MOST_BYTES = 1 << 20
CALLED = "STRIDE_CALLED"  # set by `stride` for the processes that it becomes and starts
VARIABLE = "STRIDE_PROJECT"  # what --project sets, so that every process that is started from here knows it
MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
DEFAULTS: dict[str, object] = {"imports": [], "configs": "configs", "runs": "runs"}
UNKNOWN = 65534  # whom a user namespace does not know, such as the owner of / in a container
_callers: list[str] = []  # folders that trainings of this process were begun in, those that have not ended


def current_folder() -> Path | None:
    """The present folder, None where it has been removed."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def program(command: str) -> list[str]:
    """What starts `train` or `run_play` in a process of its own.

    Of a wheel it is a module and no file, and the present folder is not searched (-P): modules of these folders would
    hide the user's own, or the other way round.
    """
    if IS_WHEEL:
        return [sys.executable, "-P", "-m", f"stride.commands.{command}"]
    return [sys.executable, str(ROOT / f"{command}.py")]


def spelled(command: str) -> list[str]:
    """How a person types it in the folder that this process was begun in, as this process was begun: `stride train`,
    or `python train.py` of a checkout; with paths where PATH leads elsewhere, and where the checkout is another folder.
    """
    if IS_WHEEL or BY_STRIDE:
        return [_on_path("stride"), command.removeprefix(RUN)]
    return [_on_path("python"), _from_here(ROOT / f"{command}.py")]


def _on_path(name: str) -> str:
    """The program of this name beside our interpreter: its name where a shell would take that one, else its path."""
    ours = Path(sys.executable).with_name(name)
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        if os.access(os.path.join(folder, name), os.X_OK):
            return name if os.path.realpath(folder) == os.path.realpath(ours.parent) else _from_here(ours)
    return _from_here(ours)


def _from_here(path: Path) -> str:
    return shlex.quote(os.path.relpath(path, _began_in) if _began_in else str(path))


def _by_stride() -> bool:
    """Whether this process was begun as `stride WORD`, or by such a process."""
    script = next((word for word in sys.orig_argv[1:] if not word.startswith("-")), "")
    return CALLED in os.environ or os.path.basename(script) == "stride"


_began_in = current_folder()
BY_STRIDE = _by_stride()
TRAIN, PLAY, PUBLISH = (" ".join(spelled(command)) for command in ("train", "run_play", "run_publish"))
COMMAND = re.compile(r"python (train|run_play|run_inspect|run_publish)\.py")


def as_typed(text: str) -> str:
    """A help text with its commands as they are typed here: of a wheel `python run_play.py` is `stride play`."""
    return COMMAND.sub(lambda match: " ".join(spelled(match[1])), text)


def module_of(path: str) -> str:
    """The dotted name of a file that is named from the project's folder: agents/ppo.py is stride.agents.ppo."""
    return f"stride.{path.removesuffix('.py').replace('/', '.')}"


class Project(NamedTuple):
    """The checked table [tool.stride] of a pyproject.toml."""

    folder: Path
    imports: tuple[str, ...]
    configs: Path
    runs: Path


def current_project() -> Project | None:
    """The project around the folder that is named, else around the present one; None outside of all."""
    start = named_folder() or current_folder()
    return None if start is None else project_around(start)


def named_folder() -> Path | None:
    """The folder that --project or STRIDE_PROJECT names."""
    name = os.environ.get(VARIABLE)
    if not name:
        return None
    if not os.path.isdir(name):
        raise UserError(f"--project or {VARIABLE} is {name}, which is not a folder")
    return Path(name).absolute()


@cache
def project_around(folder: Path) -> Project | None:
    """The project that `folder` belongs to. A file of another user than the folder's owner names nothing to import."""
    owners = {0, os.geteuid(), folder.stat().st_uid}
    for parent in (folder, *folder.parents):
        file = parent / FILE
        if file.is_file() and file.stat().st_uid in owners:
            data = read_user_file(file, MOST_BYTES)
            if TABLE.search(data) and (found_project := read_project(file, data)):
                return found_project
    return None


def read_project(file: Path, data: bytes) -> Project | None:
    """The checked table, None where there is none after all; UserError, one line, for what it cannot say."""
    import tomllib  # outside of all projects nothing is to be read

    try:
        table = tomllib.loads(data.decode()).get("tool", {}).get("stride")
    except ValueError as error:  # no TOML, no UTF-8
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
    """From now on `folder` is the project, in this process and in every process that is started from it."""
    try:
        os.environ[VARIABLE] = os.path.abspath(folder)
    except ValueError as error:
        raise UserError(f"--project {str(folder)!r}: {error}") from error
    named_folder()


@contextmanager
def in_project(folder: str | Path) -> Iterator[None]:
    """Only inside the block `folder` is the project; "" changes nothing."""
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
    """The folder of runs without STRIDE_RUNS: in the project, else beside the checkout; of a wheel in the present one.

    The present folder decides: --project names modules and settings, and does not move the runs.
    """
    folder = current_folder()
    around = project_around(folder) if folder else None
    return around.runs if around else Path("runs") if IS_WHEEL else ROOT / "runs"


def others_may_write(folder: os.stat_result) -> str:
    """Who else can, by its mode: everybody, or a group but the primary one of this user or of its owner; else ""."""
    if folder.st_mode & stat.S_IWOTH:
        return "every user may write to it"
    if folder.st_mode & stat.S_IWGRP and folder.st_gid not in {0, os.getegid(), _primary_group(folder.st_uid)}:
        return f"the group {folder.st_gid} may write to it"
    return ""


def of_another(folder: os.stat_result, *trusted: int) -> str:
    """The owner in words, where that is neither root, this user, nor one of `trusted`; else ""."""
    return "" if folder.st_uid in {0, os.geteuid(), *trusted} else f"it belongs to the user {folder.st_uid}"


def _primary_group(user: int) -> int:
    """The group of a user; of one that this machine does not know, as in a container, the group of the same number."""
    if user == UNKNOWN:
        return 0  # may be anybody
    try:
        return pwd.getpwuid(user).pw_gid
    except KeyError:
        return user


@contextmanager
def in_callers_folder() -> Iterator[None]:
    """A training begins: paths are printed relative to the present folder, though its world may call os.chdir."""
    _callers.append(os.getcwd())
    try:
        yield
    finally:
        back_to_caller()
        _callers.pop()


def back_to_caller() -> None:
    """Enter the caller's folder again, once no world needs the one that it entered."""
    if _callers:
        with suppress(OSError):  # it is gone
            os.chdir(_callers[-1])


def from_caller(path: Path) -> str:
    """The path relative to the caller's folder."""
    return os.path.relpath(path, _callers[-1] if _callers else None)
