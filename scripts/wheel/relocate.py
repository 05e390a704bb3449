"""The checkout's packages as one package `stride`: files copied, and each name of ours that a file speaks of rewritten.

What is rewritten: imports, strings that name a module of ours, and what people are told to type. Lines stay where they
were. Whatever cannot be rewritten with certainty raises UnrecognisedError, and there is no wheel.
"""

import ast
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

NAME = "stride"
COMMANDS = {"train": "train", "run_play": "play", "run_inspect": "inspect", "run_publish": "publish"}
# the others measure a checkout
SCRIPTS: tuple[str, ...] = (
    "__init__",
    "usage",
    "new",
    "schema",
    "completion",
    "check_env",
    "export",
    "monitor",
    "runs",
    "sweep",
    "sweep_choice",
    "sweep_flights",
    "verify_run",
    "repeated_run",
    "run_claims",
    "plain_tree",
)
SCRIPTS += ("setup_wandb_dashboard",)
WORDS = {"verify_run": "verify"}  # of `stride`, where they are not the file's name
NOT_SHIPPED = {"tests", "scripts", "build", "dist", "runs", NAME}
SUFFIXES = {".py", ".yaml", ".json", ".css", ".js", ".cu", ".cuh", ".txt"}
EVIDENCE = Path("docs", "results")  # what --list-envs says was reached
TYPED = re.compile(rf"(?:\b|(?<=\\n))python ({'|'.join(COMMANDS)})\.py\b")  # also behind a \n of a string
TYPED_SCRIPT = re.compile(rf"\bpython (?:-m scripts\.|scripts/)({'|'.join(SCRIPTS[2:])})(?:\.py)?\b")
DOTTED = re.compile(r"([A-Za-z_]\w*)((?:\.[A-Za-z_]\w*)+)((?::\w+)?)")
TESTS = "tests/"  # a copy of which goes the same way (moved_tests.py)
BY_NAME = {"importlib", "importlib.util", "runpy"}
LOOKED_AT = {  # who imports by a name that only the running program knows, and whose names these are
    "config/commands/export.py": "packages of others",
    "config/commands/sweep.py": "packages of others",
    "config/extras.py": "packages of others",
    "config/general.py": "packages of others",
    "config/plugins.py": "modules of the user",
    "config/scenarios.py": "packages of others",
    "envs_gym/async_worker.py": "modules of the user",
    "envs_gym/backends.py": "a table of ours, rewritten",
    "envs_gym/brax_worlds.py": "packages of others",
    "envs_gym/doom.py": "packages of others",
    "envs_gym/mujoco.py": "packages of others",
    "envs_gym/retro.py": "packages of others",
    "envs_gym/retro_emulator.py": "packages of others",
    "envs_gym/wrappers/registry.py": "modules of the user",
    "scripts/smoke_test_envs.py": "packages of others",
    "report/trackers/registry.py": "packages of others",
    "stride/__init__.py": "a table of ours, rewritten",
    "stride/__main__.py": "ours, by places.PACKAGE",
    "utils/device_source.py": "ours, by places.module_of",
    "utils/devices.py": "packages of others",
    "utils/late_dynamo.py": "torch's",
    "utils/own_modules.py": "modules of the user",
    "runstore/many/pools.py": "packages of others",
}


class UnrecognisedError(Exception):
    """A line that would not mean in the wheel what it means in the checkout."""


class Change(NamedTuple):
    """`text` instead of the characters from `start` to `end` of a line, counted from 0 as UTF-8 bytes."""

    line: int
    start: int
    end: int
    text: str


def relocate(checkout: Path, folder: Path) -> None:
    """Make `folder`, which becomes the package `stride`, from the files of a checkout."""
    places = {path: place for path, place in shipped(checkout)}
    modules = {dotted(path): dotted(place) for path, place in places.items() if path.suffix == ".py"}
    for path, place in places.items():
        (folder.parent / place).parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".py":
            text = rewritten((checkout / path).read_text(encoding="utf-8"), path.as_posix(), modules)
            (folder.parent / place).write_text(text, encoding="utf-8")
        else:
            shutil.copyfile(checkout / path, folder.parent / place)
    (folder / "commands" / "__init__.py").write_text("")


def shipped(checkout: Path) -> Iterator[tuple[Path, Path]]:
    """Each file that belongs into the wheel, and where it lies there."""
    tops = sorted(path.parent.name for path in checkout.glob("*/__init__.py"))
    for top in (name for name in tops if name not in NOT_SHIPPED):
        for path in sorted((checkout / top).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield path.relative_to(checkout), NAME / path.relative_to(checkout)
    for path in sorted((checkout / NAME).rglob("*")):
        if path.suffix in SUFFIXES and path.is_file():
            yield path.relative_to(checkout), path.relative_to(checkout)
    for name in COMMANDS:
        yield Path(f"{name}.py"), Path(NAME, "commands", f"{name}.py")
    for path in (Path("scripts", f"{name}.py") for name in SCRIPTS):
        if (checkout / path).is_file():
            yield path, NAME / path
    for path in sorted((checkout / EVIDENCE).glob("*.json")):
        yield path.relative_to(checkout), NAME / path.relative_to(checkout)


def dotted(path: Path) -> str:
    return path.with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")


def moved(name: str) -> str:
    """Where a module of ours is found in the wheel."""
    top = name.partition(".")[0]
    return name if top == NAME else f"{NAME}.commands.{name}" if top in COMMANDS else f"{NAME}.{name}"


def rewritten(text: str, path: str, modules: dict[str, str]) -> str:
    """The source of a file with our names as the wheel has them. `modules`: each of ours that is shipped, and where."""
    text = TYPED.sub(lambda found: f"{NAME} {COMMANDS[found[1]]}", text)
    text = TYPED_SCRIPT.sub(lambda found: f"{NAME} {WORDS.get(found[1], found[1].replace('_', '-'))}", text)
    lines = text.encode().splitlines(keepends=True)
    changes: list[Change] = []
    for node in ast.walk(ast.parse(text, path)):
        changes += changes_of(node, lines, path, modules)
    for change in sorted(changes, reverse=True):
        line = lines[change.line]
        lines[change.line] = line[: change.start] + change.text.encode() + line[change.end :]
    return b"".join(lines).decode()


def changes_of(node: ast.AST, lines: list[bytes], path: str, modules: dict[str, str]) -> Iterator[Change]:
    """What is rewritten of one node; UnrecognisedError where that cannot be known."""
    if isinstance(node, ast.ImportFrom):
        yield from of_import_from(node, lines, path, modules)
    elif isinstance(node, ast.Import):
        yield from of_import(node, lines, path, modules)
    elif isinstance(node, ast.JoinedStr):
        first = node.values[0] if node.values else None
        if isinstance(first, ast.Constant) and is_a_beginning(str(first.value), modules):
            raise UnrecognisedError(
                f"{path}:{node.lineno}: an f-string that begins with {first.value!r} may name a module"
            )
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from of_string(node, lines, path, modules)


def of_import_from(node: ast.ImportFrom, lines: list[bytes], path: str, modules: dict[str, str]) -> Iterator[Change]:
    """`from config.schema import Config`, also where what is imported is a module itself."""
    name = node.module or ""
    if node.level:
        raise UnrecognisedError(f"{path}:{node.lineno}: a relative import; imports are absolute")
    looked_at(name, node.lineno, path)
    if not is_ours(name, modules):
        return
    known(name, node.lineno, path, modules)
    for alias in node.names:
        if modules.get(f"{name}.{alias.name}", whole := f"{modules[name]}.{alias.name}") != whole:
            raise UnrecognisedError(f"{path}:{node.lineno}: {alias.name} does not move with {name}: import from it")
    yield after(lines, node, rf"from\s+({re.escape(name)})\b", modules[name], path)


def of_import(node: ast.Import, lines: list[bytes], path: str, modules: dict[str, str]) -> Iterator[Change]:
    """`import utils.quick_start`, which binds `utils`; `import train as t`."""
    for alias in node.names:
        looked_at(alias.name, node.lineno, path)
    if not any(is_ours(alias.name, modules) for alias in node.names):
        return
    [alias, *more] = node.names
    if more:
        raise UnrecognisedError(f"{path}:{node.lineno}: several modules in one import, one of them ours")
    known(alias.name, node.lineno, path, modules)
    top, wanted = alias.name.partition(".")[0], modules[alias.name]
    if alias.asname:
        yield after(lines, node, rf"import\s+({re.escape(alias.name)})\b", wanted, path)
        return
    parent = moved(top).rpartition(".")[0]
    whole = f"from {parent} import {top}"
    whole = whole if alias.name == top else f"import {wanted}; {whole}"
    yield after(lines, node, rf"(import\s+{re.escape(alias.name)})(?=\s|$)", whole, path)


def of_string(node: ast.Constant, lines: list[bytes], path: str, modules: dict[str, str]) -> Iterator[Change]:
    """A string that is the name of a module of ours, or of something in it: `envs_fast.gym_single:single_env`."""
    if not (found := DOTTED.fullmatch(str(node.value))) or not is_ours(found[1], modules):
        return
    name = found[1] + found[2]
    while name not in modules and "." in name:  # a class or a function of the module
        name = name.rpartition(".")[0]
    if "." not in name and not found[3]:  # such as config.json and report.md
        return
    if name != found[1] + found[2] and not found[3] and not path.startswith(TESTS):  # such as config.spec.rewards
        raise UnrecognisedError(f"{path}:{node.lineno}: {node.value!r} may be keys or something in the module {name}")
    if node.end_lineno != node.lineno:
        raise UnrecognisedError(f"{path}:{node.lineno}: the name {node.value!r} goes over several lines")
    yield after(lines, node, rf"[\"']({re.escape(name)})", modules[name], path)


def after(lines: list[bytes], node: ast.expr | ast.stmt, pattern: str, text: str, path: str) -> Change:
    """`text` for the group of a pattern that stands where a node begins."""
    number = node.lineno - 1
    found = re.compile(pattern.encode()).match(lines[number], node.col_offset)
    if not found:
        raise UnrecognisedError(
            f"{path}:{node.lineno}: {lines[number].decode().strip()!r} is written in an unknown way"
        )
    return Change(number, *found.span(1), text)


def is_ours(name: str, modules: dict[str, str]) -> bool:
    top = name.partition(".")[0]
    return top != NAME and (top in modules or top in COMMANDS or top == "scripts")


def is_a_beginning(text: str, modules: dict[str, str]) -> bool:
    """Whether this and more may name a module: `scripts.gpu.`, but not `config.`, as keys of it are called."""
    name = text.removesuffix(".")
    return text != name and "." in name and name in modules


def known(name: str, line: int, path: str, modules: dict[str, str]) -> None:
    if name not in modules:
        raise UnrecognisedError(f"{path}:{line}: imports {name}, which the wheel does not have")


def looked_at(name: str, line: int, path: str) -> None:
    """Whoever imports by names has been read, and is listed with whose names they are; tests do it in sight of all."""
    if name in BY_NAME and path not in LOOKED_AT and not path.startswith(TESTS):
        raise UnrecognisedError(
            f"{path}:{line}: {name} imports by a name; look whose it is and list the file in LOOKED_AT"
        )
