"""Where this program is and how it is started: a checkout, or the package `stride` that a wheel has installed.

The modules have the same names in both, `stride.agents.ppo`. In a checkout the folder agents/ is beside the folder
stride/, and stride/__init__.py adds it to the package; in a wheel it is inside.
"""

import re
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent  # the folder that holds agents/, config/, utils/, ...
IS_WHEEL = (PROJECT / "commands").is_dir()
HOME = PROJECT if IS_WHEEL else PROJECT / "stride"  # the folder `stride`
ROOT = HOME.parent  # on sys.path it makes `import stride` work
RUN = "run_"  # run_play.py is `stride play`


def program(command: str) -> list[str]:
    """What starts `train` or `run_play` in a process of its own.

    Of a wheel it is a module and no file, and the present folder is not searched (-P): modules of these folders would
    hide the user's own, or the other way round.
    """
    if IS_WHEEL:
        return [sys.executable, "-P", "-m", f"stride.commands.{command}"]
    return [sys.executable, str(ROOT / f"{command}.py")]


def spelled(command: str) -> list[str]:
    """How a person types it: python train.py, or stride train."""
    return ["stride", command.removeprefix(RUN)] if IS_WHEEL else ["python", f"{command}.py"]


TRAIN, PLAY, PUBLISH = (" ".join(spelled(command)) for command in ("train", "run_play", "run_publish"))
COMMAND = re.compile(r"python (train|run_play|run_inspect|run_publish)\.py")


def as_typed(text: str) -> str:
    """A help text with its commands as they are typed here: of a wheel `python run_play.py` is `stride play`."""
    return COMMAND.sub(lambda match: " ".join(spelled(match[1])), text)


def module_of(path: str) -> str:
    """The dotted name of a file that is named from the project's folder: agents/ppo.py is stride.agents.ppo."""
    return f"stride.{path.removesuffix('.py').replace('/', '.')}"
