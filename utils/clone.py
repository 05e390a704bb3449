"""What only a clone can do: start the laboratory `lab/`, which no wheel holds. Only Python's own modules here.

The launchers in scripts/ run this file by its path, so that they also work where nothing of ours is installed.
"""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def run_lab(module: str) -> None:
    """Become `python -m MODULE` with the words of this process; where there is no clone one line and exit code 2."""
    if not (ROOT / "lab").is_dir():
        print(f"this command needs a clone of the project; there, run python -m {module}", file=sys.stderr)
        sys.exit(2)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    words = [sys.executable, "-m", module, *sys.argv[1:]]
    os.execve(sys.executable, words, os.environ | {"PYTHONPATH": path})
