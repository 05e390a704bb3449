"""Memory, disk or descriptors that ran out, as one line that says which key to lower and how to go on."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from config.loader import to_plain
from config.schema import Config
from utils.durable_file import OUT_OF_ROOM

HUNGRY = ("buffer_size", "memory_size", "n_envs", "n_steps", "batch_size", "hidden_dims", "frame_stack", "resize_obs")
SHORT = (*OUT_OF_ROOM, errno.EMFILE, errno.ENFILE)
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "invalid storage size", "overflow")


class NoRoomError(RuntimeError):
    """There was not enough memory, disk or descriptors; exit code 1."""


@contextmanager
def room_errors(config: Config, where: str) -> Iterator[None]:
    """Around building and training; `where` says how to go on."""
    try:
        yield
    except OSError as error:
        if error.errno not in SHORT:
            raise
        place = f" ({error.filename})" if error.filename else ""
        raise NoRoomError(f"{error.strerror}{place}: the checkpoints written before are whole; {where}") from error
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        values = to_plain(config)
        keys = [f"{key} ({values[key]})" for key in HUNGRY if values.get(key) not in (None, False, 1)]
        raise NoRoomError(f"out of memory: lower {', '.join(keys)}; {where}") from error


def out_of_memory(error: BaseException) -> bool:
    """torch says on the GPU what it means by a class of its own, on the CPU by its text alone."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return type(error) is RuntimeError and any(words in text for words in NO_MEMORY)
