"""A command as a person types it, in a process of its own, without the seconds that importing torch takes.

Python's fork server imports the heavy packages once and none of the project; every command is forked from it and
imports the project anew, from its script's folder. Where the process itself is the point (what is imported, a cold
start, another processor) a test takes `subprocess`.
"""

import multiprocessing
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import forkserver
from pathlib import Path
from subprocess import CompletedProcess, TimeoutExpired
from tempfile import TemporaryDirectory
from unittest.mock import patch

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ["torch._dynamo", "lightning.pytorch", "gymnasium", "numba", "hydra.core.override_parser.overrides_parser"]
HEAVY += ["gymnasium.envs.classic_control", "torch.utils.serialization"]
HEAVY += [  # what Numba imports before it has its first kernel
    "numba.cpython.randomimpl", "numba.experimental.function_type", "numba.np.linalg", "numba.np.npyimpl",
    "numba.np.polynomial", "numba.np.random.generator_methods", "numba.typed.typedset",
]  # fmt: skip

_server = forkserver.ForkServer()  # our own: that of worlds in processes has the project loaded
_server.set_forkserver_preload(HEAVY)


def run_command(*words: str | Path, timeout: float = 300, **place) -> CompletedProcess[str]:
    """`python SCRIPT ...`, or `python -m MODULE ...`: what subprocess.run would answer."""
    typed = [*map(str, words)]
    with TemporaryDirectory() as folder:
        out, errors = Path(folder, "out"), Path(folder, "err")
        child = start_command(typed, out, errors, **place)
        child.join(timeout)
        if child.exitcode is None:
            child.kill()
            child.join()
            raise TimeoutExpired(typed, timeout)
        return CompletedProcess(typed, child.exitcode, out.read_text(), errors.read_text())


def start_command(
    words: Sequence[str], out: Path, errors: Path, cwd: Path | str = ROOT, env: Mapping[str, str] | None = None
) -> multiprocessing.process.BaseProcess:
    """A command begun, which writes into these files or pipes."""
    arguments = _program([*map(str, words)]), str(cwd), dict(os.environ if env is None else env), out, errors
    child = multiprocessing.get_context("forkserver").Process(target=_become, args=arguments)
    with patch.object(forkserver, "connect_to_new_process", _server.connect_to_new_process):
        child.start()
    return child


def refusal(capsys, command: Callable[[list[str]], int], *words: str | Path) -> str:
    """The one line with which a command of this process refuses these words."""
    capsys.readouterr()
    assert command([*map(str, words)]) == 2
    line = capsys.readouterr().err
    assert line.startswith("error: ") and line.count("\n") == 1 and len(line) < 400, line
    return line


def _program(words: list[str]) -> list[str]:
    """A file of the top as a wheel has it, which is no file to start: tests/ are run against wheels, too."""
    from stride.utils.places import HOME, IS_WHEEL  # not above: the child must find none of the project loaded

    file = HOME / "commands" / Path(words[0]).name
    return ["-P", "-m", f"stride.commands.{file.stem}", *words[1:]] if IS_WHEEL and file.is_file() else words


def _become(words: list[str], cwd: str, env: dict[str, str], out: Path, errors: Path) -> None:
    """The rest of this process is that command."""
    for number, path in ((1, out), (2, errors)):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", buffering=1, closefd=False)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    safe = words[0] == "-P"  # python -P: nothing is imported from where one stands
    words = words[safe:]
    module = words[1] if words[0] == "-m" else ""
    home = [] if safe else [cwd] if module else [str(Path(words[0]).resolve().parent)]
    asked = [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.path[:] = [*home, *asked, *(entry for entry in sys.path if entry and not _is_ours(entry))]
    sys.argv = words[1:] if module else words
    if module:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(words[0], run_name="__main__")


def _is_ours(entry: str) -> bool:
    """Whether pytest, and not the interpreter, put it on sys.path."""
    path = Path(entry).resolve()
    return path.is_relative_to(ROOT) and ".venv" not in path.parts
