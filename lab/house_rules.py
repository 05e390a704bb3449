"""A checkout as its imports draw it: every product file, who imports whom, and the storeys an import may not climb.

Read off the source, nothing is imported or run. tests/test_architecture.py holds the rules, lab/house.py counts.
"""

import ast
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

STOREYS: tuple[tuple[str, ...], ...] = (  # a file may import from its own storey and those above it in this list
    ("utils/",),
    ("config/",),
    ("report/",),
    ("envs_fast/",),
    ("envs_gym/",),
    ("agents/experience/", "agents/networks/", "agents/returns.py", "agents/metric_sums.py"),
    ("agents/sockets.py",),
    ("agents/base.py",),
    ("agents/on_policy.py", "agents/off_policy.py", "agents/model_learning.py"),
    ("agents/*.py",),  # the algorithms: whatever stands in agents/ and is named in no other line
    ("agents/engines/plan/",),
    ("agents/engines/fused_cpu/",),
    ("agents/engines/",),
    ("agents/algorithms.py",),
    ("agents/playing/",),
    ("trainer_callbacks/",),
    ("inspector/", "publishing/", "export/"),
    ("scripts/", "stride/", "*.py"),
    ("lab/",),
)
WRITTEN_IN = (
    "lab/house_rules.py",
    "scripts/house_rules.py",
    "tests/test_architecture.py",
)  # where a checkout says what its storeys are
NOT_OURS = {"tests", "runs", "docs", "build", "dist", "node_modules"}


class Import(NamedTuple):
    """One name a file imports: the dotted module, the line, and whether it hides in a function or class."""

    target: str
    line: int
    hidden: bool


class Source(NamedTuple):
    """A parsed file; `name` is how others import it, `nodes` is its tree walked once for all rules."""

    path: str
    name: str
    text: str
    tree: ast.Module
    nodes: list[ast.AST]
    imports: list[Import]


House = dict[str, Source]  # by dotted name


def read_house(root: Path) -> House:
    """Every product file under `root`."""
    sources = [read_source(root, path) for path in product_files(root)]
    ours = {source.name for source in sources}
    return {source.name: source._replace(imports=[*resolve(source, ours)]) for source in sources}


def product_files(root: Path) -> Iterator[Path]:
    """Every Python file of the checkout but tests, what runs and builds leave, and virtual environments."""
    for folder, folders, files in os.walk(root):
        unwanted = NOT_OURS if Path(folder) == root else {"__pycache__"}
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in unwanted)
        if "pyvenv.cfg" in files:  # somebody's virtual environment
            folders.clear()
            continue
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))


def read_source(root: Path, file: Path) -> Source:
    path, text = file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    tree = ast.parse(text, path)
    return Source(path, name, text, tree, [*ast.walk(tree)], [])


def resolve(source: Source, ours: set[str]) -> Iterator[Import]:
    """Imports as modules: `from package import thing` is package.thing where that is a file of ours."""
    hidden = {
        id(node)
        for scope in source.nodes
        if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        for node in _imports_within(scope)
    }
    for node in source.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(_by_path(alias.name, ours), node.lineno, id(node) in hidden)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            for alias in node.names:
                inner = _by_path(f"{module}.{alias.name}", ours)
                yield Import(inner if inner in ours else _by_path(module, ours), node.lineno, id(node) in hidden)


def _by_path(module: str, ours: set[str]) -> str:
    """`stride.agents.ppo` is agents.ppo where a checkout has agents/ppo.py at its top and imports it below one name."""
    short = module.removeprefix("stride.")
    return short if module not in ours and short in ours else module


def _imports_within(statement: ast.AST) -> Iterator[ast.AST]:
    """Of a scope, through whatever statements hold statements; no expression holds an import."""
    for inner in ast.iter_child_nodes(statement):
        if isinstance(inner, ast.Import | ast.ImportFrom):
            yield inner
        elif isinstance(inner, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _imports_within(inner)


def storeys_of(root: Path) -> tuple[tuple[str, ...], ...]:
    """The storeys that a checkout itself declares, ours where it declares none."""
    for file in (root / place for place in WRITTEN_IN if (root / place).is_file()):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                if dotted(target) == "STOREYS":
                    return tuple(tuple(line) for line in ast.literal_eval(node.value))
    return STOREYS


def storey(path: str, storeys: tuple[tuple[str, ...], ...] = STOREYS) -> int | None:
    """Its place in the list: by its own name, else by the innermost folder listed, else as any file of its folder."""
    folders = [f"{folder}/" for folder in PurePosixPath(path).parents][:-1]
    for wanted in (path, *folders, f"{folders[0] if folders else ''}*.py"):
        for place, patterns in enumerate(storeys):
            if wanted in patterns:
                return place
    return None


def imports_run_downward(house: House, storeys: tuple[tuple[str, ...], ...] = STOREYS) -> Iterator[str]:
    for source in house.values():
        mine = storey(source.path, storeys)
        for target, line, _ in source.imports:
            if target.startswith("."):
                yield at(source, line, f"relative import of {target}; imports are absolute")
            theirs = storey(house[target].path, storeys) if target in house else None
            if mine is not None and theirs is not None and theirs > mine:
                yield at(source, line, f"imports {target}, which stands higher")


def no_circles(house: House) -> Iterator[str]:
    """Neither by imports nor through the addresses by which kernels call one another."""
    finished: set[str] = set()
    calls = calls_by_address(house)

    def visit(name: str, trail: tuple[str, ...]) -> Iterator[str]:
        for target, line, hidden in (*house[name].imports, *calls.get(name, ())):
            if target in trail and not hidden:
                yield at(house[name], line, f"circle {' -> '.join((*trail[trail.index(target) :], target))}")
            elif target in house and target not in finished and not hidden:
                yield from visit(target, (*trail, target))
        finished.add(name)

    for name in house:
        if name not in finished:
            yield from visit(name, (name,))


def calls_by_address(house: House) -> dict[str, list[Import]]:
    """By file, what `f[At.X]` reaches from there: the files whose kernels are bound, `{At.X: kernel}`, to such an X."""
    bound: dict[str, set[str]] = {}
    keys: set[int] = set()
    for source in house.values():
        for node in (node for node in source.nodes if isinstance(node, ast.Dict)):
            for key, value in zip(node.keys, node.values, strict=True):
                if key and dotted(key).startswith("At.") and (home := home_of(source, value, house)):
                    keys.add(id(key))
                    bound.setdefault(dotted(key), set()).add(home)
    kernels = {name for names in bound.values() for name in names}
    return {
        name: [
            Import(target, node.lineno, False)
            for node in house[name].nodes
            if isinstance(node, ast.Attribute) and id(node) not in keys
            for target in sorted(bound.get(dotted(node), set()) - {name})
        ]
        for name in kernels
    }


def home_of(source: Source, value: ast.expr, house: House) -> str:
    """The file that defines `function` or `file.function`, "" where it is no kernel."""
    owner, _, name = dotted(value).rpartition(".")
    if owner:
        return next((target for target, *_ in source.imports if target in house and target.endswith(f".{owner}")), "")
    defined = {node.name for node in source.tree.body if isinstance(node, ast.FunctionDef)}
    return source.name if name in defined else ""


def at(source: Source, line: int, what: str) -> str:
    return f"{source.path}:{line}: {what}"


def dotted(node: ast.AST | None) -> str:
    """`a.b.c` of an expression, "" where it is none."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
