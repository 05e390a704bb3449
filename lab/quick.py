"""Runs the tests that a change affects, nearest first: this is `make quick BASE=COMMIT`.

    python -m lab.quick HEAD~1             run the fast tests that read what changed since this commit
    python -m lab.quick HEAD~1 --list      only print their files, each with its distance
    python -m lab.quick --of utils/durable_file.py --list

A test file is affected if it imports a changed file, directly (distance 1) or through other files (2, 3, ...). A string
counts as an import if it names a module (`stride.envs_gym.doom:DoomWorld`) or a file that is not Python
(`metrics.yaml`, `episodes.cu`). This saves time while you work; CI always runs every test.
"""

import ast
import json
import subprocess
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from lab.house_rules import House, Source, product_files, read_source, resolve
from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.places import PROJECT
from stride.utils.user_error import UserError

DATA = (".cu", ".cuh", ".h", ".js", ".css", ".html", ".yaml", ".json", ".toml", ".md", ".ipynb")


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("base", nargs="?", metavar="COMMIT", help="what to compare the working tree with")
    parser.add_argument("--of", nargs="+", default=[], metavar="FILE", help="these files instead of what git says")
    parser.add_argument("--list", action="store_true", help="print the test files, run nothing")
    arguments = parser.parse_args(argv)
    if not arguments.base and not arguments.of:
        raise UserError("name the commit to compare with: python -m lab.quick HEAD~1")
    if missing := [path for path in arguments.of if not (PROJECT / path).is_file()]:
        raise UserError(f"{missing[0]}: no such file in this checkout")
    changed = arguments.of or changed_since(arguments.base)
    distances = touched_tests(PROJECT, changed)
    if arguments.list or not distances:
        for path, distance in distances.items():
            print(f"{distance:3} {path}")
        print(f"{len(distances)} test files for {len(changed)} changed files")
        return 0
    options = ["--numprocesses", "auto", "--dist", "loadfile", "--no-loadscope-reorder", "--in-order", "-m", "not slow"]
    return subprocess.run([sys.executable, "-m", "pytest", *options, *distances], cwd=PROJECT, check=False).returncode


def changed_since(commit: str) -> list[str]:
    """Return the files that differ from this commit, and new files that git does not track yet."""
    paths = []
    for command in (["diff", "--name-only", commit, "--"], ["ls-files", "--others", "--exclude-standard"]):
        result = subprocess.run(["git", *command], cwd=PROJECT, capture_output=True, text=True, check=False)
        if result.returncode:
            raise UserError(f"git {command[0]}: {result.stderr.strip().splitlines()[-1]}")
        paths += result.stdout.splitlines()
    return paths


def touched_tests(root: Path, changed: Iterable[str]) -> dict[str, int]:
    """Return test file -> distance from the nearest changed file; nearest first, then fastest first."""
    house = with_tests(root)
    readers = readers_of(house)
    distances = {path: 0 for path in changed}
    queue = deque(distances)
    while queue:
        path = queue.popleft()
        for reader in readers.get(path, ()):
            if reader not in distances:
                distances[reader] = distances[path] + 1
                queue.append(reader)
    tests = {path: count for path, count in distances.items() if is_test(path) and (root / path).is_file()}
    durations = root / "tests" / "durations.json"
    seconds = json.loads(durations.read_text()) if durations.is_file() else {}
    return dict(sorted(tests.items(), key=lambda item: (item[1], seconds.get(item[0], 0), item[0])))


def is_test(path: str) -> bool:
    """Whether pytest collects tests from this file."""
    return path.startswith("tests/") and PurePosixPath(path).match("test_*.py")


def with_tests(root: Path) -> House:
    """Return the sources of product, laboratory and tests by dotted name; helpers of tests are `tests.NAME`."""
    files = [*product_files(root), *product_files(root / "tests")]
    sources = {source.name: source for source in (read_source(root, path) for path in files)}
    return {name: source._replace(imports=[*resolve(source, set(sources))]) for name, source in sources.items()}


def readers_of(house: House) -> dict[str, set[str]]:
    """Return file -> the files that import or name it: {"utils/places.py": {"train.py", "tests/test_play.py", ...}}."""
    readers: dict[str, set[str]] = {}
    for source in house.values():
        for path in (*imported(source, house), *named_data(source), *beside_test(source)):
            readers.setdefault(path, set()).add(source.path)
    return readers


def imported(source: Source, house: Mapping[str, Source]) -> Iterable[str]:
    """Yield the files of modules that a source imports, or names in a string."""
    names = [target for target, *_ in source.imports]
    names += [text.partition(":")[0].removeprefix("stride.") for text in texts_of(source) if "." in text]
    for name in names:
        for candidate in (name, f"tests.{name}", name.removesuffix(".py")):
            if candidate in house and candidate != source.name:
                yield house[candidate].path


def named_data(source: Source) -> Iterable[str]:
    """Yield files that are not Python and that a string names: `metrics.yaml` is config/metrics.yaml."""
    names = {PurePosixPath(text).name for text in texts_of(source) if text.endswith(DATA)}
    folders = (PurePosixPath(source.path).parent, PurePosixPath("config"), PurePosixPath("."))
    return (str(folder / name) for name in names for folder in folders)


def texts_of(source: Source) -> list[str]:
    """Return the strings of a source that are one word."""
    texts = [node.value for node in source.nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [text for text in texts if text and len(text) < 100 and not text.count(" ")]


def beside_test(source: Source) -> Iterable[str]:
    """Yield what pytest reads for a test: conftest.py of the folders above, and its snapshots."""
    if is_test(source.path):
        path = PurePosixPath(source.path)
        yield from (str(folder / "conftest.py") for folder in path.parents)
        yield str(path.parent / "__snapshots__" / f"{path.stem}.ambr")


if __name__ == "__main__":
    entry.run(main)
