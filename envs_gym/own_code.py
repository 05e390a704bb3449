"""Imports the user's own modules, for a training and for a run that was trained on this machine.

The folders with the modules of a run are stored in the user's state folder (~/.local/state/stride/projects), not beside
the run: a folder of runs may come from somebody else, and must not decide which code is imported. Each run has a file
of about 200 bytes, named by a hash of the run's resolved path. It is replaced as a whole, so writers need no lock.
Inside `stride` no symbolic link is followed, and nobody but the user may write to the folder.
"""

import hashlib
import json
import logging
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from stride.config.plugins import named_modules
from stride.envs_gym.make import UnknownEnvError, find_spec, import_module
from stride.runstore.run_dir import RunDir
from stride.utils.durable_file import replacing_in
from stride.utils.own_modules import can_import, folders_of, import_refusal, snapshot, use_folders, warn_unused
from stride.utils.places import of_another, others_may_write
from stride.utils.user_error import UserError

PROJECT_HINT = "; --project FOLDER gives the folder of the run's code"
STATE_FOLDERS, PRIVATE_MODE = ("stride", "projects"), 0o700
MAX_FILE_BYTES = 1 << 16
OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
log = logging.getLogger("stride")


def import_own_modules(*folders: Path) -> None:
    """Make modules of the project, of `folders` and of the working directory importable; import the project's list.

    Call this only for a config that the user wrote or trained, never for one from somebody else.
    """
    modules = use_folders(*folders)
    warn_unused(*folders)
    for module in modules.imports:
        import_module(f"{module}:")


def import_code_of(run: RunDir) -> None:
    """Import the modules of a run that was trained on this machine, from the folders that it was trained with.

    UserError, with a hint to --project, for modules or environments that are not found.
    """
    folders, plain = recall(run.path), run.facts().get("config")
    import_own_modules(*folders)
    if not isinstance(plain, Mapping):
        return
    problems = ""
    for folder in folders:
        if problem := import_refusal(folder):
            problems += f"; it was trained with {folder}: {problem}"
    for module, key in named_modules(plain).items():
        if key != "env_kwargs" and not can_import(module.partition(".")[0]):
            raise UserError(f"{run.id}: {key} names the module {module!r}, which was not found{problems}{PROJECT_HINT}")
    try:
        find_spec(str(plain.get("env_id")))
    except UnknownEnvError as error:
        raise UserError(f"{run.id}: {error}{problems}; is it registered by your project?{PROJECT_HINT}") from error


def remember_code_of(run: RunDir, plain: Mapping[str, object]) -> None:
    """Store, for `import_code_of`, the folders of the user's own modules that this config needs."""
    if folders := folders_of([*named_modules(plain), *snapshot().imports]):
        remember(run.path, folders)


def remember(run: Path, folders: Sequence[Path]) -> None:
    """Store that this run was trained with modules of these folders; where that fails, only a warning is logged."""
    name, run_path = _key(run)
    if list(folders) == recall(run):
        return
    try:
        with _state_folder(make=True) as state, replacing_in(state, name) as stream:
            resolved = [str(folder.resolve()) for folder in folders]
            stream.write(json.dumps({"run": run_path, "folders": resolved}).encode())
    except OSError as error:
        problem = f"the folders of its modules could not be stored ({error.strerror or error})"
        log.warning("%s: use --project %s to play or resume it", problem, folders[0])


def recall(run: Path) -> list[Path]:
    """Return the folders that `remember` stored for the run, as absolute paths; [] where there are none."""
    name, run_path = _key(run)
    with suppress(OSError, ValueError, RecursionError), _state_folder() as state:
        descriptor = os.open(name, OPEN_FLAGS | os.O_NONBLOCK | os.O_NOCTTY, dir_fd=state)
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return []
            match json.loads(stream.read(MAX_FILE_BYTES)):
                case {"run": str(path), "folders": [*folders]} if path == run_path:
                    return [Path(folder) for folder in folders if isinstance(folder, str) and os.path.isabs(folder)]
    return []


def _key(run: Path) -> tuple[str, str]:
    """Return the name of the run's file in the state folder, and the run's resolved path."""
    run_path = str(run.resolve())
    return f"{hashlib.sha256(os.fsencode(run_path)).hexdigest()[:32]}.json", run_path


@contextmanager
def _state_folder(make: bool = False) -> Iterator[int]:
    """Open the state folder and yield its descriptor; OSError where it is missing, or others may write to it."""
    homes = os.environ.get("XDG_STATE_HOME", ""), os.path.expanduser("~/.local/state")
    home = next((path for path in homes if os.path.isabs(path)), "")
    if not home:
        raise FileNotFoundError("there is no home folder")
    if make:
        os.makedirs(home, mode=PRIVATE_MODE, exist_ok=True)
    descriptor = os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in STATE_FOLDERS:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(name, PRIVATE_MODE, dir_fd=descriptor)
            parent = descriptor
            descriptor = os.open(name, OPEN_FLAGS | os.O_DIRECTORY, dir_fd=parent)
            os.close(parent)
            status = os.fstat(descriptor)
            if problem := of_another(status) or others_may_write(status):
                raise PermissionError(f"{home}/stride: {problem}")
        yield descriptor
    finally:
        os.close(descriptor)
