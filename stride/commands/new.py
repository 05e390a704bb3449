"""Begin a project of your own: an environment, its settings, a test, an editor that knows the keys; trains at once."""

import re
import shlex
import string
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

from stride.commands.schema import text as schema_text
from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.durable_file import replacing
from stride.utils.own_modules import is_installed
from stride.utils.places import HOME, IS_WHEEL, program
from stride.utils.user_error import UserError

TEMPLATE = HOME / "template"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,40}")
FILES = {  # in the project <- in the template
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
    """Exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("folder", metavar="FOLDER", help="to be made; its name is the project's, such as walker")
    folder = Path(parser.parse_args(argv).folder)
    files = project_files(folder.absolute().name)
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise UserError(f"{folder} is there already, and not empty; a new project wants a folder of its own")
    try:
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(path) as file:
                file.write(text.encode())
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}") from error
    print("\n".join([f"{folder}/", *(f"  {name}" for name in files), "", *first_steps(folder)]))
    return 0


def project_files(name: str) -> dict[str, str]:
    """Every file of a new project, by its path in it."""
    placeholders = words_of(name)
    files = {}
    for path, source in FILES.items():
        template = (TEMPLATE / f"{source}.txt").read_text(encoding="utf-8")
        files[string.Template(path).substitute(placeholders)] = string.Template(template).substitute(placeholders)
    return files | {"configs/schema.json": schema_text() + "\n"}


def words_of(name: str) -> dict[str, str]:
    """The values of the placeholders in the template; UserError where a name cannot be a package's."""
    module = name.replace("-", "_").lower()
    if not NAME.fullmatch(name):
        raise UserError(f"a project cannot be called {name!r}: a name is letters, digits, _ and -, a letter first")
    if is_taken(module):
        raise UserError(f"a project cannot be called {name!r}: an installed package has that name")
    cls = "".join(part.capitalize() for part in module.split("_"))
    return {
        "name": name,
        "module": module,
        "cls": cls,
        "env_id": f"{cls}-v0",
        "train": typed("train"),
        "play": typed("run_play"),
        "inspect": typed("run_inspect"),
        "schema": "stride schema > configs/schema.json",
    }


def is_taken(module: str) -> bool:
    """Whether something that is installed, or that each project holds, has this name."""
    is_reserved = module in ("stride", "tests", "configs", "runs") or module in sys.stdlib_module_names
    return is_reserved or is_installed(module) or module in packages_distributions()


def typed(command: str) -> str:
    """How a command is typed in a project: by its name, or by the path of this checkout."""
    return f"stride {command.removeprefix('run_')}" if IS_WHEEL else shlex.join(["python", *program(command)[1:]])


def first_steps(folder: Path) -> list[str]:
    placeholders = words_of(folder.absolute().name)
    return [f"cd {shlex.quote(str(folder))}", f"{placeholders['train']} {placeholders['env_id']}:ppo"]


if __name__ == "__main__":
    entry.run(main)
