"""The checks of a GPU in three parts, how each runs in its own process, and the file with their results.

Used by lab/gpu_check.py. Nothing heavy is imported here: a check is imported when its turn comes, and if that fails the
other checks still run.
"""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

from stride.utils.durable_file import write_json
from stride.utils.user_error import describe_error

PARTS: dict[str, dict[str, float]] = {  # part -> check -> most seconds; fewer if the part has less left
    "hashes": {
        "facts": 15, "hashes": 50, "rollouts": 80, "returns": 10, "replays": 60, "halves": 20, "waits": 40,
        "resume": 120, "crossing": 120,
    },
    "learn": {"facts": 15, "solving": 125, "learning": 385},
    "speed": {"facts": 15, "speed": 360, "kernels": 150},
}  # fmt: skip
# largest difference of weights by sums in another order; a number frozen in a CUDA graph makes a larger one
ROUNDING = 1e-3


class Machine(NamedTuple):
    """Where the checks run. Tests use the CPU, the host's compiler and small sizes."""

    device: str = "cuda:0"
    compile: Callable[..., Any] | None = None
    """compiles a source to kernels (type `Compile`); None: CuPy"""
    engines: tuple[str, ...] = ("eager", "graphed", "fused_gpu")
    plug: Callable[[Any, str], None] | None = None
    """gives an agent one of these engines, except eager, if there are no CUDA graphs; None: `build_agent` does"""
    small: bool = False


class Found(NamedTuple):
    """The result of a check so far; a check yields several, and each replaces the one before."""

    line: str  # for the terminal
    figures: Mapping[str, Any]  # for the file
    wrong: Sequence[str] | None = None  # a line for each fault; None if the check only measures


Check = Callable[[Machine, float], Iterator[Found]]  # (machine, seconds that it may take)


MODULES = {  # check -> module of lab/gpu, if that has another name
    "hashes": "bits", "returns": "bits", "halves": "bits", "replays": "engines", "waits": "engines",
    "resume": "engines", "crossing": "engines", "solving": "learn", "learning": "learn", "kernels": "speed",
}  # fmt: skip


def load(name: str) -> Check:
    check: Check = getattr(import_module(f"lab.gpu.{MODULES.get(name, name)}"), name)
    return check


Work = Callable[[], Iterator[Found]]

_fork = multiprocessing.get_context("fork")


class ApartError(Exception):
    """The work in another process failed; the text says how, in one line."""


def apart(work: Work, seconds: float) -> Iterator[Found]:
    """Run `work` in a forked process and yield what it yields.

    ApartError if it raises an error, dies, or is not finished after `seconds`. No process is left running.
    """
    reader, writer = _fork.Pipe(duplex=False)
    child = _fork.Process(target=_say, args=(work, writer))
    child.start()
    writer.close()
    deadline = time.monotonic() + seconds
    try:
        while reader.poll(max(0.0, deadline - time.monotonic())):
            try:
                message = reader.recv()
            except EOFError:
                child.join(max(0.0, deadline - time.monotonic()))
                if code := child.exitcode:
                    how = f"died by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
                    raise ApartError(f"its process {how}") from None
                return
            if isinstance(message, str):
                raise ApartError(message)
            yield message
        raise ApartError(f"stopped: not done within its {seconds:.0f} s")
    finally:
        _end(child)
        reader.close()


def _say(work: Work, writer: Connection) -> None:
    """Send what `work` yields, or the text of its error."""
    os.setsid()  # a process group, so that its children are ended with it
    try:
        for result in work():
            writer.send(result)
    except BaseException as error:
        writer.send(describe_error(error))
        raise


def _end(child: BaseProcess) -> None:
    """Kill the process and all that it has started."""
    assert child.pid is not None
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.kill()  # also where it has no group of its own yet
    child.join()


LEAST = 3.0  # seconds: with less time left, no check is started


class Record:
    """The results of a part, written to its file after each check; `null` if a check was not run."""

    def __init__(self, path: Path, facts: Mapping[str, Any], checks: Mapping[str, float], seconds: float) -> None:
        self.path, self.budgets, self.seconds, self.began = path, checks, seconds, time.monotonic()
        self.checks: dict[str, dict[str, Any] | None] = dict.fromkeys(checks)
        self.facts = {**facts, "began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        self.write()

    @property
    def left(self) -> float:
        return self.began + self.seconds - time.monotonic()

    def write(self) -> None:
        seconds = round(time.monotonic() - self.began, 1)
        write_json(self.path, {**self.facts, "seconds": seconds, "right": self.right, "checks": self.checks})

    @property
    def right(self) -> bool | None:
        """Whether all that was run is right and complete; None if nothing was checked yet."""
        ran = [check for check in self.checks.values() if check]
        if any(check["error"] or check["right"] is False for check in ran):
            return False
        return True if any(check["right"] for check in ran) else None

    def run(self, names: list[str], load: Callable[[str], Check], machine: Machine) -> None:
        """Run the named checks in the order of the table."""
        for name in [check_name for check_name in self.budgets if check_name in names]:
            seconds = min(self.budgets[name], self.left)
            if seconds < LEAST:
                self._tell(name, "not run: no time is left")
                continue
            self._tell(name, f"at most {seconds:.0f} s ...")
            self._run(name, load, machine, seconds)
            self.write()

    def _run(self, name: str, load: Callable[[str], Check], machine: Machine, seconds: float) -> None:
        began, last = time.monotonic(), Found("", {})
        entry: dict[str, Any] = {"right": None, "wrong": [], "error": None, "seconds": 0.0, "figures": {}}
        self.checks[name] = entry
        try:
            check = load(name)  # in this process, so that later checks are forked with these imports
            for last in apart(partial(check, machine, seconds * 0.95), seconds):
                entry["figures"], entry["wrong"] = dict(last.figures), list(last.wrong or ())
                entry["seconds"] = round(time.monotonic() - began, 1)
                self.write()
        except (ApartError, ImportError) as error:
            entry["error"] = str(error) if isinstance(error, ApartError) else describe_error(error)
        entry["seconds"] = round(time.monotonic() - began, 1)
        # a check that broke off proves nothing right, but the faults that it found are faults
        entry["right"] = False if entry["wrong"] else None if entry["error"] or last.wrong is None else True
        word = {True: "right", False: "WRONG", None: "ERROR" if entry["error"] else "done"}[entry["right"]]
        self._tell(name, f"{word}, {entry['seconds']:.1f} s: {entry['error'] or last.line}")
        for line in entry["wrong"]:
            print(f"{'':>24}{line}", flush=True)

    def _tell(self, name: str, line: str) -> None:
        print(f"{self.seconds - self.left:5.0f} s  {name:<9} {line}   ({max(0.0, self.left):.0f} s left)", flush=True)
