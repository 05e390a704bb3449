"""Reads a checkout's files and imports, and has the rules of the architecture: who may import whom.

Sources are only parsed; nothing is imported or run. docs/architecture.md describes STOREYS and WINGS in words,
tests/test_architecture.py checks the rules, and lab/house.py counts violations.
"""

import ast
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

STOREYS: tuple[tuple[str, ...], ...] = (  # a file may import from its own storey and those above it in this list
    ("utils/", "runstore/"),
    ("config/",),
    ("envs_fast/",),
    ("envs_gym/",),
    ("agents/experience/", "agents/networks/", "agents/returns.py", "agents/metric_sums.py"),
    ("agents/sockets.py",),
    ("agents/base.py", "agents/laprop.py", "agents/optimizer_step.py", "agents/stopwatch.py"),
    ("agents/on_policy.py", "agents/off_policy.py", "agents/model_learning.py"),
    ("agents/exploration/",),
    ("agents/*.py",),  # the algorithms: all files of agents/ that no other line names
    ("agents/trained/",),
    ("trainer_callbacks/",),
    ("agents/engines/plan/",),
    ("agents/engines/fused_cpu/",),
    ("agents/engines/",),
    ("agents/playing/", "export/", "inspector/", "publishing/", "report/", "runstore/many/"),
    ("scripts/", "stride/", "*.py"),
    ("lab/",),
)
ROOF = ("scripts/", "stride/", "lab/")  # and files at the top: they may import everything, and give wings to the core
WINGS: dict[str, tuple[str, ...]] = {  # all other files, except the roof, are the core; "!" excludes a file
    "engines": ("agents/engines/",),
    "compiled worlds": (
        "envs_fast/",
        "!envs_fast/vec_env.py",  # the contract of all environments
        "!envs_fast/buffers.py",
        "!envs_fast/world.py",  # the contract of a compiled world, and the classes that step many of them
        "!envs_fast/compiled_env.py",
        "!envs_fast/numba_env.py",
        "!envs_fast/cuda_env.py",
        "!envs_fast/device_code.py",
        "envs_gym/backend_fast.py",
        "envs_gym/bandits.py",
    ),
    "Atari": (
        "envs_gym/ale_env.py",
        "envs_gym/backend_ale.py",
        "envs_gym/wrappers/atari_objects.py",
        "envs_gym/wrappers/ocatari_objects.py",
    ),
    "VizDoom": ("envs_gym/doom.py", "envs_gym/wrappers/doom.py"),
    "stable-retro": ("envs_gym/retro.py", "envs_gym/retro_emulator.py"),
    "dm_control": ("envs_gym/dmc.py",),
    "Brax": ("envs_gym/brax_worlds.py",),
    "MiniGrid": ("envs_gym/wrappers/minigrid.py",),
    "tensor worlds": ("envs_gym/tensor_env.py", "envs_gym/batches.py", "envs_gym/backend_torch.py"),
    "worker processes": (
        "envs_gym/async_env.py",
        "envs_gym/async_pool.py",
        "envs_gym/async_worker.py",
        "envs_gym/async_ready.py",
    ),
    "check-env": ("envs_gym/check/",),
    "playing": ("agents/playing/",),
    "many runs": ("runstore/many/",),
    "report": ("report/",),
    "inspector": ("inspector/",),
    "publishing": ("publishing/",),
    "export": ("export/",),
}
TABLE = "utils/wings.py"  # the only file in which the core names wings, as strings
# files in which a checkout may declare its storeys
WRITTEN_IN = ("lab/house_rules.py", "scripts/house_rules.py", "tests/test_architecture.py")
NOT_OURS = {"tests", "runs", "docs", "build", "dist", "node_modules", "src"}


class Import(NamedTuple):
    """One import of a file: the dotted module, the line, and whether it is inside a function or class."""

    target: str
    line: int
    hidden: bool


class Source(NamedTuple):
    """A parsed file; `name` is its dotted module, `nodes` all nodes of its tree (walked once for all rules)."""

    path: str
    name: str
    text: str
    tree: ast.Module
    nodes: list[ast.AST]
    imports: list[Import]


House = dict[str, Source]  # dotted name -> source, for example "agents.ppo"


def read_house(root: Path) -> House:
    """Return every product file under `root`."""
    sources = [read_source(root, path) for path in product_files(root)]
    ours = {source.name for source in sources}
    return {source.name: source._replace(imports=[*resolve(source, ours)]) for source in sources}


def product_files(root: Path) -> Iterator[Path]:
    """Yield every Python file of the checkout, except tests, runs, builds and virtual environments."""
    for folder, folders, files in os.walk(root):
        unwanted = NOT_OURS if Path(folder) == root else {"__pycache__"}
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in unwanted)
        if "pyvenv.cfg" in files:  # a virtual environment
            folders.clear()
            continue
        yield from (Path(folder, name) for name in sorted(files) if name.endswith(".py"))


def read_source(root: Path, file: Path) -> Source:
    path, text = file.relative_to(root).as_posix(), file.read_text(encoding="utf-8")
    name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    tree = ast.parse(text, path)
    return Source(path, name, text, tree, [*ast.walk(tree)], [])


def resolve(source: Source, ours: set[str]) -> Iterator[Import]:
    """Yield the imports of a source as modules: `from package import thing` is package.thing if ours has it."""
    scopes = [node for node in source.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    hidden = {id(node) for scope in scopes for node in _imports_within(scope)}
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
    """Return agents.ppo for `stride.agents.ppo` if the checkout has agents/ppo.py at its top."""
    short = module.removeprefix("stride.")
    return short if module not in ours and short in ours else module


def _imports_within(statement: ast.AST) -> Iterator[ast.AST]:
    """Yield the imports inside a function or class, also those inside its `if`, `with` and `try`."""
    for inner in ast.iter_child_nodes(statement):
        if isinstance(inner, ast.Import | ast.ImportFrom):
            yield inner
        elif isinstance(inner, ast.stmt | ast.excepthandler | ast.match_case):
            yield from _imports_within(inner)


def storeys_of(root: Path) -> tuple[tuple[str, ...], ...]:
    """Return the storeys that a checkout itself declares, or ours if it declares none."""
    for file in (root / place for place in WRITTEN_IN if (root / place).is_file()):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
                target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
                if dotted(target) == "STOREYS":
                    return tuple(tuple(line) for line in ast.literal_eval(node.value))
    return STOREYS


def storey(path: str, storeys: tuple[tuple[str, ...], ...] = STOREYS) -> int | None:
    """Return the storey of a file as an index of `storeys`; None if it has none.

    Its own name counts first, then the innermost folder in the list, then a pattern such as agents/*.py.
    """
    folders = [f"{folder}/" for folder in PurePosixPath(path).parents][:-1]
    for pattern in (path, *folders, f"{folders[0] if folders else ''}*.py"):
        for index, patterns in enumerate(storeys):
            if pattern in patterns:
                return index
    return None


def imports_run_downward(house: House, storeys: tuple[tuple[str, ...], ...] = STOREYS) -> Iterator[str]:
    """Yield violations: relative imports, and imports from a higher storey."""
    for source in house.values():
        mine = storey(source.path, storeys)
        for target, line, _ in source.imports:
            if target.startswith("."):
                yield at(source, line, f"relative import of {target}; imports are absolute")
            theirs = storey(house[target].path, storeys) if target in house else None
            if mine is not None and theirs is not None and theirs > mine:
                yield at(source, line, f"imports {target}, which stands higher")


def wing(path: str) -> str:
    """Return the wing that a file belongs to; "" for the core and the roof."""
    for name, patterns in WINGS.items():
        if path.startswith(patterns) and f"!{path}" not in patterns:
            return name
    return ""


def is_core(path: str) -> bool:
    """Whether a file belongs neither to a wing nor to the roof."""
    return not wing(path) and "/" in path and not path.startswith(ROOF)


def core_imports_no_wing(house: House) -> Iterator[str]:
    """Yield violations: the core imports a wing, or names one in a string (only TABLE may)."""
    for source in house.values():
        if is_core(source.path):
            for target, line in (*wings_imported(source, house), *wings_named(source, house)):
                yield at(source, line, f"the core takes {target} from the wing {wing(house[target].path)}")


def wings_import_no_wing(house: House) -> Iterator[str]:
    """Yield violations: a wing imports or names another wing, or uses the core's table of wings."""
    for source in house.values():
        mine = wing(source.path)
        for target, line, _ in source.imports if mine else ():
            if target in house and house[target].path == TABLE:
                yield at(source, line, f"the wing {mine} asks for wings; the core does")
        for target, line in (*wings_imported(source, house), *wings_named(source, house)) if mine else ():
            if wing(house[target].path) != mine:
                yield at(source, line, f"the wing {mine} takes {target} from the wing {wing(house[target].path)}")


def wings_imported(source: Source, house: House) -> Iterator[tuple[str, int]]:
    """Yield the files of wings that a source imports, each with the line."""
    for target, line, _ in source.imports:
        if target in house and wing(house[target].path):
            yield target, line


def wings_named(source: Source, house: House) -> Iterator[tuple[str, int]]:
    """Yield files of wings that a string names (`envs_gym.doom`, `envs_gym.doom:DoomWorld`), each with the line."""
    for node in source.nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and source.path != TABLE:
            target = node.value.partition(":")[0].removeprefix("stride.")
            if target in house and "." in target and wing(house[target].path):
                yield target, node.lineno


def no_circles(house: House) -> Iterator[str]:
    """Yield circles of imports, and of kernels that call each other by address."""
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
    """Return, for each file of kernels, the files whose kernels it calls as `f.name`.

    Such a kernel is bound by an entry `"name": kernel` of a dict somewhere.
    """
    bound: dict[str, set[str]] = {}
    for source in house.values():
        for node in (node for node in source.nodes if isinstance(node, ast.Dict)):
            for key, value in zip(node.keys, node.values, strict=True):
                name = key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else ""
                if name and ".kernels." in (module := home_of(source, value, house)):
                    bound.setdefault(f"f.{name}", set()).add(module)
    kernels = {name for names in bound.values() for name in names}
    return {
        name: [
            Import(target, node.lineno, False)
            for node in house[name].nodes
            if isinstance(node, ast.Attribute)
            for target in sorted(bound.get(dotted(node), set()) - {name})
        ]
        for name in kernels
    }


def home_of(source: Source, value: ast.expr, house: House) -> str:
    """Return the file that defines `function` or `file.function`; "" if none of ours does."""
    owner, _, name = dotted(value).rpartition(".")
    if owner:
        return next((target for target, *_ in source.imports if target in house and target.endswith(f".{owner}")), "")
    defined = {node.name for node in source.tree.body if isinstance(node, ast.FunctionDef)}
    return source.name if name in defined else ""


def at(source: Source, line: int, what: str) -> str:
    """Return a violation as `path:line: what`."""
    return f"{source.path}:{line}: {what}"


def dotted(node: ast.AST | None) -> str:
    """Return `a.b.c` for an expression that is a dotted name, else ""."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""
