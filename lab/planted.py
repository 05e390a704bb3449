"""Plants known faults into a copy of the checkout, one by one, and checks that the tests notice each.

    git clone . ../planted && python -m lab.planted ../planted
    python -m lab.planted ../planted --only slot memory     faults with these words in their names
    python -m lab.planted ../planted --draw 10 --seed 41 --fast     ten of them against the whole fast suite

The faults are in planted_faults.toml. For each, the tests that depend on its file run nearest first, as lab.quick
orders them, until one fails or the time is over. A fault counts as noticed only if the failed test passes without it. A
fault in a kernel takes half a minute more, because the kernels are compiled again.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import NamedTuple

from lab.quick import touched_tests
from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.places import PROJECT
from stride.utils.user_error import UserError

FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?\.py)(::.+?)?(?: - .*)?$", re.MULTILINE)
PYTEST = ("-x", "-q", "-rfE", "--numprocesses", "2", "--dist", "loadfile", "--no-loadscope-reorder", "--in-order")


class Fault(NamedTuple):
    """A fault: the text `old`, which is once in the file, is replaced by `new`."""

    name: str
    file: str
    old: str
    new: str

    def planted(self, text: str) -> str:
        """Return the file's text with the fault; UserError if `old` is not there exactly once."""
        if text.count(self.old) != 1:
            raise UserError(f"{self.name!r}: the text to replace is {text.count(self.old)} times in {self.file}")
        return text.replace(self.old, self.new)


def read_faults() -> list[Fault]:
    data = tomllib.loads(Path(__file__).with_name("planted_faults.toml").read_text())
    return [Fault(**entry) for entry in data["fault"]]


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("checkout", type=Path, help="a clean clone, whose files are changed and put back")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="faults with one of these words in their names")
    parser.add_argument("--draw", type=int, metavar="N", help="so many of them, drawn by --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60, help="for the tests of a fault (default 60)")
    parser.add_argument("--fast", action="store_true", help="the whole fast suite, without a limit of time")
    arguments = parser.parse_args(argv)
    checkout = arguments.checkout.resolve()
    if checkout == PROJECT or git(checkout, "status", "--porcelain", "--untracked-files=no"):
        raise UserError(f"{checkout} is no clean clone beside this checkout: git clone . ../planted")
    faults = [fault for fault in read_faults() if not arguments.only or any(w in fault.name for w in arguments.only)]
    if arguments.draw:
        faults = random.Random(arguments.seed).sample(faults, arguments.draw)
    noticed = 0
    for number, fault in enumerate(faults, 1):
        start = time.monotonic()
        test = noticing_test(checkout, fault, arguments)
        noticed += bool(test)
        print(f"{number:3} {time.monotonic() - start:4.0f} s  {fault.name}: {test or 'NOT NOTICED'}", flush=True)
    print(f"{noticed} of {len(faults)} planted faults are noticed")
    return 0 if noticed == len(faults) else 1


def noticing_test(checkout: Path, fault: Fault, arguments: argparse.Namespace) -> str:
    """Return the first test that fails with the fault and passes without it; "" if there is none."""
    path = checkout / fault.file
    original = path.read_text()
    tests = ["tests"] if arguments.fast else [*touched_tests(checkout, [fault.file])]
    path.write_text(fault.planted(original))
    try:
        output = run_tests(checkout, [*PYTEST, "-m", "not slow", *tests], None if arguments.fast else arguments.seconds)
    finally:
        path.write_text(original)
    failure = FAILED.search(output)
    if not failure:
        return ""
    test = failure[1] + (failure[2] or "")
    output_without = run_tests(checkout, ["-q", "-rfE", test], None)
    return "" if FAILED.search(output_without) else test


def run_tests(checkout: Path, arguments: list[str], seconds: float | None) -> str:
    """Run pytest and return its output; after so many seconds it is stopped."""
    command = [sys.executable, "-m", "pytest", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True) as tests:
        try:
            return tests.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            tests.terminate()  # xdist ends its processes, and the summary is printed
            return tests.communicate()[0]


def git(checkout: Path, *arguments: str) -> str:
    result = subprocess.run(["git", *arguments], cwd=checkout, capture_output=True, text=True, check=False)
    return result.stdout + result.stderr


if __name__ == "__main__":
    entry.run(main)
