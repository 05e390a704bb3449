"""Finished runs to look at: made once a machine of the product's sources as they are, in the user's cache.

    run = gallery("ppo")                     a run to read: this process's own copy, whose files are read-only
    run = gallery_copy("ppo", tmp_path)      a run to change, in a folder of runs of one's own; call it again for more

$STRIDE_RUNS is left alone: `monkeypatch.setenv("STRIDE_RUNS", str(run.path.parent))`. Ids are always the same, and
`@last` is the run copied last. A run is made when it is first asked for, in a process of its own under a lock; what
is in the cache counts only while its files are those that its marker, written last, has the hashes of.
"""

import atexit
import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib.metadata import version
from itertools import count
from pathlib import Path
from unittest.mock import patch

from commands import run_command
from tiny_runs import PIXELS, REPLAY, SCREEN, SHORT, tiny_dreamer, tiny_run

from stride.runstore.run_dir import LAST, STAMP, RunDir
from stride.utils.durable_file import relink, write_json
from stride.utils.kernel_folder import NAME
from stride.utils.places import PROJECT, ROOT

HERE = Path(__file__).resolve()
SOURCES = (".py", ".yaml", ".json", ".cu", ".cuh", ".h")
NO_PRODUCT = ("tests", "lab", "docs", "scripts")  # folders beside those of the product
LIBRARIES = ("torch", "numpy", "numba", "gymnasium", "lightning")
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "stride-tests" / "gallery"
UNUSED = 3 * 24 * 3600  # seconds after which a gallery of other sources is removed
MARKER = "made.json"
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("STRIDE_", "WANDB_"))}
Contents = dict[str, str]

_copies: dict[str, tuple[RunDir, Contents]] = {}


def gallery(name: str) -> RunDir:
    """The run of that name in RECIPES, to be read."""
    if name not in _copies:
        run = gallery_copy(name, _own_folder() / name)
        for path in _files(run.path.parent):
            if not path.is_symlink():
                path.chmod(0o444)
        _copies[name] = run, _contents(run.path.parent)
    run, contents = _copies[name]
    assert _contents(run.path.parent) == contents, f"a test has changed the run {name!r}: it is to take gallery_copy"
    return run


def gallery_copy(name: str, runs: Path) -> RunDir:
    """That run in a folder of runs where it may be changed; of several of a recipe the last."""
    return gallery_copies(name, runs)[-1]


def gallery_copies(name: str, runs: Path) -> list[RunDir]:
    """All runs of a recipe in the order in which they were made, and what is stored of their group."""
    assert name in RECIPES, f"{name!r} is none of {', '.join(RECIPES)}"
    folder = CACHE / _key()
    if not folder.exists():
        _remove_unused()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.utime(folder)
    for _ in range(3):
        with _locked(folder / f"{name}.lock", fcntl.LOCK_SH):
            if _is_sound(folder / name):
                return _copy(folder / name / "runs", runs)
        _make_in_a_process(name, folder)
    raise AssertionError(f"{folder / name} is changed as soon as it is made")


def _copy(source: Path, runs: Path) -> list[RunDir]:
    shutil.copytree(source, runs, symlinks=True, dirs_exist_ok=True, ignore=shutil.ignore_patterns(LAST))
    relink(runs / LAST, runs / os.readlink(source / LAST))
    return [RunDir(runs / path.name) for path in sorted(source.iterdir()) if STAMP.match(path.name)]


@cache
def _own_folder() -> Path:
    """Where this process has its copies."""
    folder, owner = Path(tempfile.mkdtemp(prefix="stride-gallery-")), os.getpid()
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(folder, ignore_errors=True))
    return folder


@cache
def _key() -> str:
    """A hash of all that a run follows from."""
    libraries = [f"{library} {version(library)}" for library in LIBRARIES]
    digest = hashlib.sha256(repr((sys.version, NAME, libraries)).encode())
    for path in (HERE, HERE.with_name("tiny_runs.py"), *_product_files()):
        digest.update(f"{path.name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _product_files() -> Iterator[Path]:
    for folder in sorted(PROJECT.iterdir()):
        if (folder / "__init__.py").is_file() and folder.name not in NO_PRODUCT:
            yield from sorted(path for path in folder.rglob("*") if path.suffix in SOURCES and path.is_file())


def _remove_unused() -> None:
    """Whoever uses a gallery sets its folder's time."""
    for folder in CACHE.glob("*/"):
        if time.time() - folder.stat().st_mtime > UNUSED:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(path: Path, kind: int) -> Iterator[None]:
    with open(path, "a") as file:
        fcntl.flock(file, kind)
        yield


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_symlink() or path.is_file())


def _contents(folder: Path) -> Contents:
    """The hash of each file, and where each link leads to."""
    contents = {}
    for path in _files(folder):
        data = os.readlink(path).encode() if path.is_symlink() else path.read_bytes()
        contents[str(path.relative_to(folder))] = hashlib.sha256(data).hexdigest()
    return contents


def _is_sound(item: Path) -> bool:
    try:
        return bool(json.loads((item / MARKER).read_text()) == _contents(item / "runs"))
    except (OSError, ValueError):
        return False


def _make_in_a_process(name: str, folder: Path) -> None:
    environment = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(HERE.parent)]), "OMP_NUM_THREADS": "1"}
    done = run_command(HERE, name, folder, cwd=folder, env=environment, timeout=600)
    assert done.returncode == 0, f"the gallery's run {name!r} cannot be made:\n{done.stdout}{done.stderr}"


def make(name: str, folder: Path) -> None:
    """Train what is not there; of several processes the others wait and find it."""
    item = folder / name
    with _locked(folder / f"{name}.lock", fcntl.LOCK_EX):
        if _is_sound(item):
            return
        shutil.rmtree(item, ignore_errors=True)
        (item / "runs").mkdir(parents=True)
        os.environ["STRIDE_RUNS"] = str(item / "runs")
        numbers = count(1)
        number = [*RECIPES].index(name) + 1
        stamp = f"20260101-00{number:02d}"
        with patch("stride.runstore.run_dir._stamped", lambda words: f"{stamp}{next(numbers):02d}-{words}-aaaa"):
            RECIPES[name]()
        write_json(item / MARKER, _contents(item / "runs"))


def _seeds() -> None:
    for seed in (1, 2):
        tiny_run("CartPole-v1:ppo", "--group", "seeds", seed=seed)


RECIPES: dict[str, Callable[[], object]] = {
    "ppo": tiny_run,
    "other": partial(tiny_run, gamma=0.9),
    "filmed": partial(tiny_run, video_freq_epochs=2),
    "pendulum": partial(tiny_run, "Pendulum-v1:ppo", normalize_obs="rolling"),
    "taxi": partial(tiny_run, "Taxi-v4:ppo", action_mask="true", **SHORT),
    "pixels": partial(tiny_run, **PIXELS, **SHORT),
    "dqn": partial(tiny_run, "CartPole-v1:dqn", **REPLAY),
    "memory": partial(tiny_run, policy="transformer", hidden_dims=8, **{"policy_kwargs.window": 6}, **SHORT),
    "dreamer": tiny_dreamer,
    "dreamer_pixels": partial(tiny_dreamer, **SCREEN, max_timesteps=48, buffer_size=400, learning_starts=32),
    "seeds": _seeds,
}

if __name__ == "__main__":
    make(sys.argv[1], Path(sys.argv[2]))
