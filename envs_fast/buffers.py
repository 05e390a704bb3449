"""Allocates the buffers that kernels write step results into: several tensors in one piece of memory.

Each tensor begins at a multiple of 64 bytes, the size of a cache line.
"""

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from stride.envs_fast.vec_env import Obs

Kind = tuple[tuple[int, ...], torch.dtype]  # shape and type of a tensor
Arrays = TypeVar("Arrays")  # the same buffers as kernels take them: StepResults on the CPU, a tuple of tensors on a GPU
LINE = 64  # bytes of a cache line


class Trajectory(NamedTuple, Generic[Arrays]):
    """The results of T steps of N worlds: the fields of `Step` with a time axis in front, and the same for kernels."""

    obs: Obs  # [T, N, ...] after each action
    reward: Tensor  # this and the others: [T, N], final_obs [T, N, ...]
    terminated: Tensor
    truncated: Tensor
    final_obs: Obs
    episode_return: Tensor
    episode_length: Tensor
    arrays: Arrays  # the same memory as the kernels take it, in the order of `StepResults`


def size_of(kinds: Sequence[Kind]) -> int:
    """Return how many bytes `carve` needs for these tensors; one line more, because memory may begin anywhere."""
    return LINE + sum(_lines(kind) for kind in kinds)


def carve(memory: Tensor, kinds: Sequence[Kind]) -> list[Tensor]:
    """Divide a memory, uint8 [size_of(kinds)], into tensors, one behind the other, without copying."""
    tensors = []
    start = -memory.data_ptr() % LINE
    for shape, dtype in kinds:
        size = int(np.prod(shape)) * dtype.itemsize
        tensors.append(memory[start : start + size].view(dtype).view(shape))
        start += _lines((shape, dtype))
    return tensors


def zeros(kinds: Sequence[Kind], device: torch.device) -> list[Tensor]:
    """Allocate zeroed tensors in one piece of memory on a device.

    On the CPU NumPy allocates, because it asks the system for huge pages if the memory is large. With pages of 4 KB the
    addresses of 64 steps of 4096 worlds do not fit into the processor's TLB.
    """
    if device.type == "cpu":
        return carve(torch.from_numpy(np.zeros(size_of(kinds), np.uint8)), kinds)
    return carve(torch.zeros(size_of(kinds), dtype=torch.uint8, device=device), kinds)


def step_buffers(space: Space[Any], steps: int, num_envs: int, device: torch.device) -> list[Tensor]:
    """Allocate zeroed buffers for the results of `steps` steps: the fields of `StepResults`."""
    shape = (steps, num_envs)
    observation = observations(space, shape)
    flag = (shape, torch.bool)
    number = (shape, torch.float32)
    return zeros((observation, number, flag, flag, observation, number, number), device)


def trajectory(space: Space[Any], results: list[Tensor], arrays: Arrays) -> Trajectory[Arrays]:
    """Give names to the tensors of `step_buffers`; `arrays` is the same memory as the kernels take it."""
    obs, reward, terminated, truncated, final_obs, total, length = results
    return Trajectory(_tree(space, obs), reward, terminated, truncated, _tree(space, final_obs), total, length, arrays)


def observations(space: Space[Any], leading: tuple[int, ...]) -> Kind:
    """Return shape (`leading` axes in front) and type of observations as the kernels write them."""
    if isinstance(space, spaces.Dict):
        return (*leading, len(space.spaces)), torch.int64
    if isinstance(space, spaces.Discrete):
        return leading, torch.int64
    return (*leading, *(space.shape or ())), torch.uint8 if space.dtype == np.uint8 else torch.float32


def first(tree: Obs) -> Obs:
    """Return the first step of observations [T, N, ...]."""
    return {name: leaf[0] for name, leaf in tree.items()} if isinstance(tree, dict) else tree[0]


def _lines(kind: Kind) -> int:
    """Return the bytes of a tensor, rounded up to whole cache lines."""
    shape, dtype = kind
    return -(-int(np.prod(shape)) * dtype.itemsize // LINE) * LINE


def _tree(space: Space[Any], tensor: Tensor) -> Obs:
    """Return an observation buffer as the policy sees it: the tensor itself, or for a Dict one view for each name."""
    if isinstance(space, spaces.Dict):
        return {name: tensor[..., k] for k, name in enumerate(space.spaces)}
    return tensor
