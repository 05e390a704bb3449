"""Make a project: an environment, its settings, a test, and editor settings for config keys. It trains at once.

`stride new walker` makes a folder. `stride new --here` turns the current repository into a project: its
pyproject.toml gets a table [tool.stride] with the modules here that register environments, and the folders of configs
and runs.
"""

import json
import os
import re
import shlex
import string
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from stride.commands.schema import text as schema_text
from stride.commands.usage import parser_of
from stride.config.nearby import registering_modules
from stride.utils import entry
from stride.utils.durable_file import replacing
from stride.utils.own_modules import is_installed
from stride.utils.places import FILE, HOME, IS_WHEEL, MAX_FILE_BYTES, program, read_project
from stride.utils.user_error import UserError, read_user_file

TEMPLATE = HOME / "template"
SCHEMA = "configs/schema.json"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,40}")
FILES = {  # path in the project: file in the template
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    ".gitignore": "gitignore",
    ".vscode/settings.json": "settings.json",
    "$module/__init__.py": "init.py",
    "$module/env.py": "env.py",
    "configs/$env_id.yaml": "config.yaml",
    "tests/test_env.py": "test_env.py",
}


def main(argv: list[str]) -> int:
    """Make the project; return the exit code."""
    parser = parser_of(__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "folder", metavar="FOLDER", nargs="?", help="the folder to make; its name becomes the project's name"
    )
    where.add_argument(
        "--here", action="store_true", help="turn the current folder into a project; no file is replaced"
    )
    arguments = parser.parse_args(argv)
    return begin_here() if arguments.here else begin(Path(arguments.folder))


def begin(folder: Path) -> int:
    """Make a folder with every file of a new project."""
    files = project_files(folder.absolute().name)
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise UserError(f"{folder} exists and is not empty; choose a new folder")
    write(folder, files)
    print("\n".join([f"{folder}/", *(f"  {name}" for name in files), "", *first_steps(folder)]))
    return 0


def begin_here() -> int:
    """Add the table [tool.stride] and the schema of configs to the current folder."""
    folder = Path.cwd()
    ids = registering_modules(folder)
    table = table_of(sorted({*ids.values()}))
    files = {FILE: with_table(folder / FILE, table)}
    if not (folder / SCHEMA).exists():
        files[SCHEMA] = schema_text() + "\n"
    write(folder, files)
    advice = "" if ids else "   # ENV must be registered by a module in imports = [...] in pyproject.toml"
    print(f"{table}\nWritten to {FILE}. With {SCHEMA}, editors check and complete configs. Next:\n")
    print(f"{typed('train')} {next(iter(ids), 'ENV')}:ppo{advice}")
    return 0


def with_table(pyproject: Path, table: str) -> str:
    """Return the text of a pyproject.toml, which may be missing yet, with the table at its end."""
    if not os.path.lexists(pyproject):
        return table
    if pyproject.is_symlink():
        raise UserError(f"{pyproject} is a link: add the table by hand\n{table}")
    data = read_user_file(pyproject, MAX_FILE_BYTES)
    if read_project(pyproject, data):
        raise UserError(f"{pyproject} has a table [tool.stride] already; this folder is a project")
    return f"{data.decode().rstrip()}\n\n{table}"


def table_of(modules: list[str]) -> str:
    """Return the table [tool.stride] for modules that register environments."""
    return string.Template((TEMPLATE / "table.toml.txt").read_text(encoding="utf-8")).substitute(
        imports=json.dumps(modules)
    )


def write(folder: Path, files: dict[str, str]) -> None:
    """Write the texts in `files` (by path) below the folder."""
    try:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(text.encode())
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}") from error


def project_files(name: str) -> dict[str, str]:
    """Return {path: text} of every file of a new project."""
    placeholders = words_of(name)
    files = {}
    for path, source in FILES.items():
        template = (TEMPLATE / f"{source}.txt").read_text(encoding="utf-8")
        files[string.Template(path).substitute(placeholders)] = string.Template(template).substitute(placeholders)
    return files | {SCHEMA: schema_text() + "\n"}


def words_of(name: str) -> dict[str, str]:
    """Return the values for the placeholders in the template; UserError if the name cannot be a package's."""
    module = name.replace("-", "_").lower()
    if not NAME.fullmatch(name):
        raise UserError(f"{name!r} is not a valid project name: use letters, digits, _ and -, starting with a letter")
    if is_taken(module):
        raise UserError(f"{name!r} cannot be the project name: an installed package has that name")
    cls = "".join(part.capitalize() for part in module.split("_"))
    return {
        "name": name,
        "module": module,
        "cls": cls,
        "env_id": f"{cls}-v0",
        "train": typed("train"),
        "play": typed("run_play"),
        "inspect": typed("run_inspect"),
        "table": table_of([module]).rstrip(),
        "schema": "stride schema > configs/schema.json",
    }


def is_taken(module: str) -> bool:
    """Whether an installed package, or a folder of every project, has this name."""
    is_reserved = module in ("stride", "tests", "configs", "runs") or module in sys.stdlib_module_names
    return is_reserved or is_installed(module) or module in packages_distributions()


def typed(command: str) -> str:
    """Return how a command is typed in a project: `stride train`, or in a checkout `python /path/train.py`."""
    return f"stride {command.removeprefix('run_')}" if IS_WHEEL else shlex.join(["python", *program(command)[1:]])


def first_steps(folder: Path) -> list[str]:
    placeholders = words_of(folder.absolute().name)
    return [f"cd {shlex.quote(str(folder))}", f"{placeholders['train']} {placeholders['env_id']}:ppo"]


if __name__ == "__main__":
    entry.run(main)
