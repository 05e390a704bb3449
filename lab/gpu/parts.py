"""What a GPU is asked, in three parts: checks in this order, each in a process of its own; and the file.

Nothing heavy is imported here: a check is loaded when its turn comes, and one that cannot be stops no other.
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

PARTS: dict[str, dict[str, float]] = {  # at most so many seconds, as long as the whole part has any left
    "hashes": {
        "facts": 15, "hashes": 50, "rollouts": 80, "returns": 10, "replays": 60, "halves": 20, "waits": 40,
        "resume": 120, "crossing": 120,
    },
    "learn": {"facts": 15, "solving": 125, "learning": 385},
    "speed": {"facts": 15, "speed": 360, "kernels": 150},
}  # fmt: skip
ROUNDING = 1e-3  # of weights: sums in another order stay within; a number that a graph has frozen leads further


class Machine(NamedTuple):
    """Where the checks run; tests hand in the CPU, the host's compiler, and want it small."""

    device: str = "cuda:0"
    compile: Callable[..., Any] | None = None
    """who makes kernels of a source (`utils.device_source.Compile`); None: CuPy"""
    engines: tuple[str, ...] = ("eager", "graphed", "fused_gpu")
    plug: Callable[[Any, str], None] | None = None
    """who gives an agent one of these but eager where there are no CUDA graphs; None: `build_agent`"""
    small: bool = False


class Found(NamedTuple):
    """What a check knows so far: each replaces the one before."""

    line: str  # for people
    figures: Mapping[str, Any]  # for the file
    wrong: Sequence[str] | None = None  # a line for whatever is not as it must be; None where nothing can be wrong


Check = Callable[[Machine, float], Iterator[Found]]  # on this machine, in so many seconds


MODULES = {  # where those checks are that have no module of their name
    "hashes": "bits", "returns": "bits", "halves": "bits", "replays": "engines", "waits": "engines",
    "resume": "engines", "crossing": "engines", "solving": "learn", "learning": "learn", "kernels": "speed",
}  # fmt: skip


def load(name: str) -> Check:
    check: Check = getattr(import_module(f"lab.gpu.{MODULES.get(name, name)}"), name)
    return check


Work = Callable[[], Iterator[Found]]

_fork = multiprocessing.get_context("fork")


class ApartError(Exception):
    """How the work broke off, in one line."""


def apart(work: Work, seconds: float) -> Iterator[Found]:
    """What `work` yields; ApartError where it raises, dies, or is not done in time. It leaves no process behind."""
    reader, writer = _fork.Pipe(duplex=False)
    child = _fork.Process(target=_say, args=(work, writer))
    child.start()
    writer.close()
    until = time.monotonic() + seconds
    try:
        while reader.poll(max(0.0, until - time.monotonic())):
            try:
                said = reader.recv()
            except EOFError:
                child.join(max(0.0, until - time.monotonic()))
                if code := child.exitcode:
                    how = f"died by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
                    raise ApartError(f"its process {how}") from None
                return
            if isinstance(said, str):
                raise ApartError(said)
            yield said
        raise ApartError(f"stopped: not done within its {seconds:.0f} s")
    finally:
        _end(child)
        reader.close()


def _say(work: Work, writer: Connection) -> None:
    os.setsid()  # what it starts is ended with it
    try:
        for found in work():
            writer.send(found)
    except BaseException as error:
        writer.send(describe_error(error))
        raise


def _end(child: BaseProcess) -> None:
    """With all that it has started."""
    assert child.pid is not None
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.kill()  # also where it has no group of its own yet
    child.join()


LEAST = 3.0  # seconds: with less left a check is not begun


class Record:
    """What is known so far; `null` is what was not run."""

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
        """Whether whatever was run is as it must be, to its end; None where nothing could be wrong yet."""
        ran = [check for check in self.checks.values() if check]
        if any(check["error"] or check["right"] is False for check in ran):
            return False
        return True if any(check["right"] for check in ran) else None

    def run(self, names: list[str], load: Callable[[str], Check], machine: Machine) -> None:
        """The named checks, in the table's order."""
        for name in [each for each in self.budgets if each in names]:
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
            check = load(name)  # here, so that all later checks are forked with what it has imported
            for last in apart(partial(check, machine, seconds * 0.95), seconds):
                entry["figures"], entry["wrong"] = dict(last.figures), list(last.wrong or ())
                entry["seconds"] = round(time.monotonic() - began, 1)
                self.write()
        except (ApartError, ImportError) as error:
            entry["error"] = str(error) if isinstance(error, ApartError) else describe_error(error)
        entry["seconds"] = round(time.monotonic() - began, 1)
        # a check that broke off has shown nothing to be right, but what it found wrong is wrong
        entry["right"] = False if entry["wrong"] else None if entry["error"] or last.wrong is None else True
        word = {True: "right", False: "WRONG", None: "ERROR" if entry["error"] else "done"}[entry["right"]]
        self._tell(name, f"{word}, {entry['seconds']:.1f} s: {entry['error'] or last.line}")
        for line in entry["wrong"]:
            print(f"{'':>24}{line}", flush=True)

    def _tell(self, name: str, line: str) -> None:
        print(f"{self.seconds - self.left:5.0f} s  {name:<9} {line}   ({max(0.0, self.left):.0f} s left)", flush=True)
