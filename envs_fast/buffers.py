"""The memory that kernels write and everybody else reads: arrays from a cache line's start on, and tensors of them."""

from typing import Any, NamedTuple

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from envs_fast.vec_env import Tree

Arrays = tuple[np.ndarray, ...]
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
    arrays: Arrays  # the same memory, in the order the kernels take it


def zeros(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """An array that begins with a cache line, so that no vector of it lies in two."""
    kind = np.dtype(dtype)
    size = int(np.prod(shape)) * kind.itemsize
    memory = np.zeros(size + LINE, np.uint8)
    skipped = -memory.ctypes.data % LINE
    return memory[skipped : skipped + size].view(kind).reshape(shape)


def trajectory(space: Space[Any], steps: int, num_envs: int) -> Trajectory:
    """Buffers for `steps` steps of worlds with these observations, zero."""
    shape = (steps, num_envs)
    obs, final_obs = (observations(space, shape) for _ in range(2))
    flags = [zeros(shape, np.bool_) for _ in range(2)]
    reward, episode_return, episode_length = (zeros(shape, np.float32) for _ in range(3))
    terminated, truncated = (flag.view(np.uint8) for flag in flags)
    return Trajectory(
        _tree(space, obs),
        torch.from_numpy(reward),
        torch.from_numpy(flags[0]),
        torch.from_numpy(flags[1]),
        _tree(space, final_obs),
        torch.from_numpy(episode_return),
        torch.from_numpy(episode_length),
        (obs, reward, terminated, truncated, final_obs, episode_return, episode_length),
    )


def observations(space: Space[Any], leading: tuple[int, ...]) -> np.ndarray:
    """A zero buffer for observations as the kernels write them."""
    if isinstance(space, spaces.Dict):
        return zeros((*leading, len(space.spaces)), np.int64)
    if isinstance(space, spaces.Discrete):
        return zeros(leading, np.int64)
    return zeros((*leading, *(space.shape or ())), np.float32)


def first(tree: Tree) -> Tree:
    """The first step of a tree with a time axis."""
    return {name: leaf[0] for name, leaf in tree.items()} if isinstance(tree, dict) else tree[0]


def _tree(space: Space[Any], array: np.ndarray) -> Tree:
    """The buffer as the policy sees it: itself, or one view for each name."""
    tensor = torch.from_numpy(array)
    if isinstance(space, spaces.Dict):
        return {name: tensor[..., k] for k, name in enumerate(space.spaces)}
    return tensor
