"""The memory that kernels write and everybody else reads: arrays from a cache line's start on, and tensors of them."""

from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from envs_fast.vec_env import Tree
from envs_fast.world import Told

Kind = tuple[tuple[int, ...], Any]  # shape and type of an array
LINE = 64  # bytes


class Trajectory(NamedTuple):
    """T steps of N worlds: the fields of `Step`, each with a time axis in front, and the kernels' view of them."""

    obs: Tree  # [T, N, ...] after each action
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    final_obs: Tree
    episode_return: Tensor
    episode_length: Tensor
    arrays: Told  # the same memory, as the kernels take it


def zeros(*kinds: Kind) -> list[np.ndarray]:
    """Arrays in one piece of memory, which the system maps in large pages where it is large: in small ones the address
    translations of 64 steps of 4096 worlds do not fit into the processor. Each begins with a cache line.
    """
    sizes = [int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in kinds]
    memory = np.zeros(sum(sizes) + LINE * len(sizes), np.uint8)
    arrays, start = [], -memory.ctypes.data % LINE
    for (shape, dtype), size in zip(kinds, sizes, strict=True):
        arrays.append(memory[start : start + size].view(dtype).reshape(shape))
        start += -(-size // LINE) * LINE
    return arrays


def trajectory(space: Space[Any], steps: int, num_envs: int) -> Trajectory:
    """Buffers for `steps` steps of worlds with these observations, zero."""
    shape = (steps, num_envs)
    seen, flag, number = observations(space, shape), (shape, np.bool_), (shape, np.float32)
    obs, reward, lost, cut, final_obs, sum_, length = zeros(seen, number, flag, flag, seen, number, number)
    return Trajectory(
        _tree(space, obs),
        torch.from_numpy(reward),
        torch.from_numpy(lost),
        torch.from_numpy(cut),
        _tree(space, final_obs),
        torch.from_numpy(sum_),
        torch.from_numpy(length),
        Told(obs, reward, lost.view(np.uint8), cut.view(np.uint8), final_obs, sum_, length),
    )


def observations(space: Space[Any], leading: tuple[int, ...]) -> Kind:
    """Shape and type of observations as the kernels write them."""
    if isinstance(space, spaces.Dict):
        return (*leading, len(space.spaces)), np.int64
    if isinstance(space, spaces.Discrete):
        return leading, np.int64
    return (*leading, *(space.shape or ())), np.float32


def first(tree: Tree) -> Tree:
    """The first step of a tree with a time axis."""
    return {name: leaf[0] for name, leaf in tree.items()} if isinstance(tree, dict) else tree[0]


def _tree(space: Space[Any], array: np.ndarray) -> Tree:
    """The buffer as the policy sees it: itself, or one view for each name."""
    tensor = torch.from_numpy(array)
    if isinstance(space, spaces.Dict):
        return {name: tensor[..., k] for k, name in enumerate(space.spaces)}
    return tensor
