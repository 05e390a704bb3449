"""The checks of a part one after the other, each within its time, and the file, anew after every word of theirs."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lab.gpu.apart import ApartError, apart
from lab.gpu.parts import Check, Found, Machine
from stride.utils.durable_file import write_json
from stride.utils.one_line import describe_error

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
        """Seconds of the whole."""
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
