"""Which code is to blame: whatever an environment raises becomes one line with its world, and its file and line.

Also what is no error elsewhere: sys.exit or KeyboardInterrupt inside a step end a program, but no person asked for it.
"""

import os
import re
import signal
import sys
import sysconfig
import time
import traceback
from collections.abc import Iterable, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType, FunctionType, TracebackType
from typing import Any, Self

import gymnasium
from gymnasium import Env
from gymnasium.envs.registration import EnvSpec, load_env_creator

from stride.utils.interrupted import by_signal
from stride.utils.places import HOME, PROJECT, ROOT
from stride.utils.user_error import UserError, describe_error, one_line

FOLDERS = ("agents", "config", "envs_fast", "envs_gym", "inspector", "publishing", "report", "runstore",
           "trainer_callbacks", "utils")  # fmt: skip
COMMANDS = ("train.py", "run_play.py", "run_inspect.py", "run_publish.py")
OURS = (
    *(f"{PROJECT / folder}{os.sep}" for folder in FOLDERS),
    f"{HOME}{os.sep}",
    *(str(ROOT / name) for name in COMMANDS),
)
PATHS = sysconfig.get_paths()
LIBRARIES = tuple(f"{PATHS[name]}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
REFUSALS = (TypeError, ValueError, LookupError, AssertionError, AttributeError)  # of arguments, by a constructor
DUMP_LINE = re.compile(r'File "([^"]+)", line (\d+)')  # of a traceback that faulthandler writes
ASK_LINE: signal.Signals | None = vars(signal).get("SIGUSR1")  # asks a child for the line it is in; not on Windows
ANSWER, PAUSE = 1.0, 0.1  # seconds that a child has to begin its answer, and to finish it
Line = tuple[str, int]  # a file, and a line of it


class EnvError(RuntimeError):
    """An environment broke its promise or raised; names the environment and the world, the cause is chained."""

    def __init__(self, message: str, reason: str = "") -> None:
        """`reason`: the message without the environment and the world."""
        super().__init__(message)
        self.reason = reason or message


class CodeError(EnvError):
    """Other code of the user's raised: a policy, a sink."""


class ModuleError(EnvError):
    """A module raised while it was imported, before there was any environment."""

    exit_code = 2


class Blame:
    """Wraps work on worlds so that whatever an environment raises says which world raised it, and where."""

    def __init__(self, env_id: str, envs: Sequence[Env] = (), doing: str = "step") -> None:
        """`envs`: the worlds, for the file and line of one that raises nothing itself but answers something wrong."""
        self.env_id = env_id
        self.envs = envs
        self.world = 0
        self.doing = doing

    def during(self, doing: str) -> Self:
        """This object, for the call of that name."""
        self.doing = doing
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, EnvError | UserError) and not by_signal(error):
            raise self.accuse(describe_error(error), of_traceback(error)) from error

    def close(self) -> None:
        """Stop watching, where it does (step_watch.py)."""

    def accuse(self, problem: str, lines: Iterable[Line]) -> EnvError:
        """The error to raise; `lines` of the code that was running, innermost first."""
        location = self._location(list(lines))
        reason = f"{problem} ({one_line(location)})" if location else problem
        return EnvError(f"{self._name()}: {reason}", reason)

    def _name(self) -> str:
        return f"{one_line(self.env_id)}, environment {self.world}"

    def _location(self, lines: list[Line]) -> str:
        """The innermost line of the user's own code; else of the environment's, wherever it is installed."""
        env_class = (
            type(self.envs[min(self.world, len(self.envs) - 1)].unwrapped) if self.envs else made_by(self.env_id)
        )
        files = set()
        for base in env_class.__mro__ if env_class else ():
            if base.__module__ in sys.modules and base.__module__ != Env.__module__:
                files.add(sys.modules[base.__module__].__dict__.get("__file__"))
        for filename, line_number in lines:
            if is_users(filename):
                return shown(filename, line_number)
        for filename, line_number in lines:
            if filename in files:
                return shown(filename, line_number)
        return defined(env_class, self.doing) if env_class else ""


class Importing(Blame):
    """Wraps the import of a module that a config names."""

    def __init__(self, module: str) -> None:
        super().__init__(module, doing="import")

    def _name(self) -> str:
        return f"{one_line(self.env_id)} cannot be imported"

    def accuse(self, problem: str, lines: Iterable[Line]) -> EnvError:
        error = super().accuse(problem, lines)
        return ModuleError(str(error), error.reason)


def missing(error: EnvError, module: str) -> bool:
    """Whether an import failed because there is no such module, and not because of what it imports itself."""
    cause = error.__cause__
    return isinstance(cause, ModuleNotFoundError) and f"{module}.".startswith(f"{cause.name}.")


def registered(env_id: str) -> EnvSpec | None:
    """Gymnasium's entry of an id, with or without a module before it; None where there is none."""
    return gymnasium.registry.get(env_id.rpartition(":")[2])


def creator_of(entry_point: Any) -> Any:
    """The class or function of an entry point, which a text `module:Name` names."""
    return load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point


def made_by(env_id: str) -> type[Env] | None:
    """The class of an id, where it has been imported and is one."""
    env_spec = registered(env_id)
    creator = None if env_spec is None else env_spec.entry_point
    if isinstance(creator, str):
        module, _, name = creator.partition(":")
        creator = sys.modules[module].__dict__.get(name) if module in sys.modules else None
    return creator if isinstance(creator, type) else None


def maker_line(env_id: str) -> str:
    """Where the user's own environment of this id steps, or is made by a function; "" where it is somebody else's."""
    env_class = made_by(env_id)
    env_spec = registered(env_id)
    line_number = _first_line(env_class.step if env_class else env_spec and env_spec.entry_point)
    return shown(*line_number) if line_number and is_users(line_number[0]) else ""


def own_line(error: BaseException | None) -> str:
    """The innermost line of the user's own code that an error or its cause passed through; "" where there is none."""
    while error is not None:
        for filename, line_number in of_traceback(error):
            if is_users(filename):
                return shown(filename, line_number)
        error = error.__cause__
    return ""


def of_traceback(error: BaseException) -> list[Line]:
    """The lines an error passed through, innermost first."""
    frames = traceback.walk_tb(error.__traceback__)
    return [(frame.f_code.co_filename, line_number) for frame, line_number in frames][::-1]


def of_stack(frame: FrameType | None) -> list[Line]:
    """The lines that are being run, innermost first, up to the first of ours."""
    lines = []
    for caller, line_number in traceback.walk_stack(frame):
        if caller.f_code.co_filename.startswith(OURS):
            break
        lines.append((caller.f_code.co_filename, line_number))
    return lines


def is_users(filename: str) -> bool:
    """Whether a file is neither ours nor a library's."""
    foreign = filename.startswith(("<", *OURS, *LIBRARIES)) or any(folder in filename for folder in INSTALLED)
    return not foreign


def shown(filename: str, line_number: int) -> str:
    """A file and a line, relative to the working directory where it is below that."""
    relative = os.path.relpath(filename)
    return f"{filename if relative.startswith('..') else relative}:{line_number}"


def defined(env_class: type[Env], doing: str) -> str:
    """Where an environment's method begins."""
    methods = {"step": env_class.step, "reset": env_class.reset, "close": env_class.close, "render": env_class.render}
    line_number = _first_line(methods.get(doing, env_class.__init__))
    return shown(*line_number) if line_number else ""


def _first_line(function: object) -> Line | None:
    if not isinstance(function, FunctionType):
        return None
    return function.__code__.co_filename, function.__code__.co_firstlineno


def ours(error: BaseException) -> bool:
    """Whether an error was raised by our own code, or by a library that it called."""
    lines = of_traceback(error)
    return bool(lines) and lines[0][0].startswith(OURS) and Path(lines[0][0]).is_file()


def describe_exit(code: int | None) -> str:
    """How a process ended."""
    if code is None:
        return "closed its pipe"
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def line_of_process(pid: int, dump: Connection) -> str:
    """Ask a child process for the line it is in, which it answers even inside machine code: as `line_of_dump`."""
    if ASK_LINE is None:
        return ""
    try:
        os.kill(pid, ASK_LINE)
    except ProcessLookupError:
        return ""
    return line_of_dump(dump, ANSWER)


def line_of_dump(dump: Connection, timeout: float = 0.0) -> str:
    """The line of user code in a traceback that faulthandler wrote into a pipe: " (file:line)", "" where none is."""
    if not dump.poll(timeout):
        return ""
    time.sleep(PAUSE)  # it is written piece by piece
    text = os.read(dump.fileno(), 1 << 16).decode(errors="replace")
    for filename, line_number in DUMP_LINE.findall(text):
        if is_users(filename):
            return f" ({shown(filename, int(line_number))})"
    return ""
