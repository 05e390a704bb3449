"""Run the tests against a wheel of this checkout:   python -m scripts.wheel.tests [--keep FOLDER] [pytest's words]

The wheel goes into an environment of its own, a copy of tests/ is rewritten for it, and what tests start is started as
`python -m stride...`. Without words: all fast tests.
"""

import os
import subprocess
import tempfile
import time
from pathlib import Path

from scripts.usage import parser_of
from scripts.wheel.installed import build, install
from scripts.wheel.moved_tests import OF_CHECKOUT, move_tests
from utils import entry
from utils.places import PROJECT

FAST = ["-m", "not slow"]
SIGHT = """\
import sys, pathlib, stride
from stride.utils.places import PACKAGE, PROJECT
print(PROJECT)
sys.exit(PACKAGE != "stride." or not PROJECT.is_relative_to(sys.prefix))
"""


def main(argv: list[str]) -> int:
    """pytest's exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="where to make it all, and leave it")
    asked, words = parser.parse_known_args(argv)
    if asked.keep is not None:
        asked.keep.mkdir(parents=True, exist_ok=True)
        return tested(asked.keep.absolute(), words or FAST)
    with tempfile.TemporaryDirectory() as folder:
        return tested(Path(folder), words or FAST)


def tested(folder: Path, words: list[str]) -> int:
    """Made in `folder`, where it is not there yet, and run."""
    python, copy = folder / "venv" / "bin" / "python", folder / "copy"
    if not python.exists():
        start = time.perf_counter()
        left_out = move_tests(PROJECT, copy)
        wheel = build(folder / "wheel")
        install(wheel, folder / "venv")
        print(f"{wheel.name} ({wheel.stat().st_size / 1e6:.2f} MB) and its tests: {time.perf_counter() - start:.0f} s")
        print("\n".join(f"  not of a wheel: {line}" for line in left_out), flush=True)
    bare = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env = bare | {"PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run([python, "-P", "-c", SIGHT], env=env, check=True, cwd=copy)
    words = [*words, *(f"--deselect={name}" for name in OF_CHECKOUT if "::" in name)]
    return subprocess.run([python, "-P", "-m", "pytest", *words], cwd=copy, env=env, check=False).returncode


if __name__ == "__main__":
    entry.run(main)
