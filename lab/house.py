"""Counts the code of one or two checkouts: its size, its density, and how plainly it is named.

    python -m lab.house                        this checkout
    python -m lab.house ../before .            before and after, as one Markdown table
    python -m lab.house ../before . --names    also the places of what was counted in the last one

Counts are read from the source by ast. Nothing of a checkout is imported or run, so any commit can be counted. There
are three parts. Tests: tests/. Laboratory: lab/ and its launchers, as LAB names them. Product: every other Python file
that is not hidden and not under docs/, runs/ or build/.

- Lines are all lines. Syntax nodes are all that ast.walk finds.
- Code lines are neither blank, nor only a comment, nor part of a docstring.
- Assigned names are variables where they get a value, each time; not attributes and not arguments. Their mean length
  leaves out indices and mathematics: names of one or two letters, and those in MATHS.
- A class name has several homes if several files of the product define a class of this name.
- A function's length is from `def` to its last line, without decorators; methods and inner functions count, too.
- Imports upward and circles are those of the architecture test, by the storeys that each checkout itself declares;
  wings are those of this checkout's lab/house_rules.py.
"""

import argparse
import ast
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

LAUNCHERS = ("brax_eval_policy", "brax_train_policy", "gpu_check", "smoke_test_envs", "smoke_train_envs",
             "benchmark_collectors", "benchmark_dataloaders", "benchmark_vecenv_fps")  # fmt: skip
LAB: tuple[str, ...] = ("lab/", *(f"scripts/{name}.py" for name in LAUNCHERS))
ODD = ("found", "each", "told", "lent", "whose", "began", "seen", "known", "kept")
MATHS = {"cos", "eps", "eta", "exp", "lam", "log", "phi", "psi", "rho", "sin", "std", "tan", "tau"}
LONG = 50  # lines; longer functions are counted


class Row(NamedTuple):
    """A row of the table: what was counted, the number, and where."""

    name: str
    value: str
    places: Sequence[str] = ()


def measure(root: Path) -> list[Row]:
    """Count a checkout; every checkout has the same rows."""
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
    return rows


def code_lines(source: Source) -> int:
    """Return the number of lines that are neither blank, nor only a comment, nor part of a docstring."""
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


def _counted(name: str, places: Iterable[str]) -> Row:
    listed = [*places]
    return Row(name, f"{len(listed):,}", listed)


def table(heads: Sequence[str], columns: Sequence[Sequence[Row]]) -> str:
    """Return a Markdown table with a column for each checkout."""
    lines = [f"| {' | '.join(['', *heads])} |", f"|---{'|---:' * len(heads)}|"]
    lines += [f"| {' | '.join([rows[0].name, *(row.value for row in rows)])} |" for rows in zip(*columns, strict=True)]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m lab.house", description="Count the house.")
    parser.add_argument("checkouts", nargs="*", type=Path, default=[Path()], help="one, or one before and one after")
    parser.add_argument("--names", action="store_true", help="also name what was counted in the last checkout")
    arguments = parser.parse_args(argv)
    for root in arguments.checkouts:
        if not any(product_files(root)):
            parser.error(f"{root} is no checkout: there is no Python file of a product in it")
    columns = [measure(root) for root in arguments.checkouts]
    print(table([root.resolve().name for root in arguments.checkouts], columns))
    for row in columns[-1] if arguments.names else ():
        if row.places:
            print(f"\n{row.name}: {row.value}", *row.places, sep="\n    ")


if __name__ == "__main__":
    main()
