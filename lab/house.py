"""The house counted, a checkout or two beside each other: how heavy, how dense, how plainly named.

    python -m lab.house                        this checkout
    python -m lab.house ../before .            before and after, as one Markdown table
    python -m lab.house ../before . --names    and where to find what was counted in the last one
    python -m lab.house --wheel                and the wheel that pip builds of it: files and size
    python -m lab.house --train                and how many files `train.py CartPole-v1:ppo` enters (runs it)

Counts are read from the source by ast. Without --train and --wheel nothing of a checkout is imported or run, so any
commit can be counted. There are three parts. Tests: tests/. Laboratory: lab/, its launchers, and where it was before,
as LAB names them. Product: every other Python file that is not hidden and not under docs/, runs/ or build/.

- Lines are all lines. Syntax nodes are all that ast.walk finds.
- Code lines are neither blank, nor only a comment, nor part of a docstring.
- Assigned names are variables where they get a value, each time; not attributes and not arguments. Their mean length
  leaves out indices and mathematics: names of one or two letters, and those in MATHS.
- A class name has several homes where several files of the product have a class of this name.
- A function's length is from `def` to its last line, without decorators; methods and inner functions count, too.
- Imports upward and circles are those of the architecture test, by the storeys that each checkout itself declares;
  wings are those of this checkout's lab/house_rules.py.
- A file is entered if one of its functions is called during a run of 2,560 steps, after train.py was imported.
"""

import argparse
import ast
import os
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from lab.house_rules import (
    Source,
    at,
    core_imports_no_wing,
    imports_run_downward,
    no_circles,
    product_files,
    read_house,
    read_source,
    storeys_of,
    wings_import_no_wing,
)

LAUNCHERS: tuple[str, ...] = ("brax_eval_policy", "brax_train_policy", "gpu_check", "smoke_test_envs")
LAUNCHERS += ("smoke_train_envs", "benchmark_collectors", "benchmark_dataloaders", "benchmark_vecenv_fps")
MOVED = ("host", "house", "house_rules", "kernels", "notebooks", "nvrtc", "same_bits", "screenshots", "write_docs")
LAB: tuple[str, ...] = ("lab/", *(f"scripts/{name}.py" for name in LAUNCHERS))
LAB += ("scripts/bench/", "scripts/evidence/", "scripts/faults/", "scripts/gpu/")  # where it was until November 2026
LAB += ("envs_gym/transition_table.py", *(f"scripts/{name}.py" for name in MOVED))
ODD = ("found", "each", "told", "lent", "whose", "began", "seen", "known", "kept")
MATHS = {"cos", "eps", "eta", "exp", "lam", "log", "phi", "psi", "rho", "sin", "std", "tan", "tau"}
LONG = 50  # lines of a function
TRAINED = """\
import inspect, sys, threading
{importing}
entered = set()
def note(frame, event, argument):
    if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        entered.add(frame.f_code.co_filename)
threading.setprofile(note)
sys.setprofile(note)
code = train.command(["CartPole-v1:ppo", "max_timesteps=2560", "-q"])
sys.setprofile(None)
print(*sorted(entered), sep="\\n")
sys.exit(code)
"""


class Row(NamedTuple):
    name: str
    value: str
    places: Sequence[str] = ()


def measure(root: Path, train: bool = False, wheel: bool = False) -> list[Row]:
    house = read_house(root)
    tests = [read_source(root, path) for path in product_files(root / "tests")]
    lab = [source for source in house.values() if source.path.startswith(LAB)]
    product = [source for source in house.values() if not source.path.startswith(LAB)]
    rows = []
    for part, sources in (("product", product), ("laboratory", lab), ("tests", tests)):
        rows.append(Row(f"{part}: lines", f"{sum(source.text.count(chr(10)) for source in sources):,}"))
        rows.append(Row(f"{part}: syntax nodes", f"{sum(len(source.nodes) for source in sources):,}"))
    nodes, code = sum(len(source.nodes) for source in product), sum(map(code_lines, product))
    rows.append(Row("syntax nodes a code line", f"{nodes / max(code, 1):.1f}"))
    rows += [*_names(product), _counted(f"functions over {LONG} lines", _long_functions(product))]
    rows.append(_counted("imports upward", imports_run_downward(house, storeys_of(root))))
    rows.append(_counted("circles of imports", no_circles(house)))
    rows.append(_counted("wings imported by the core", core_imports_no_wing(house)))
    rows.append(_counted("wings imported by other wings", wings_import_no_wing(house)))
    scripts = [source.path for source in house.values() if source.path.startswith("scripts/")]
    rows.append(_counted("modules in scripts/", [path for path in scripts if not path.endswith("__init__.py")]))
    if wheel:
        rows += wheel_of(root)
    if train:
        rows.append(_counted("files that `train.py CartPole-v1:ppo` enters", entered_by_training(root)))
    return rows


def code_lines(source: Source) -> int:
    """How many lines are neither blank, nor only a comment, nor part of a text that stands alone."""
    docs = set[int]()
    for node in source.nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docs |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
    lines = enumerate(source.text.split("\n"), 1)
    return sum(bool(line.strip()) and not line.strip().startswith("#") and number not in docs for number, line in lines)


def _names(product: Sequence[Source]) -> list[Row]:
    assigned = Counter[str]()
    places, homes = defaultdict[str, list[str]](list), defaultdict[str, set[str]](set)
    for source in product:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef):
                homes[node.name].add(source.path)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                assigned[node.id] += 1
                if node.id in ODD:
                    places[node.id].append(at(source, node.lineno, node.id))
    words = Counter({name: count for name, count in assigned.items() if len(name) > 2 and name not in MATHS})
    mean = sum(len(name) * count for name, count in words.items()) / max(words.total(), 1)
    several = [f"{name}: {', '.join(sorted(files))}" for name, files in sorted(homes.items()) if len(files) > 1]
    return [
        Row("mean length of assigned names", f"{mean:.1f}"),
        _counted("class names with several homes", several),
        *(_counted(f"`{name}` assigned", places[name]) for name in ODD),
    ]


def _long_functions(product: Iterable[Source]) -> list[str]:
    places = []
    for source in product:
        for node in source.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                places += [at(source, node.lineno, f"{node.name}, {size} lines")] if size > LONG else []
    return places


def entered_by_training(root: Path) -> list[str]:
    """The files of a checkout whose functions a short training calls, by a profile in a process of its own."""
    root = root.resolve()
    with tempfile.TemporaryDirectory(prefix="house-") as runs:
        environment = {**os.environ, "STRIDE_RUNS": runs}
        below_one_root = (root / "stride" / "commands" / "train.py").is_file()
        importing = "from stride.commands import train" if below_one_root else "import train"
        command = [sys.executable, "-c", TRAINED.replace("{importing}", importing)]
        result = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    if result.returncode:
        raise SystemExit(f"the training in {root} ended with {result.returncode}: {result.stderr.strip()[-200:]}")
    product = {str(path): path.relative_to(root).as_posix() for path in product_files(root)}
    return [product[line] for line in result.stdout.splitlines() if line in product]


def wheel_of(root: Path) -> list[Row]:
    """The files and the size of the wheel that pip builds of a checkout, by its own build backend."""
    with tempfile.TemporaryDirectory(prefix="house-") as folder:
        command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--quiet", "--wheel-dir", folder, str(root)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if result.returncode:
            raise SystemExit(f"no wheel of {root}: {result.stderr.strip()[-200:]}")
        [wheel] = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            files = archive.infolist()
        return [
            Row("the wheel's files", f"{len(files):,}", [file.filename for file in files]),
            Row("the wheel's size, kB", f"{wheel.stat().st_size / 1e3:,.0f}"),
            Row("the wheel's files unpacked, kB", f"{sum(file.file_size for file in files) / 1e3:,.0f}"),
        ]


def _counted(name: str, places: Iterable[str]) -> Row:
    listed = [*places]
    return Row(name, f"{len(listed):,}", listed)


def table(heads: Sequence[str], columns: Sequence[Sequence[Row]]) -> str:
    lines = [f"| {' | '.join(['', *heads])} |", f"|---{'|---:' * len(heads)}|"]
    lines += [f"| {' | '.join([rows[0].name, *(row.value for row in rows)])} |" for rows in zip(*columns, strict=True)]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.house", description="Count the house.")
    parser.add_argument("checkouts", nargs="*", type=Path, default=[Path()], help="one, or one before and one after")
    parser.add_argument("--names", action="store_true", help="also name what was counted in the last checkout")
    parser.add_argument("--train", action="store_true", help="also run a short training of each, and count its files")
    parser.add_argument("--wheel", action="store_true", help="also build the wheel of each; pip may want a network")
    arguments = parser.parse_args(argv)
    for root in arguments.checkouts:
        if not any(product_files(root)):
            parser.error(f"{root} is no checkout: there is no Python file of a product in it")
    columns = [measure(root, arguments.train, arguments.wheel) for root in arguments.checkouts]
    print(table([root.resolve().name for root in arguments.checkouts], columns))
    for row in columns[-1] if arguments.names else ():
        if row.places:
            print(f"\n{row.name}: {row.value}", *row.places, sep="\n    ")


if __name__ == "__main__":
    main()
