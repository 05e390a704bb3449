"""Starts a module of the laboratory `lab/`, which exists only in a clone of the project, not in a wheel.

The launchers in scripts/ run this file by its path, so that they also work where Stride is not installed. So it imports
only the standard library.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run_lab(module: str) -> None:
    """Replace this process by `python -m MODULE` with its arguments; without a clone print one line, exit code 2."""
    if not (ROOT / "lab").is_dir():
        print(f"this command needs a clone of the project; there, run python -m {module}", file=sys.stderr)
        sys.exit(2)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    arguments = [sys.executable, "-m", module, *sys.argv[1:]]
    os.execve(sys.executable, arguments, os.environ | {"PYTHONPATH": path})
