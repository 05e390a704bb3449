"""Where Numba keeps compiled kernels: a folder for each state of the sources they are made of.

Numba looks at a kernel's own file only, so an edit of a function that is inlined from another file would go unnoticed
and the old machine code would run. Kernels take `njit` from here; NUMBA_CACHE_DIR, where set, is left alone.
"""

import hashlib
import os
import tempfile
from itertools import chain
from pathlib import Path

import numba

PROJECT = Path(__file__).resolve().parent.parent
SOURCES = ("envs_fast", "agents/engines/fused_cpu/kernels")
ALONE = (  # files whose folder holds other things too: kernels, and the constants they take
    "agents/engines/fused_cpu/frame.py",
    "agents/engines/fused_cpu/workers.py",
    "agents/engines/plan/layout.py",
    "agents/engines/plan/numbers.py",
    "agents/networks/heads.py",
    "agents/networks/squashed.py",
    "utils/counter_rng.py",
    "utils/simd_math.py",
)


def source_hash() -> str:
    """Names and contents of every file that may hold a piece of a kernel."""
    digest = hashlib.sha256()
    folders = (sorted((PROJECT / folder).glob("*.py")) for folder in SOURCES)
    for path in chain(*folders, (PROJECT / file for file in ALONE)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def cache_folder() -> Path:
    """In the project where one may write there, else among the user's temporary files."""
    base = PROJECT if os.access(PROJECT, os.W_OK) else Path(tempfile.gettempdir()) / f"stride-{os.getuid()}"
    return base / ".numba_cache" / source_hash()


if "NUMBA_CACHE_DIR" not in os.environ:
    numba.config.CACHE_DIR = str(cache_folder())  # type: ignore[attr-defined]

njit = numba.njit
