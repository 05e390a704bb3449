"""Files of the present folder that come close to an environment that was asked for and does not exist.

Nothing is imported or run here: a module is searched for `register("ID", ...)` as text.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from stride.config.foreign import atari_id
from stride.utils.own_modules import modules_in
from stride.utils.places import TRAIN, current_folder, current_project
from stride.utils.user_error import UserError, nearest, read_user_file

REGISTER_CALL = re.compile(rb"""\bregister\(\s*(?:id\s*=\s*)?["']([\w./-]{1,100})["']""")
MAX_ID_LETTERS = 100  # letters of an id that is looked for
MAX_MODULES, MAX_MODULE_BYTES = 200, 1 << 20  # that are searched, of each


def advice(env_id: str, ids: Iterable[str]) -> str:
    """`; did you mean Ant-v5?` and the like for an unknown environment: its name here, a file nearby, a near id."""
    if atari_id(env_id):
        return f"; its name in Gymnasium is {atari_id(env_id)}"
    return _file_advice(env_id) or nearest(env_id, ids)


def _file_advice(env_id: str) -> str:
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
    """The ids that modules and packages of a folder register with Gymnasium, and by which of them."""
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
