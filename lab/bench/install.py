"""What it costs to have Stride:   python -m lab.bench.install [--install]   Rows of a table.

The wheel's size, its installation alone, `import stride`, `stride --help`. With --install also what a newcomer waits
for: all dependencies from where pip and uv are told to look, and `uvx` where uv is installed.
"""

import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
import zipfile
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from lab.host import processor
from scripts.usage import parser_of
from scripts.wheel.installed import build, environment
from utils import entry

REPEATS = 7
IMPORT = """
import time
def now(): return time.perf_counter(), time.process_time()
wall, cpu = now()
import stride
print(*(after - before for before, after in zip((wall, cpu), now())))
"""
FIRST = ("stride", "train", "CartPole-v1:ppo", "-q")
Words = list[str | Path]


class Cost(NamedTuple):
    """What was waited for; seconds of processors say more than those on the wall where others are at work."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.2f} s | {self.cpu:.2f} s"


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--install", action="store_true", help="with all dependencies: gigabytes, minutes")
    asked = parser.parse_args(argv)
    print(f"{os.cpu_count()} cores of {processor()}\n\n| | on the wall | of a processor |\n|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(folder / "wheel")
        for what, found in chain(alone(wheel, folder), whole(wheel, folder) if asked.install else ()):
            print(f"| {what} | {found} |", flush=True)
    return 0


def alone(wheel: Path, folder: Path) -> Iterator[tuple[str, object]]:
    """What a wheel costs whose dependencies are there."""
    files = zipfile.ZipFile(wheel).namelist()
    yield f"the wheel: {wheel.stat().st_size / 1e6:.2f} MB, {len(files)} files", "|"
    python = environment(folder / "venv")
    yield "`pip install` of it, dependencies there", cost([python, "-m", "pip", "install", "--no-index", wheel], folder)
    yield "`import stride`", median(lambda: Cost(*map(float, said([python, "-P", "-c", IMPORT], folder).split())))
    yield "`stride --help`", median(lambda: cost([python.parent / "stride", "--help"], folder))


def whole(wheel: Path, folder: Path) -> Iterator[tuple[str, object]]:
    """What is waited for where there is nothing yet: the second time the packages are in a cache."""
    for which in ("first", "second"):
        there = folder / which
        venv.create(there, with_pip=True)
        found = cost([there / "bin" / "pip", "install", "--cache-dir", folder / "pip-cache", wheel], folder)
        yield f"`pip install` with all dependencies, {which} time: {megabytes(there):,} MB", found
    found = cost([there / "bin" / FIRST[0], *FIRST[1:]], folder)
    yield f"`{' '.join(FIRST)}`, first time: kernels are compiled", found
    uvx = shutil.which("uvx")
    if uvx is None:
        yield "`uvx`: not measured, uv is not installed", "|"
        return
    words: Words = [uvx, "--python", sys.executable, "--from", wheel, *FIRST]
    for which in ("first", "second"):
        found = cost(words, folder, UV_CACHE_DIR=str(folder / "uv-cache"), XDG_CACHE_HOME=str(folder / "uvx"))
        yield f"`uvx --from ./{wheel.name} {' '.join(FIRST)}`, {which} time", found


def cost(words: Words, folder: Path, **more: str) -> Cost:
    """Of a command, and of all that it starts and waits for."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    said(words, folder, **more)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def said(words: Words, folder: Path, **more: str) -> str:
    """Standard output, from a folder that holds nothing of ours; kernels are compiled as on a new machine."""
    bare = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env = bare | {"STRIDE_RUNS": str(folder / "runs"), "XDG_CACHE_HOME": str(folder / "cache")} | more
    return subprocess.run(words, cwd=folder, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout


def median(measure: Callable[[], Cost]) -> Cost:
    found = [measure() for _ in range(REPEATS)]
    return Cost(statistics.median(each.wall for each in found), statistics.median(each.cpu for each in found))


def megabytes(folder: Path) -> int:
    return round(sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6)


if __name__ == "__main__":
    entry.run(main)
