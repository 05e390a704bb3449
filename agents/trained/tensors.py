"""Finds the first tensor in which two runs differ, in the checkpoints that both have, from the oldest on."""

from collections.abc import Iterator

import torch
from torch import Tensor

from stride.agents.trained.loading import read_checkpoint
from stride.runstore import checkpoint_set
from stride.runstore.run_dir import RunDir

MAX_DEPTH = 12  # levels of nested dicts and lists


def first_tensor(first: RunDir, second: RunDir) -> dict[str, object]:
    """Return the first differing tensor's checkpoint, name, counts, and what `first_difference` says about it.

    If all are equal bit for bit, return {"checkpoints": [names of those compared]}.
    """
    second_names = checkpoint_set.known(second.checkpoints)
    common_names = [name for name in checkpoint_set.known(first.checkpoints) if name in second_names]
    for checkpoint in common_names:
        file_name = f"{checkpoint}.ckpt"
        first_tensors = dict(tensors(read_checkpoint(first.checkpoints / file_name)))
        second_tensors = dict(tensors(read_checkpoint(second.checkpoints / file_name)))
        all_names = first_tensors | second_tensors
        differing = [name for name in all_names if not same(first_tensors.get(name), second_tensors.get(name))]
        if differing:
            name = differing[0]
            difference = first_difference(first_tensors.get(name), second_tensors.get(name))
            return {"checkpoint": checkpoint, "name": name, "tensors": len(all_names),
                    "differing": len(differing), **difference}  # fmt: skip
    return {"checkpoints": common_names}


def tensors(value: object, name: str = "", depth: int = 0) -> Iterator[tuple[str, Tensor]]:
    """Yield (name, tensor) for every tensor of a checkpoint, weights first; the name is its path of keys, with dots."""
    if isinstance(value, Tensor):
        yield name, value
    elif isinstance(value, dict | list | tuple) and depth < MAX_DEPTH:
        children = list(value.items() if isinstance(value, dict) else enumerate(value))
        children.sort(key=lambda item: item[0] != "state_dict")
        for key, child_value in children:
            yield from tensors(child_value, f"{name}.{key}" if name else str(key), depth + 1)


def same(left: Tensor | None, right: Tensor | None) -> bool:
    """Return whether two tensors are equal bit for bit, NaN included; False if one is None."""
    if left is None or right is None or left.shape != right.shape or left.dtype != right.dtype:
        return False
    return torch.equal(_bytes(left), _bytes(right))


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def first_difference(left: Tensor | None, right: Tensor | None) -> dict[str, object]:
    """Return the first index where two tensors differ (`place`), both values, and the largest difference (`most`).

    If shapes differ or one is None, the values are descriptions of the shapes.
    """
    if left is None or right is None or left.shape != right.shape:
        return {"place": [], "first": _shape_of(left), "second": _shape_of(right), "most": None}
    shape = left.shape
    left, right = left.reshape(-1).double(), right.reshape(-1).double()
    differing = torch.nonzero((left != right) & ~(left.isnan() & right.isnan())).reshape(-1)
    flat = int(differing[0]) if len(differing) else 0
    index = [int(i) for i in torch.unravel_index(torch.tensor(flat), shape)] if shape else []
    largest = float((left - right).abs().nan_to_num(0.0).max())
    return {"place": index, "first": f"{left[flat]:.9g}", "second": f"{right[flat]:.9g}", "most": largest}


def _shape_of(tensor: Tensor | None) -> str:
    return "none" if tensor is None else f"shape {list(tensor.shape)}"
