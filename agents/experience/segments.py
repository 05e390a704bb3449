"""The rows of a memory on disk: append-only files, each written once and named by its hash.

A checkpoint lists the segments that make up its memory, so that it costs what is new since the one before. Rows never
change once written; what does (extras, priorities) lies in the checkpoint itself.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

import torch
from torch import Tensor

from stride.runstore import run_files, run_names
from stride.utils.user_error import UserError

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
    run_files.make_folder(folder)
    with run_files.replacing(folder / name) as file:  # also where a file of that name is there: it may be damaged
        file.write(data)
    return Segment(file=name, first=first, last=last, bytes=len(data), sha256=digest)


def read_segment(folder: Path, segment: Segment) -> memoryview:
    """Its bytes, compared with the hash."""
    path = folder / segment["file"]
    if path.name != segment["file"] or not run_names.SEGMENT.fullmatch(path.name):
        raise UserError(f"{path.name[:80]!r} is not the name of a part of a replay memory")
    found = run_files.status(path)
    if found is None:
        raise UserError(f"{path} is missing: the replay memory of this checkpoint is incomplete")
    data = run_files.read_bytes(path) if found.st_size == segment["bytes"] else b""
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


def delete_unnamed(folder: Path, named: Iterable[str]) -> list[str]:
    """Delete the segments that no kept checkpoint names, and rubbish of writes that were killed; what was deleted."""
    kept = set(named)
    found = [name for name in run_files.list_names(folder) if run_names.SEGMENT.fullmatch(name) and name not in kept]
    for name in found:
        run_files.remove(folder / name)
    run_files.sweep(folder)
    return found
