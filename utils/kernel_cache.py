"""`njit` with a cache that does not depend on the path of a checkout, in the folder of `kernel_folder`.

Numba's own cache finds a file's kernels by the path of its folder, so that whoever moves a checkout compiles again, and
gives numbers to machine code that two processes at once would give twice.
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
    """Tells Numba where the kernels of one file are: by the file's path in the checkout and its content."""

    def __init__(self, function: Callable[..., object], file: str) -> None:
        self._py_file = file  # Numba's warnings name it
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: Callable[..., object], file: str) -> Self | None:
        """None where it was typed in; Numba asks its other locators then."""
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
    path = Path(file).resolve()
    name = path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path
    return hashlib.sha256(f"{name}\0".encode() + path.read_bytes()).hexdigest()


class _Located(CompileResultCacheImpl):
    _locator_classes = [KernelLocator, *CacheImpl._locator_classes]  # noqa: RUF012  # as Numba has it


class KernelCache(FunctionCache):
    """Numba's, in our folder; one process at a time adds to it, and where nobody can write, nothing is added."""

    _impl_class = _Located

    def load_overload(self, signature: object, context: Any) -> Any:
        """Numba's, but the modules that only compiling needs are not imported for a stored kernel: 50 MB, 0.3 s."""
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
    """numba.njit, as decorator with or without options."""

    def compiled(python: Callable[..., object]) -> Any:
        dispatcher = numba.njit(**options)(python)
        if cache and isinstance(dispatcher, Dispatcher):  # a plain function with NUMBA_DISABLE_JIT
            dispatcher._cache = KernelCache(python)  # type: ignore[attr-defined]
        return dispatcher

    return compiled(*function) if function else compiled
