"""`njit` for all kernels of Stride, with a cache in the folder of `kernel_folder` instead of Numba's.

Numba's own cache finds the kernels of a file by the path of its folder, so a moved checkout would compile everything
again. It also numbers the files of machine code, and two processes at once could use the same number.
"""

import errno
import fcntl
import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Self

import numba
from numba.core.caching import CacheImpl, CompileResultCacheImpl, FunctionCache
from numba.core.dispatcher import Dispatcher
from numba.core.runtime import rtsys

from stride.utils.kernel_folder import FOLDER, PRIVATE, PROJECT


class KernelLocator:
    """Tells Numba the folder for the kernels of one source file: it depends on the file's path and content."""

    def __init__(self, function: Callable[..., object], file: str) -> None:
        self._py_file = file  # Numba's warnings name it
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: Callable[..., object], file: str) -> Self | None:
        """Return None for a function typed in a console, without a file; Numba then asks its own locators."""
        return cls(function, file) if os.path.exists(file) else None

    def get_cache_path(self) -> str:
        return str(FOLDER / f"{Path(self._py_file).stem}-{self.get_source_stamp()[:12]}")

    def ensure_cache_path(self) -> None:
        os.makedirs(self.get_cache_path(), PRIVATE, exist_ok=True)

    def get_source_stamp(self) -> str:
        return _stamp(self._py_file)

    def get_disambiguator(self) -> str:
        return str(self._line)


@cache
def _stamp(file: str) -> str:
    """Return the hash of a file's path in the checkout and its content."""
    path = Path(file).resolve()
    name = path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path
    return hashlib.sha256(f"{name}\0".encode() + path.read_bytes()).hexdigest()


class _Located(CompileResultCacheImpl):
    _locator_classes = [KernelLocator, *CacheImpl._locator_classes]  # noqa: RUF012  # as Numba has it


class KernelCache(FunctionCache):
    """Numba's cache in our folder. One process at a time writes to it; if it cannot be written, nothing is stored."""

    _impl_class = _Located

    def load_overload(self, signature: object, context: Any) -> Any:
        """Load a stored kernel as Numba does, but without importing what only compiling needs (50 MB, 0.3 s)."""
        rtsys.initialize(context)  # symbols that stored machine code refers to
        return self._load_overload(signature, context)

    def save_overload(self, signature: object, compiled: object) -> None:
        try:
            FOLDER.mkdir(PRIVATE, parents=True, exist_ok=True)
            file = open(FOLDER / "adding.lock", "w")  # noqa: SIM115  # closed below
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            return
        with file:
            fcntl.flock(file, fcntl.LOCK_EX)
            super().save_overload(signature, compiled)


def njit(*function: Callable[..., object], cache: bool = False, **options: Any) -> Any:
    """Decorate with numba.njit, with or without options; `cache=True` uses our cache."""

    def compiled(python: Callable[..., object]) -> Any:
        dispatcher = numba.njit(**options)(python)
        if cache and isinstance(dispatcher, Dispatcher):  # a plain function with NUMBA_DISABLE_JIT
            dispatcher._cache = KernelCache(python)  # type: ignore[attr-defined]
        return dispatcher

    return compiled(*function) if function else compiled
