"""Memory, disk or descriptors that ran out, as one line that says which key to lower and how to go on."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from stride.agents.experience.storage import TooLargeError
from stride.config.loader import to_plain
from stride.config.schema import Config
from stride.trainer_callbacks.memory_offer import offer
from stride.utils.durable_file import OUT_OF_HANDLES, OUT_OF_ROOM

HUNGRY = ("buffer_size", "memory_size", "n_envs", "n_steps", "batch_size", "hidden_dims", "frame_stack", "resize_obs")
SHORT = (*OUT_OF_ROOM, *OUT_OF_HANDLES, errno.ESTALE)
NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "invalid storage size", "overflow")


class NoRoomError(RuntimeError):
    """There was not enough memory, disk or descriptors; exit code 1."""


@contextmanager
def room_errors(
    config: Config, where: str, again: Callable[[str], str] = str, held: Callable[[], int] = int
) -> Iterator[None]:
    """Around building and training; `where` says how to go on, `again(key=value)` the command with a change, `held`
    how many bytes the agent's memory has."""
    try:
        yield
    except TooLargeError as error:
        add_offer(error, config, error, again)
        raise
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
        told = NoRoomError(f"out of memory: lower {', '.join(keys)}; {where}")
        add_offer(told, config, error, again, held())
        raise told from error


def add_offer(
    told: Exception, config: Config, cause: BaseException, again: Callable[[str], str], held: int = 0
) -> None:
    """Notes the command that would fit, where there is one; notes are said behind the line, uncut."""
    if word := offer(config, cause, held):
        told.add_note(f"this fits: {again(word)}")


def out_of_memory(error: BaseException) -> bool:
    """torch says on the GPU what it means by a class of its own, on the CPU by its text alone."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error).lower()
    return type(error) is RuntimeError and any(words in text for words in NO_MEMORY)
