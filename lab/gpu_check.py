"""Checks that everything is right on this GPU, and how fast it is; three parts of less than nine minutes, no network.

    python scripts/gpu_check.py                     --part hashes: bits, CUDA graphs and resumed runs
    python scripts/gpu_check.py --part learn        PPO on CartPole, Pendulum and Acrobot, beside fused_cpu
    python scripts/gpu_check.py --part speed        worlds, rollouts, updates, and every kernel
    python scripts/gpu_check.py --only rollouts waits --json FILE
    python scripts/gpu_check.py --wheels .wheels    on a machine with a network: packs what the GPU's machine lacks
    python scripts/gpu_check.py --hashes            on any machine: writes the hashes that the GPU's bits must equal

The GPU's machine needs Python 3.11 or later, torch 2.11 or later for CUDA, CuPy, NumPy, Numba, Lightning, PyYAML and
rich. Other packages come from the folder that --wheels has filled and that is copied there. Without Numba no module of
an environment or agent can be imported: then every check except the facts fails, and nothing is proven.
Results are in docs/benchmarks/gpu-NAME-PART.json, written after each check.
Exit code 0: all that was run is right. 1: something is wrong, or broke off. 2: there is no GPU, or a wrong argument.
"""

import os
import sys
from pathlib import Path

if __name__ == "__main__" and __spec__ is None:  # run as a file: run it again as a module, which finds its imports
    path = os.pathsep.join(filter(None, (str(Path(__file__).resolve().parent.parent), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "lab.gpu_check", *sys.argv[1:]]
    os.execve(sys.executable, command, os.environ | {"PYTHONPATH": path})

import argparse
import re
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module

from lab.gpu.parts import PARTS, ApartError, Check, Machine, Record, apart, load
from lab.gpu.wheels import FOLDER, LACKED, missing, pack, unpack
from stride.commands.usage import called, parser_of
from stride.utils import entry
from stride.utils.provenance import PROJECT, git_hash, source_hash
from stride.utils.user_error import UserError, describe_error

SECONDS = 530.0  # for a part: a command on the GPU's machine may take ten minutes, this one less than nine
NAME_SECONDS = 60.0  # in which the GPU's name must be known
RESULTS = PROJECT / "docs" / "benchmarks"


def main(argv: list[str]) -> int:
    asked = arguments(argv)
    if asked.wheels is not None:
        print("\n".join(pack(asked.wheels, PROJECT, asked.python, (*LACKED, *asked.also))))
        return 0
    if asked.hashes:
        return import_module("lab.gpu.bits").write_hashes()  # imported here: it needs Numba and all environments
    folder = asked.carried or (PROJECT / FOLDER if (PROJECT / FOLDER).is_dir() else None)
    return unpacked(folder, argv) if folder and not asked.bare else measure(asked)


def arguments(argv: list[str]) -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--part", default=next(iter(PARTS)), choices=PARTS, help="what it is asked (default hashes)")
    parser.add_argument("--only", nargs="+", default=[], metavar="CHECK", help="some checks of the part")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help=f"for all (default {SECONDS:.0f})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="default docs/benchmarks/gpu-NAME-PART.json")
    parser.add_argument("--from-wheels", dest="carried", type=Path, metavar="DIR",
                        help=f"take packages from there (default {FOLDER}, where there is one)")  # fmt: skip
    parser.add_argument("--bare", action="store_true", help="take none of them")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="only fill this folder, for another machine")
    parser.add_argument("--also", nargs="+", default=[], metavar="PACKAGE", help="with --wheels: packages besides")
    parser.add_argument("--python", default="3.12", metavar="3.N", help="with --wheels: of that machine (3.12)")
    parser.add_argument("--hashes", action="store_true", help="only write the host's hashes")
    asked = parser.parse_args(argv)
    checks = PARTS[asked.part]
    if unknown := [name for name in asked.only if name not in checks]:
        raise UserError(f"--part {asked.part} has no check {unknown[0]}; it has {', '.join(checks)}")
    asked.only = asked.only or [*checks]
    return asked


def unpacked(carried: Path, argv: list[str]) -> int:
    """Unpack the copied packages into a temporary folder, and run this command again in a process that finds them."""
    with tempfile.TemporaryDirectory(prefix="stride-wheels-") as folder:
        unpack(carried, Path(folder))
        path = os.pathsep.join(filter(None, (folder, str(PROJECT), os.environ.get("PYTHONPATH"))))
        command = [sys.executable, "-m", "lab.gpu_check", *argv, "--bare"]
        return subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, check=False).returncode


def measure(asked: argparse.Namespace, machine: Machine = Machine(), load: Callable[[str], Check] = load) -> int:  # noqa: B008
    """Run the checks and write their results; return the exit code.

    This process never uses the GPU, because checks are forked from it.
    """
    started = time.monotonic()
    name = present(machine)
    if lacking := missing():
        where = "on a machine with a network: python scripts/gpu_check.py --wheels"
        print(f"not installed: {', '.join(lacking)}; what needs it is not checked. {where} {FOLDER} --also PACKAGE ...")
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    path = asked.json or RESULTS / f"gpu-{slug}-{asked.part}.json"
    facts = {
        "gpu": name, "part": asked.part, "command": called(), "git_hash": git_hash(), "source": source_hash(),
        "not_installed": lacking,
    }  # fmt: skip
    record = Record(path, facts, PARTS[asked.part], asked.seconds - (time.monotonic() - started))
    record.run(asked.only, load, machine)
    not_run = [check for check, outcome in record.checks.items() if outcome is None]
    verdict = {True: "whatever was run is right", False: "NOT right", None: "nothing was checked"}[record.right]
    left_out = f"; not run: {', '.join(not_run)}" if not_run else ""
    print(f"\n{name}: {verdict}{left_out}; {os.path.relpath(path)}")
    return 0 if record.right else 1


def present(machine: Machine) -> str:
    """Return the GPU's name; UserError if there is none."""
    try:
        [answer] = apart(partial(import_module("lab.gpu.facts").present, machine), NAME_SECONDS)
    except ImportError as error:
        raise UserError(f"{describe_error(error)}; a GPU is checked by torch") from error
    except ApartError as error:
        raise UserError(f"{machine.device}: {error}") from error
    if answer.wrong:
        raise UserError(answer.wrong[0])
    return answer.line


if __name__ == "__main__":
    entry.run(main)
