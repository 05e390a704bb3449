"""Suggests what the user may have meant by an unknown environment: an id, a file or a module of the current folder.

Nothing is imported or run here: modules are searched as text for `register("ID", ...)`.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from stride.config.foreign import atari_id
from stride.utils.own_modules import modules_in
from stride.utils.places import TRAIN, current_folder, current_project
from stride.utils.user_error import UserError, nearest, read_user_file

REGISTER_CALL = re.compile(rb"""\bregister\(\s*(?:id\s*=\s*)?["']([\w./-]{1,100})["']""")
MAX_ID_LETTERS = 100  # a longer id is not searched for
MAX_MODULES, MAX_MODULE_BYTES = 200, 1 << 20  # modules that are searched, and the size of each


def advice(env_id: str, ids: Iterable[str]) -> str:
    """Return the end of an error message for an unknown environment, such as `; did you mean Ant-v5?`.

    It is the first of: today's name of an old Atari id, a file or module of this folder, one of `ids` that is similar;
    "" if there is none."""
    if atari_id(env_id):
        return f"; its name in Gymnasium is {atari_id(env_id)}"
    return _file_advice(env_id) or nearest(env_id, ids)


def _file_advice(env_id: str) -> str:
    """Return advice about a file or module of the current folder that has this environment; "" if none has it."""
    folder = current_folder()
    if folder is None:
        return ""
    name = env_id.rpartition(":")[2]
    if len(name) > MAX_ID_LETTERS:
        return ""
    file = Path(f"{name.replace('/', '-')}.yaml")
    if (folder / file).is_file():
        return f"; this folder has {file}: {TRAIN} --config {file}"
    if (folder / "configs" / file).is_file() and not current_project():
        return f"; configs/{file} exists, but this folder is not a project; run stride new --here first"
    module = registering_modules(folder).get(name)
    return f"; the module {module} registers it; write {module}:{name}" if module and module not in env_id else ""


def registering_modules(folder: Path) -> dict[str, str]:
    """Return id -> module, for the ids that a folder's modules and packages register with Gymnasium."""
    modules: dict[str, str] = {}
    for name in modules_in([str(folder)])[:MAX_MODULES]:
        file = folder / f"{name}.py"
        try:
            source = read_user_file(file if file.exists() else folder / name / "__init__.py", MAX_MODULE_BYTES)
        except UserError:  # a pipe, a large file: no module to advise
            continue
        for env_id in REGISTER_CALL.findall(source):
            modules.setdefault(env_id.decode(), name)
    return modules
