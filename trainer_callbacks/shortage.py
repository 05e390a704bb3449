"""Memory, disk or descriptors that ran out: one line with the keys to lower, how to go on, and what would fit."""

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

HUNGRY = ("buffer_size", "memory_size", "n_envs", "n_steps", "batch_size", "hidden_dims", "frame_stack", "resize_obs")
SHORT = (*OUT_OF_ROOM, *OUT_OF_HANDLES, errno.ESTALE)
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "invalid storage size", "overflow")
STEADY = 0.95  # of what would fit now: other programs take some meanwhile
TRIES = 200  # smaller values, until one keeps every rule (a batch_size in rows has to divide the rollout)
UNITS = {"": 1, "bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
ASKED = re.compile(r"(?:tried to allocate|unable to allocate) ([\d.]+) ?(bytes|[KMGT]?i?B)\b", re.IGNORECASE)
FREE = re.compile(r"of which ([\d.]+) ?(bytes|[KMGT]?i?B) is free")
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's numbers for mallopt, malloc.h
BLOCK, HEAP = 1 << 26, 1 << 30  # bytes: a larger block goes back when it is freed, and so does what the heap has above


class ShortageError(RuntimeError):
    """There was not enough memory, disk or descriptors; exit code 1."""


@contextmanager
def shortage_errors(
    config: Config, advice: str, again: Callable[[str], str] = str, memory_bytes: Callable[[], int] = int
) -> Iterator[None]:
    """Around building and training: a shortage becomes a ShortageError, with a note of a command that would fit.

    `advice` says how to go on, `again(key=value)` the command with a change, `memory_bytes` the size of the agent's
    memory.
    """
    try:
        yield
    except TooLargeError as error:
        _note_what_fits(error, offer(config, error), again)
        raise
    except OSError as error:
        if error.errno not in SHORT:
            raise
        path = f" ({error.filename})" if error.filename else ""
        raise ShortageError(f"{error.strerror}{path}: earlier checkpoints are complete; {advice}") from error
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        values = to_plain(config)
        keys = [f"{key} ({values[key]})" for key in HUNGRY if values.get(key) not in (None, False, 1)]
        shortage = ShortageError(f"out of memory: lower {', '.join(keys)}; {advice}")
        _note_what_fits(shortage, offer(config, error, memory_bytes()), again)
        raise shortage from error


def _note_what_fits(error: Exception, override: str, again: Callable[[str], str]) -> None:
    """Notes are printed after the error's line, uncut."""
    if override:
        error.add_note(f"this fits: {again(override)}")


def out_of_memory(error: BaseException) -> bool:
    """torch has a class for it on the GPU, and only a text on the CPU."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return type(error) is RuntimeError and any(words in text for words in NO_MEMORY)


def offer(config: Config, error: BaseException, memory_bytes: int = 0) -> str:
    """The largest buffer_size or n_envs that would fit, `key=value`; "" where lowering neither would help."""
    replayed = isinstance(config, ReplayConfig)
    if isinstance(error, TooLargeError):
        if error.key != ("buffer_size" if replayed else "n_steps"):
            return ""  # its own line says what fits
        return _lowered(config, error.key if replayed else "n_envs", error.fraction)
    asked = _bytes(ASKED, str(error))
    largest_layer = 4 * max((a * b for a, b in pairwise(config.hidden_dims)), default=0)  # bytes
    if not asked or 2 * largest_layer > asked:  # fewer worlds make no layer smaller
        return ""
    fits = SPARE * ((_bytes(FREE, str(error)) or free_bytes("ram")) + memory_bytes)
    if replayed and memory_bytes > asked:
        return _lowered(config, "buffer_size", min((fits - asked) / memory_bytes, 1.0))
    return _lowered(config, "n_envs", min(fits / (asked + memory_bytes), 1.0))


def _lowered(config: Config, key: str, fraction: float) -> str:
    """The largest value below this fraction of it with which the config keeps every rule."""
    value = math.floor(vars(config)[key] * (STEADY * fraction))
    step = max(1, value // TRIES)
    for smaller in range(value, max(0, value - TRIES * step), -step):
        try:
            from_plain(to_plain(config), overrides=(f"{key}={smaller}",), trust=EVERYBODY)
        except UserError:
            continue
        return f"{key}={smaller}"
    return ""


def _bytes(pattern: re.Pattern[str], text: str) -> int:
    """A size in the text of torch or NumPy, 0 where there is none."""
    match = pattern.search(text)
    return int(float(match[1]) * UNITS[match[2]]) if match and match[2] in UNITS else 0


def keep_freed_memory() -> None:
    """From now on memory that this process has freed stays with it, where the C library is glibc.

    glibc hands large blocks, and the top of its heap, back to the system, which fills the same pages with zeros when
    they are asked for again a moment later: of PPO on Pong's screen that was an eighth of the processor's time, of an
    update of Dreamer up to 600 faults.
    """
    if platform.libc_ver()[0] == "glibc":
        glibc = ctypes.CDLL(None)
        glibc.mallopt(MMAP_THRESHOLD, BLOCK)
        glibc.mallopt(TRIM_THRESHOLD, HEAP)
