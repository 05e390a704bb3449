"""The rows of a memory on disk: append-only files, each written once and named by its hash.

A checkpoint lists the segments that make up its memory, so that it costs what is new since the one before. Rows never
change once written; what does (extras, priorities) lies in the checkpoint itself.
"""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

import torch
from torch import Tensor

from utils.durable_file import sync_folder
from utils.user_error import UserError

PIECE = 64 << 20  # bytes of a segment, about


class Segment(TypedDict):
    """The rows [first, last) in one file."""

    file: str
    first: int
    last: int
    bytes: int
    sha256: str


def write_segment(folder: Path, first: int, last: int, tensors: Iterable[Tensor]) -> Segment:
    """Beside its place, synced, then renamed; the same rows are the same file."""
    data = b"".join(to_bytes(tensor) for tensor in tensors)
    digest = hashlib.sha256(data).hexdigest()
    name = f"{first}-{last}-{digest[:16]}.rows"
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f"{name}.{os.getpid()}.tmp"
    try:  # also where a file of that name is there: it may be damaged
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, folder / name)
        sync_folder(folder)
    finally:
        temporary.unlink(missing_ok=True)
    return Segment(file=name, first=first, last=last, bytes=len(data), sha256=digest)


def read_segment(folder: Path, segment: Segment) -> memoryview:
    """Its bytes, compared with the hash."""
    path = folder / Path(segment["file"]).name
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing: the replay memory of this checkpoint is incomplete") from error
    if len(data) != segment["bytes"] or hashlib.sha256(data).hexdigest() != segment["sha256"]:
        raise UserError(f"{path} is damaged: its hash is not the one the checkpoint names")
    return memoryview(bytearray(data))


def to_bytes(tensor: Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().view(-1)
    return flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b""


def take(data: memoryview, shape: tuple[int, ...], like: Tensor) -> tuple[Tensor, memoryview]:
    """The next tensor of this shape and `like`'s dtype, and what is left."""
    count = 1
    for size in shape:
        count *= size
    if not count:
        return like.new_zeros(shape), data
    size = count * like.element_size()
    return torch.frombuffer(data[:size], dtype=like.dtype).view(shape), data[size:]


def prune(folder: Path, named: Iterable[str]) -> list[str]:
    """Delete the segments that no kept checkpoint names, and rubbish of writes that were killed; what was deleted."""
    kept = set(named)
    found = [path for path in sorted(folder.glob("*")) if path.suffix in (".rows", ".tmp") and path.name not in kept]
    for path in found:
        path.unlink()
    return [path.name for path in found]
