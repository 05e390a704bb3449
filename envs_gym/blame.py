"""Whose fault it is: whatever an environment raises becomes one line with its world, and the file and line of its code.

Also what is no error elsewhere: sys.exit or KeyboardInterrupt inside a step end a program, but are no person's wish.
"""

import os
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType, FunctionType, TracebackType
from typing import Any, Self

import gymnasium

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
REFUSALS = (TypeError, ValueError, LookupError, AssertionError, AttributeError)  # of arguments, by whoever is made
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

    def __init__(self, env_id: str, envs: Sequence[gymnasium.Env] = (), doing: str = "step") -> None:
        """`envs`: the worlds, for the file and line of what raises nothing itself but answers what it should not."""
        self.env_id, self.envs, self.world, self.doing = env_id, envs, 0, doing

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and not isinstance(error, EnvError | UserError) and not by_signal(error):
            raise self.accuse(describe_error(error), of_traceback(error)) from error

    def accuse(self, what: str, lines: Iterable[Line]) -> EnvError:
        """The error to raise; `lines` of the code that was running, innermost first."""
        where = self._where(list(lines))
        reason = f"{what} ({one_line(where)})" if where else what
        return EnvError(f"{self._whose()}: {reason}", reason)

    def _whose(self) -> str:
        return f"{one_line(self.env_id)}, world {self.world}"

    def _where(self, lines: list[Line]) -> str:
        """The innermost line of the user's own code; else of the environment's, wherever it is installed."""
        kind = type(self.envs[min(self.world, len(self.envs) - 1)].unwrapped) if self.envs else made_by(self.env_id)
        classes = [each for each in kind.__mro__ if each.__module__ in sys.modules] if kind else []
        modules = {each.__module__ for each in classes} - {gymnasium.Env.__module__}
        files = {sys.modules[module].__dict__.get("__file__") for module in modules}
        for wanted in (is_users, files.__contains__):
            for file, line in lines:
                if wanted(file):
                    return shown(file, line)
        return defined(kind, self.doing) if kind else ""


class Importing(Blame):
    """Wraps the import of a module that a config names."""

    def __init__(self, module: str) -> None:
        super().__init__(module, doing="import")

    def _whose(self) -> str:
        return f"{one_line(self.env_id)} cannot be imported"

    def accuse(self, what: str, lines: Iterable[Line]) -> EnvError:
        error = super().accuse(what, lines)
        return ModuleError(str(error), error.reason)


def missing(error: EnvError, module: str) -> bool:
    """Whether an import failed because there is no such module, and not because of what it imports itself."""
    cause = error.__cause__
    return isinstance(cause, ModuleNotFoundError) and f"{module}.".startswith(f"{cause.name}.")


def made_by(env_id: str) -> type[gymnasium.Env[Any, Any]] | None:
    """The class that an id stands for, where it has been imported and is one."""
    spec = gymnasium.registry.get(env_id.rpartition(":")[2])
    creator = None if spec is None else spec.entry_point
    if isinstance(creator, str):
        module, _, name = creator.partition(":")
        creator = sys.modules[module].__dict__.get(name) if module in sys.modules else None
    return creator if isinstance(creator, type) else None


def maker_line(env_id: str) -> str:
    """Where the user's own environment of this id steps, or is made by a function; "" where it is somebody else's."""
    kind, spec = made_by(env_id), gymnasium.registry.get(env_id.rpartition(":")[2])
    maker = kind.step if kind else spec and spec.entry_point
    code = maker.__code__ if isinstance(maker, FunctionType) else None
    return shown(code.co_filename, code.co_firstlineno) if code and is_users(code.co_filename) else ""


def own_line(error: BaseException | None) -> str:
    """The innermost line of the user's own code that an error or its cause passed through; "" where there is none."""
    while error is not None:
        for file, line in of_traceback(error):
            if is_users(file):
                return shown(file, line)
        error = error.__cause__
    return ""


def of_traceback(error: BaseException) -> list[Line]:
    """The lines an error passed through, innermost first."""
    return [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)][::-1]


def of_stack(frame: FrameType | None) -> list[Line]:
    """The lines that are being run, innermost first, up to the first of ours."""
    found = []
    for each, line in traceback.walk_stack(frame):
        if each.f_code.co_filename.startswith(OURS):
            break
        found.append((each.f_code.co_filename, line))
    return found


def is_users(file: str) -> bool:
    """Whether a file is neither ours nor a library's."""
    foreign = file.startswith(("<", *OURS, *LIBRARIES)) or any(folder in file for folder in INSTALLED)
    return not foreign


def shown(file: str, line: int) -> str:
    """As a person at the terminal would name it."""
    near = os.path.relpath(file)
    return f"{file if near.startswith('..') else near}:{line}"


def defined(kind: type[gymnasium.Env], doing: str) -> str:
    """Where an environment's method begins."""
    methods = {"step": kind.step, "reset": kind.reset, "close": kind.close, "render": kind.render}
    method = methods.get(doing, kind.__init__)
    if not isinstance(method, FunctionType):
        return ""
    return shown(method.__code__.co_filename, method.__code__.co_firstlineno)


def ours(error: BaseException) -> bool:
    """Whether an error was raised by our own code, or by what that called."""
    lines = of_traceback(error)
    return bool(lines) and lines[0][0].startswith(OURS) and Path(lines[0][0]).is_file()
