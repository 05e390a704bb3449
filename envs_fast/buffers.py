"""The memory that kernels write and all others read: tensors in one piece, each from a cache line's start on."""

from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from stride.envs_fast.vec_env import Obs

Kind = tuple[tuple[int, ...], torch.dtype]  # of a tensor
Arrays = TypeVar("Arrays")
LINE = 64  # bytes


class Trajectory(NamedTuple, Generic[Arrays]):
    """T steps of N worlds: the fields of `Step`, each with a time axis in front, and the kernels' view of them."""

    obs: Obs  # [T, N, ...] after each action
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final_obs: Obs
    episode_return: Tensor
    episode_length: Tensor
    arrays: Arrays  # the same memory, as the kernels take it: in the order of `Told`


def size_of(kinds: Sequence[Kind]) -> int:
    """Bytes that hold such tensors, wherever the memory begins."""
    return LINE + sum(_lines(kind) for kind in kinds)


def carve(memory: Tensor, kinds: Sequence[Kind]) -> list[Tensor]:
    """Tensors that are stretches of a memory, uint8 [size_of(kinds)], one behind the other."""
    tensors = []
    start = -memory.data_ptr() % LINE
    for shape, dtype in kinds:
        size = int(np.prod(shape)) * dtype.itemsize
        tensors.append(memory[start : start + size].view(dtype).view(shape))
        start += _lines((shape, dtype))
    return tensors


def zeros(kinds: Sequence[Kind], device: torch.device) -> list[Tensor]:
    """Tensors in one piece of memory of a device.

    The CPU's is NumPy's, for which the system maps large pages where it is large: in small ones the translations of
    addresses of 64 steps of 4096 worlds do not fit into the processor.
    """
    if device.type == "cpu":
        return carve(torch.from_numpy(np.zeros(size_of(kinds), np.uint8)), kinds)
    return carve(torch.zeros(size_of(kinds), dtype=torch.uint8, device=device), kinds)


def step_buffers(space: Space[Any], steps: int, num_envs: int, device: torch.device) -> list[Tensor]:
    """Memory, zero, for the results of `steps` steps of worlds with these observations: the fields of `Told`."""
    shape = (steps, num_envs)
    observation = observations(space, shape)
    flag = (shape, torch.bool)
    number = (shape, torch.float32)
    return zeros((observation, number, flag, flag, observation, number, number), device)


def trajectory(space: Space[Any], results: list[Tensor], arrays: Arrays) -> Trajectory[Arrays]:
    """That memory with names, and as the kernels take it."""
    obs, reward, terminated, truncated, final_obs, total, length = results
    return Trajectory(_tree(space, obs), reward, terminated, truncated, _tree(space, final_obs), total, length, arrays)


def observations(space: Space[Any], leading: tuple[int, ...]) -> Kind:
    """Shape and type of observations as the kernels write them."""
    if isinstance(space, spaces.Dict):
        return (*leading, len(space.spaces)), torch.int64
    if isinstance(space, spaces.Discrete):
        return leading, torch.int64
    return (*leading, *(space.shape or ())), torch.uint8 if space.dtype == np.uint8 else torch.float32


def first(tree: Obs) -> Obs:
    """The first step of a tree with a time axis."""
    return {name: leaf[0] for name, leaf in tree.items()} if isinstance(tree, dict) else tree[0]


def _lines(kind: Kind) -> int:
    """Bytes of the cache lines that a tensor takes."""
    shape, dtype = kind
    return -(-int(np.prod(shape)) * dtype.itemsize // LINE) * LINE


def _tree(space: Space[Any], tensor: Tensor) -> Obs:
    """The buffer as the policy sees it: itself, or one view for each name."""
    if isinstance(space, spaces.Dict):
        return {name: tensor[..., k] for k, name in enumerate(space.spaces)}
    return tensor
