"""Data types that worlds, memory and algorithms exchange, such as Row and Rollout, and functions on trees of tensors.

Letters in shapes: T steps, N worlds, S slots for final observations, B samples, L sequence length.
`obs` is one tensor or a dict of tensors; `extras` is a NamedTuple of the policy, stored unchanged beside the row, such
as log-probabilities.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from stride.envs_fast.vec_env import Obs

Tree = Any  # a Tensor, or a dict, NamedTuple or tuple of Trees; such as {"camera": x, "speed": y}, or a Row
T = TypeVar("T")  # a Tree whose type the caller knows


def leaves(tree: Tree) -> list[Tensor]:
    """Return the tensors of a tree, in a fixed order."""
    if isinstance(tree, Tensor):
        return [tree]
    branches = tree.values() if isinstance(tree, dict) else tree
    return [tensor for branch in branches for tensor in leaves(branch)]


def rebuild(tree: Tree, new_leaves: Iterator[Tensor]) -> Tree:
    """Return a tree of the same form with other tensors, taken in the order of `leaves`."""
    if isinstance(tree, Tensor):
        return next(new_leaves)
    if isinstance(tree, dict):
        return {key: rebuild(branch, new_leaves) for key, branch in tree.items()}
    branches = [rebuild(branch, new_leaves) for branch in tree]
    return tuple(branches) if type(tree) is tuple else type(tree)(*branches)


def tree_map(fn: Callable[..., Tensor], tree: T, *others: T) -> T:
    """Apply `fn` to the tensors at the same place of trees of one form; return a tree of the results."""
    new_leaves = [fn(*tensors) for tensors in zip(*map(leaves, (tree, *others)), strict=True)]
    result: T = rebuild(tree, iter(new_leaves))
    return result


def copy_into(target: Tree, source: Tree) -> None:
    """Overwrite every tensor of `target` in place: buffers keep their addresses, which kernels and graphs know."""
    for target_leaf, source_leaf in zip(leaves(target), leaves(source), strict=True):
        target_leaf.copy_(source_leaf)


def expand(flag: Tensor, like: Tensor) -> Tensor:
    """Append dimensions of size 1 until `flag` broadcasts against `like`: [T, N] becomes [T, N, 1, 1]."""
    return flag.view(*flag.shape, *[1] * (like.dim() - flag.dim()))


def channels_last(x: Tensor) -> bool:
    """Whether images [B, C, H, W] are stored as [B, H, W, C]: the channels of each pixel side by side."""
    return x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)


def by_name(obs: Obs) -> dict[str, Tensor]:
    """Return the tensors of an observation by name; the name is "" if the observation is one tensor."""
    return obs if isinstance(obs, dict) else {"": obs}


def where(flag: Tensor, if_true: T, if_false: T) -> T:
    """torch.where for trees; `flag` has the leading dimensions of every tensor, such as [T, N]."""
    return tree_map(lambda a, b: torch.where(expand(flag, a), a, b), if_true, if_false)


class Act(NamedTuple):
    """What a policy returns for one step of N worlds."""

    action: Tensor
    extras: Tree = ()
    """stored unchanged with the row, such as log-probabilities"""
    carry: Tree = ()
    """what the policy remembers, passed to it at the next step; () for an MLP"""


class Explanation(NamedTuple):
    """Numbers behind a policy's choice, for the inspector and films; tensors [N, ...]."""

    encoded: Tree
    """the observation as the first layer reads it: normalised, one-hot, concatenated"""
    distribution: dict[str, Tensor]
    """discrete: the probability of each action, and its value q if known; continuous: mean and std of each number"""
    entropy: Tensor
    value: Tensor | None
    """None without a critic"""
    state: Tree = None
    """the state of the world model, which `Policy.dream` starts from; None without one"""
    attention: Tensor | None = None
    """[N, steps] weight of the current step and of each step before it, newest first; None without attention"""


class Dream(NamedTuple):
    """The H steps that a world model predicts from each of T states; [T, H, ...]."""

    obs: Obs
    """in the form that the worlds give it"""
    reward: Tensor
    """of the action that led to this step"""
    goes_on: Tensor
    """the probability that the episode does not end with this step"""
    value: Tensor | None
    """None without a critic"""


class Row(NamedTuple):
    """One step of N worlds: the observation and the action it led to, [N, ...]; [T, N, ...] for T stacked steps."""

    obs: Obs
    is_first: Tensor
    """bool: obs is the first of an episode"""
    action: Tensor
    reward: Tensor
    """of this action"""
    terminated: Tensor
    truncated: Tensor
    slot: Tensor
    """int64: the number of the slot in `Memory.final` for the final observation of the running episode"""
    extras: Tree


class Final(NamedTuple):
    """Observations that no action followed, such as an episode's last, and the carry a critic needs to value them."""

    obs: Obs
    carry: Tree


class Rollout(NamedTuple):
    """All rows that an on-policy algorithm learns from in one iteration: the memory's own table, not a copy."""

    row: Row
    """[T, N, ...]"""
    start: Tree
    """the carry before the first row, [N, ...]"""
    next: Final
    """the observations after the last row, [N, ...]"""
    final: Final
    """final observations of truncated episodes, [S, N, ...]: that of row [t, n] is in slot row.slot[t, n]"""


def known_none(flags: Tensor) -> bool:
    """Whether it is known that no flag is set; False on a GPU, since reading a flag would wait for the device."""
    return flags.device.type == "cpu" and not flags.numpy().any()


def known_uncut(rollout: Rollout) -> bool:
    """Whether it is known that no episode was truncated, so that final observations need no values."""
    return known_none(rollout.row.truncated)


class Transitions(NamedTuple):
    """Single or n-step transitions, [B, ...]; in every algorithm the target is reward + discount * V(next_obs)."""

    obs: Obs
    action: Tensor
    reward: Tensor
    """the discounted sum of n rewards"""
    discount: Tensor
    """gamma^k for k summed rewards; 0 if the episode terminated"""
    next_obs: Obs
    """after a truncation the final observation, not the first one of the next episode"""
    row_id: Tensor
    """row number * N + world"""
    weight: Tensor
    """importance weight of a row drawn by priority, at most 1; 1 where rows are drawn uniformly"""


class Sequences(NamedTuple):
    """Observations in order, each with the action and reward that led to it, [L, B, ...].

    The final observation of an ended episode is an entry of its own, with row_id -1.
    """

    obs: Obs
    action: Tensor
    """that led to obs; 0 at is_first"""
    reward: Tensor
    """of this action"""
    is_first: Tensor
    terminated: Tensor
    extras: Tree
    """[B, ...] what the policy stored with the row before the first entry"""
    row_id: Tensor
