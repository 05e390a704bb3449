"""model.safetensors: tensors by name in a file that can hold nothing else, its header checked before anything is made.

Whether the tensors are those of a policy is for agents/trained/loading.py to say.
"""

import json
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from stride.utils.user_error import UserError

HEADER = 1 << 20
TENSORS = 4096
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
MISSING = "the Hugging Face Hub needs two packages: pip install 'stride-rl[hub]'"


def write_weights(tensors: Mapping[str, Tensor]) -> bytes:
    """The file's bytes; equal tensors give equal bytes."""
    return library().save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()})


def read_weights(data: bytes, where: str) -> dict[str, Tensor]:
    """Tensors on the CPU, all their numbers finite; UserError for whatever a sound file would not be."""
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
    """The size, place and kind of every tensor against the bytes that are really there."""
    # the format: 8 bytes with the header's length, little-endian, the header in JSON, then the numbers without a gap
    size = int.from_bytes(data[:8], "little") if len(data) >= 8 else 0
    if not 2 <= size <= min(HEADER, len(data) - 8):
        raise UserError(f"{where} is not a safetensors file: a header of {size:,} bytes in a file of {len(data):,}")
    try:
        header = json.loads(data[8 : 8 + size].decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{where} is not a safetensors file: its header is not JSON") from error
    if not isinstance(header, dict) or len(header) > TENSORS:
        raise UserError(f"{where} is not a safetensors file: its header does not list at most {TENSORS:,} tensors")
    body_size, position = len(data) - 8 - size, 0
    tensors = [(name, entry) for name, entry in header.items() if name != "__metadata__"]
    for tensor_index, (_, entry) in enumerate(sorted(tensors, key=lambda item: _place(item[1], where))):
        begin, end_offset = _place(entry, where)
        kind, shape = entry.get("dtype"), entry.get("shape")
        is_shape = (
            isinstance(shape, list) and len(shape) <= 8 and all(type(side) is int and side >= 0 for side in shape)
        )
        is_dtype = isinstance(kind, str) and kind in BYTES
        if not is_dtype or not is_shape or begin != position or end_offset - begin != math.prod(shape) * BYTES[kind]:
            raise UserError(
                f"{where}: the header's tensor {tensor_index} does not fit the {body_size:,} bytes that follow"
            )
        position = end_offset
    if position != body_size:
        raise UserError(f"{where}: the header declares {position:,} bytes of numbers, but the file has {body_size:,}")


def _place(entry: object, where: str) -> tuple[int, int]:
    """Where an entry says its numbers begin and end."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or len(offsets) != 2 or any(type(offset) is not int for offset in offsets):
        raise UserError(f"{where} is not a safetensors file: a tensor has no data_offsets")
    return offsets[0], offsets[1]


class _Library:
    """The part of the safetensors package that is used; the package is optional."""

    def __init__(self) -> None:
        try:
            from safetensors import SafetensorError
            from safetensors.torch import load, save
        except ImportError as error:
            raise UserError(MISSING) from error
        self.load, self.save, self.SafetensorError = load, save, SafetensorError


def library() -> _Library:
    """The package, or the line that says how to get it."""
    return _Library()
