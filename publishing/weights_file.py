"""Writes and reads model.safetensors, a file that can contain only tensors by name.

Its header is checked before any tensor is made, because the file may come from anybody. agents/trained/loading.py
checks whether the tensors are those of a policy.
"""

import json
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from stride.utils.user_error import UserError

MAX_HEADER_BYTES = 1 << 20
MAX_TENSORS = 4096
# dtype in the header -> bytes of one number
TYPE_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
MISSING = "the Hugging Face Hub needs two packages: pip install 'stride-rl[hub]'"


def write_weights(tensors: Mapping[str, Tensor]) -> bytes:
    """Return the bytes of a file with these tensors; equal tensors give equal bytes."""
    return library().save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})


def read_weights(data: bytes, where: str) -> dict[str, Tensor]:
    """Return the tensors of a file, on the CPU; UserError if it is damaged or has numbers that are not finite."""
    check_header(data, where)
    try:
        tensors = library().load(data)
    except (ValueError, KeyError, RuntimeError) as error:
        raise UserError(f"{where} is damaged: {' '.join(str(error).split())[:100]}") from error
    except library().SafetensorError as error:
        raise UserError(f"{where} is damaged: {' '.join(str(error).split())[:100]}") from error
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise UserError(f"{where}: tensor {name} has numbers that are not finite")
    return tensors


def check_header(data: bytes, where: str) -> None:
    """Raise UserError unless size, position and type of every tensor in the header fit the bytes of the file.

    `data`: the complete file."""
    # the format: 8 bytes with the header's length (little-endian), the header as JSON, the tensors' bytes without gaps
    size = int.from_bytes(data[:8], "little") if len(data) >= 8 else 0
    if not 2 <= size <= min(MAX_HEADER_BYTES, len(data) - 8):
        raise UserError(f"{where} is not a safetensors file: a header of {size:,} bytes in a file of {len(data):,}")
    try:
        header = json.loads(data[8 : 8 + size].decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not a safetensors file: its header is not JSON") from error
    if not isinstance(header, dict) or len(header) > MAX_TENSORS:
        raise UserError(f"{where} is not a safetensors file: its header does not list at most {MAX_TENSORS:,} tensors")
    body_size, position = len(data) - 8 - size, 0
    tensors = [(name, entry) for name, entry in header.items() if name != "__metadata__"]
    for tensor_index, (_, entry) in enumerate(sorted(tensors, key=lambda item: _place(item[1], where))):
        begin, end_offset = _place(entry, where)
        kind, shape = entry.get("dtype"), entry.get("shape")
        is_shape = (
            isinstance(shape, list) and len(shape) <= 8 and all(type(side) is int and side >= 0 for side in shape)
        )
        is_dtype = isinstance(kind, str) and kind in TYPE_BYTES
        if (
            not is_dtype
            or not is_shape
            or begin != position
            or end_offset - begin != math.prod(shape) * TYPE_BYTES[kind]
        ):
            raise UserError(
                f"{where}: the header's tensor {tensor_index} does not fit the {body_size:,} bytes that follow"
            )
        position = end_offset
    if position != body_size:
        raise UserError(f"{where}: the header declares {position:,} bytes of numbers, but the file has {body_size:,}")


def _place(entry: object, where: str) -> tuple[int, int]:
    """Return where an entry of the header says that its bytes begin and end, after the header."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or any(type(offset) is not int for offset in offsets):
        raise UserError(f"{where} is not a safetensors file: a tensor has no data_offsets")
    return offsets[0], offsets[1]


class _Library:
    """The functions of the optional package safetensors that are used."""

    def __init__(self) -> None:
        try:
            from safetensors import SafetensorError
            from safetensors.torch import load, save
        except ImportError as error:
            raise UserError(MISSING) from error
        self.load, self.save, self.SafetensorError = load, save, SafetensorError


def library() -> _Library:
    """Import and return the package; UserError says how to install it."""
    return _Library()
