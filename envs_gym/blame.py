"""Turns errors of an environment's code into an EnvError of one line that names the world, the file and the line.

Code that calls user code wraps the call: `with Blame(env_id, envs) as blame:`. SystemExit and KeyboardInterrupt that an
environment raises are turned into errors, too, unless a real signal (Ctrl-C) caused them.
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

STRIDE_FOLDERS = ("agents", "config", "envs_fast", "envs_gym", "inspector", "publishing", "report", "runstore",
           "trainer_callbacks", "utils")  # fmt: skip
COMMANDS = ("train.py", "run_play.py", "run_inspect.py", "run_publish.py")
STRIDE_PATHS = (  # starts of the paths of Stride's own files
    *(f"{PROJECT / folder}{os.sep}" for folder in STRIDE_FOLDERS),
    f"{HOME}{os.sep}",
    *(str(ROOT / name) for name in COMMANDS),
)
PATHS = sysconfig.get_paths()
LIBRARY_PATHS = tuple(f"{PATHS[name]}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
PACKAGE_FOLDERS = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
ARGUMENT_ERRORS = (TypeError, ValueError, LookupError, AssertionError, AttributeError)  # raised for wrong arguments
DUMP_LINE = re.compile(r'File "([^"]+)", line (\d+)')  # a line of a traceback that faulthandler writes
ASK_LINE: signal.Signals | None = vars(signal).get("SIGUSR1")  # asks a child for its present line; not on Windows
ANSWER_SECONDS, WRITE_SECONDS = 1.0, 0.1  # time that a child has to begin its traceback, and to finish it
Line = tuple[str, int]  # (file, number of a line in it)


class EnvError(RuntimeError):
    """An environment raised, or returned something wrong. The message names it and the world; the cause is chained."""

    def __init__(self, message: str, reason: str = "") -> None:
        """`reason`: the message without the environment and the world."""
        super().__init__(message)
        self.reason = reason or message


class CodeError(EnvError):
    """Other code of the user raised: a policy or a sink, for example."""


class ModuleError(EnvError):
    """A module of the user raised while it was imported."""

    exit_code = 2


class Blame:
    """A context manager around calls of worlds: what they raise becomes an EnvError with world, file and line.

    The caller sets `world` to the number of the world that it steps, and `doing` to the name of the method.
    """

    def __init__(self, env_id: str, envs: Sequence[Env] = (), doing: str = "step") -> None:
        """`envs`: the worlds. They give file and line of a method that returned something wrong without raising."""
        self.env_id = env_id
        self.envs = envs
        self.world = 0
        self.doing = doing

    def during(self, doing: str) -> Self:
        """Set the name of the method that is called next, such as "reset"; return this object for a `with`."""
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
        """Stop the thread that watches for a time limit, where there is one (step_watch.py)."""

    def accuse(self, problem: str, lines: Iterable[Line]) -> EnvError:
        """Return the error to raise; `lines`: the lines of code that were running, innermost first."""
        location = self._location(list(lines))
        reason = f"{problem} ({one_line(location)})" if location else problem
        return EnvError(f"{self._name()}: {reason}", reason)

    def _name(self) -> str:
        return f"{one_line(self.env_id)}, environment {self.world}"

    def _location(self, lines: list[Line]) -> str:
        """Return "file:line" of the user's innermost line; else of the environment's; else where the method begins."""
        env_class = (
            type(self.envs[min(self.world, len(self.envs) - 1)].unwrapped) if self.envs else made_by(self.env_id)
        )
        files = set()  # of the environment's class and its base classes
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
    """Blame for the import of a module that a config names: it raises a ModuleError."""

    def __init__(self, module: str) -> None:
        super().__init__(module, doing="import")

    def _name(self) -> str:
        return f"{one_line(self.env_id)} cannot be imported"

    def accuse(self, problem: str, lines: Iterable[Line]) -> EnvError:
        error = super().accuse(problem, lines)
        return ModuleError(str(error), error.reason)


def missing(error: EnvError, module: str) -> bool:
    """Whether an import failed because this module is not installed, and not one that it imports itself."""
    cause = error.__cause__
    return isinstance(cause, ModuleNotFoundError) and f"{module}.".startswith(f"{cause.name}.")


def registered(env_id: str) -> EnvSpec | None:
    """Return Gymnasium's entry of `Id-v0` or `module:Id-v0`, None where it is not registered; nothing is imported."""
    return gymnasium.registry.get(env_id.rpartition(":")[2])


def creator_of(entry_point: Any) -> Any:
    """Return the class or function of an entry point; a text `module:Name` is imported."""
    return load_env_creator(entry_point) if isinstance(entry_point, str) else entry_point


def made_by(env_id: str) -> type[Env] | None:
    """Return the class of an id; None where its module is not imported yet or its entry point is a function."""
    env_spec = registered(env_id)
    creator = None if env_spec is None else env_spec.entry_point
    if isinstance(creator, str):
        module, _, name = creator.partition(":")
        creator = sys.modules[module].__dict__.get(name) if module in sys.modules else None
    return creator if isinstance(creator, type) else None


def maker_line(env_id: str) -> str:
    """Return "file:line" of the `step` (or the function) of the user's own environment; "" for a package's."""
    env_class = made_by(env_id)
    env_spec = registered(env_id)
    line_number = _first_line(env_class.step if env_class else env_spec and env_spec.entry_point)
    return shown(*line_number) if line_number and is_users(line_number[0]) else ""


def own_line(error: BaseException | None) -> str:
    """Return "file:line" of the user's innermost line that an error or its causes passed through; "" where none is."""
    while error is not None:
        for filename, line_number in of_traceback(error):
            if is_users(filename):
                return shown(filename, line_number)
        error = error.__cause__
    return ""


def of_traceback(error: BaseException) -> list[Line]:
    """Return the lines that an error passed through, innermost first."""
    frames = traceback.walk_tb(error.__traceback__)
    return [(frame.f_code.co_filename, line_number) for frame, line_number in frames][::-1]


def of_stack(frame: FrameType | None) -> list[Line]:
    """Return the lines that are running at this frame, innermost first, up to the first line of Stride."""
    lines = []
    for caller, line_number in traceback.walk_stack(frame):
        if caller.f_code.co_filename.startswith(STRIDE_PATHS):
            break
        lines.append((caller.f_code.co_filename, line_number))
    return lines


def is_users(filename: str) -> bool:
    """Whether a file is the user's: neither Stride's nor a library's."""
    foreign = filename.startswith(("<", *STRIDE_PATHS, *LIBRARY_PATHS)) or any(
        folder in filename for folder in PACKAGE_FOLDERS
    )
    return not foreign


def shown(filename: str, line_number: int) -> str:
    """Return "file:line"; the path is relative for a file in the working directory or below it."""
    relative = os.path.relpath(filename)
    return f"{filename if relative.startswith('..') else relative}:{line_number}"


def defined(env_class: type[Env], doing: str) -> str:
    """Return "file:line" where an environment's method begins; `doing`: its name."""
    methods = {"step": env_class.step, "reset": env_class.reset, "close": env_class.close, "render": env_class.render}
    line_number = _first_line(methods.get(doing, env_class.__init__))
    return shown(*line_number) if line_number else ""


def _first_line(function: object) -> Line | None:
    if not isinstance(function, FunctionType):
        return None
    return function.__code__.co_filename, function.__code__.co_firstlineno


def ours(error: BaseException) -> bool:
    """Whether an error was raised in Stride's own code, not in the user's or a library's Python code."""
    lines = of_traceback(error)
    return bool(lines) and lines[0][0].startswith(STRIDE_PATHS) and Path(lines[0][0]).is_file()


def describe_exit(code: int | None) -> str:
    """Describe for a message how a process ended; `code`: its exit code, None while it still runs."""
    if code is None:
        return "closed its pipe"
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def line_of_process(pid: int, dump: Connection) -> str:
    """Ask a child process for its present line and return it as `line_of_dump` does; works inside machine code."""
    if ASK_LINE is None:
        return ""
    try:
        os.kill(pid, ASK_LINE)
    except ProcessLookupError:
        return ""
    return line_of_dump(dump, ANSWER_SECONDS)


def line_of_dump(dump: Connection, timeout: float = 0.0) -> str:
    """Return the user's innermost line in a traceback that faulthandler wrote into a pipe, as " (file:line)".

    "" where there is no such line, or nothing arrives within `timeout` seconds.
    """
    if not dump.poll(timeout):
        return ""
    time.sleep(WRITE_SECONDS)  # the traceback is written piece by piece
    text = os.read(dump.fileno(), 1 << 16).decode(errors="replace")
    for filename, line_number in DUMP_LINE.findall(text):
        if is_users(filename):
            return f" ({shown(filename, int(line_number))})"
    return ""
