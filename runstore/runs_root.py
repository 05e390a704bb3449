"""Where all runs lie, and what a run's folder may be called. No torch."""

import os
import re
import stat
from pathlib import Path

from stride.utils.places import default_runs
from stride.utils.user_error import UserError

ID = re.compile(r"[A-Za-z0-9@][A-Za-z0-9._@-]{0,127}")
STAMP = re.compile(r"\d{8}-\d{6}-")


def runs_root() -> Path:
    """The folder of all runs: $STRIDE_RUNS, or the project's (`default_runs`); a folder, or nothing yet."""
    named = os.environ.get("STRIDE_RUNS")
    root = Path(named or default_runs()).absolute()
    whose = "STRIDE_RUNS names" if named else "runs would lie in"
    try:
        if not stat.S_ISDIR(os.stat(root).st_mode):
            raise UserError(f"{whose} {root}, which is no folder")
    except FileNotFoundError:
        if root.is_symlink():
            raise UserError(f"{whose} {root}, a link to nothing") from None
        return root
    except OSError as error:
        raise UserError(f"{whose} {root}: {error.strerror}") from error
    return root


def check_id(run_id: str) -> str:
    """The id itself, if it can only name a folder directly under the runs root; whatever came from outside."""
    if not ID.fullmatch(run_id) or ".." in run_id:
        shown = run_id if len(run_id) <= 60 else f"{run_id[:57]}..."
        raise UserError(f"{shown!r} is not a run id: at most 128 letters, digits, '.', '_', '-' and '@', no '..'")
    return run_id
