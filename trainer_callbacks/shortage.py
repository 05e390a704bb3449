"""Turn a lack of memory, disk space or file descriptors into one clear line: what to lower, and a value that fits.

Trainings run inside `shortage_errors`. `keep_freed_memory` tunes the C library's allocator for speed.
"""

import ctypes
import errno
import math
import platform
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise

import torch

from stride.agents.experience.storage import SPARE, TooLargeError, free_bytes
from stride.config.loader import from_plain, to_plain
from stride.config.plugins import EVERYBODY
from stride.config.schema import Config, ReplayConfig
from stride.utils.durable_file import OUT_OF_HANDLES, OUT_OF_ROOM
from stride.utils.user_error import UserError

MEMORY_KEYS = (
    "buffer_size",
    "memory_size",
    "n_envs",
    "n_steps",
    "batch_size",
    "hidden_dims",
    "frame_stack",
    "resize_obs",
)
SHORTAGE_CODES = (*OUT_OF_ROOM, *OUT_OF_HANDLES, errno.ESTALE)
NO_MEMORY_TEXTS = ("can't allocate memory", "not enough memory", "out of memory", "invalid storage size", "overflow")
SAFE_SHARE = 0.95  # fraction of what would fit now: until the retry other programs may take some
MAX_TRIES = 200  # smaller values to try until the config is valid (a batch_size in rows has to divide the rollout)
UNITS = {"": 1, "bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
REQUESTED_BYTES = re.compile(r"(?:tried to allocate|unable to allocate) ([\d.]+) ?(bytes|[KMGT]?i?B)\b", re.IGNORECASE)
FREE_BYTES = re.compile(r"of which ([\d.]+) ?(bytes|[KMGT]?i?B) is free")
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's numbers for mallopt, malloc.h
# freed blocks above 64 MiB go back to the system, and so does free space above 1 GiB at the top of the heap
MMAP_BYTES, TRIM_BYTES = 1 << 26, 1 << 30


class ShortageError(RuntimeError):
    """There was not enough memory, disk space or file descriptors; exit code 1."""


@contextmanager
def shortage_errors(
    config: Config, advice: str, again: Callable[[str], str] = str, memory_bytes: Callable[[], int] = int
) -> Iterator[None]:
    """Raise a shortage inside the `with` block as ShortageError, with a note of a command that would fit.

    `advice`: how to continue, for the message. `again("n_envs=8")` returns the command with this change.
    `memory_bytes()` returns the bytes of the agent's memory.
    """
    try:
        yield
    except TooLargeError as error:
        _note_what_fits(error, offer(config, error), again)
        raise
    except OSError as error:
        if error.errno not in SHORTAGE_CODES:
            raise
        path = f" ({error.filename})" if error.filename else ""
        raise ShortageError(f"{error.strerror}{path}: earlier checkpoints are complete; {advice}") from error
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        values = to_plain(config)
        keys = [f"{key} ({values[key]})" for key in MEMORY_KEYS if values.get(key) not in (None, False, 1)]
        shortage = ShortageError(f"out of memory: lower {', '.join(keys)}; {advice}")
        _note_what_fits(shortage, offer(config, error, memory_bytes()), again)
        raise shortage from error


def _note_what_fits(error: Exception, override: str, again: Callable[[str], str]) -> None:
    """Add the command that would fit as a note, which is printed after the error's line at full length."""
    if override:
        error.add_note(f"this fits: {again(override)}")


def out_of_memory(error: BaseException) -> bool:
    """Return whether the error is about memory; torch has a class for that on the GPU, and only a text on the CPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return type(error) is RuntimeError and any(words in text for words in NO_MEMORY_TEXTS)


def offer(config: Config, error: BaseException, memory_bytes: int = 0) -> str:
    """Return the largest value that would fit, "buffer_size=50000" or "n_envs=8"; "" if lowering neither would help."""
    replayed = isinstance(config, ReplayConfig)
    if isinstance(error, TooLargeError):
        if error.key != ("buffer_size" if replayed else "n_steps"):
            return ""  # its own line says what fits
        return _lowered(config, error.key if replayed else "n_envs", error.fraction)
    requested = _bytes(REQUESTED_BYTES, str(error))
    largest_layer = 4 * max((a * b for a, b in pairwise(config.hidden_dims)), default=0)  # bytes
    if not requested or 2 * largest_layer > requested:  # a layer: fewer environments do not help
        return ""
    fits = SPARE * ((_bytes(FREE_BYTES, str(error)) or free_bytes("ram")) + memory_bytes)
    if replayed and memory_bytes > requested:
        return _lowered(config, "buffer_size", min((fits - requested) / memory_bytes, 1.0))
    return _lowered(config, "n_envs", min(fits / (requested + memory_bytes), 1.0))


def _lowered(config: Config, key: str, fraction: float) -> str:
    """Return `key=value` with the largest valid value below `fraction` of the present one, "" if none is valid."""
    value = math.floor(vars(config)[key] * (SAFE_SHARE * fraction))
    step = max(1, value // MAX_TRIES)
    for smaller in range(value, max(0, value - MAX_TRIES * step), -step):
        try:
            from_plain(to_plain(config), overrides=(f"{key}={smaller}",), trust=EVERYBODY)
        except UserError:
            continue
        return f"{key}={smaller}"
    return ""


def _bytes(pattern: re.Pattern[str], text: str) -> int:
    """Return the bytes that an error of torch or NumPy names ("tried to allocate 2.00 GiB"), 0 if it names none."""
    match = pattern.search(text)
    return int(float(match[1]) * UNITS[match[2]]) if match and match[2] in UNITS else 0


def keep_freed_memory() -> None:
    """Let this process keep the memory that it frees, if the C library is glibc.

    By default glibc returns large blocks, and the top of its heap, to the system. If they are requested again a moment
    later, the system fills the same pages with zeros. This took an eighth of the CPU time of PPO on Pong's screen, and
    made up to 600 page faults in an update of Dreamer.
    """
    if platform.libc_ver()[0] == "glibc":
        glibc = ctypes.CDLL(None)
        glibc.mallopt(MMAP_THRESHOLD, MMAP_BYTES)
        glibc.mallopt(TRIM_THRESHOLD, TRIM_BYTES)
