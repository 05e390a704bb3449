"""The nouns that flow between worlds, memory and algorithms, and the two functions that walk them.

Letters in shapes: T steps, N worlds, S slots for final observations, B samples, L sequence length.
`obs` may be one tensor or a dict of them; `extras` is the policy's own NamedTuple, stored verbatim beside the row.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from stride.envs_fast.vec_env import Obs

Tree = Any  # a Tensor, or a dict / NamedTuple / tuple of Trees: an Obs, what a policy stores, rows of both
T = TypeVar("T")  # a Tree whose form is known to the caller


def leaves(tree: Tree) -> list[Tensor]:
    """The tensors of a tree, in a fixed order."""
    if isinstance(tree, Tensor):
        return [tree]
    branches = tree.values() if isinstance(tree, dict) else tree
    return [tensor for branch in branches for tensor in leaves(branch)]


def rebuild(tree: Tree, new_leaves: Iterator[Tensor]) -> Tree:
    """A tree of the same form with other tensors, taken in the order of `leaves`."""
    if isinstance(tree, Tensor):
        return next(new_leaves)
    if isinstance(tree, dict):
        return {key: rebuild(branch, new_leaves) for key, branch in tree.items()}
    branches = [rebuild(branch, new_leaves) for branch in tree]
    return tuple(branches) if type(tree) is tuple else type(tree)(*branches)


def tree_map(fn: Callable[..., Tensor], tree: T, *others: T) -> T:
    """fn over the leaves of trees of one form."""
    new_leaves = [fn(*tensors) for tensors in zip(*map(leaves, (tree, *others)), strict=True)]
    result: T = rebuild(tree, iter(new_leaves))
    return result


def copy_into(target: Tree, source: Tree) -> None:
    """Overwrite every leaf in place: buffers keep their addresses."""
    for target_leaf, source_leaf in zip(leaves(target), leaves(source), strict=True):
        target_leaf.copy_(source_leaf)


def expand(flag: Tensor, like: Tensor) -> Tensor:
    """Append singleton dimensions until `flag` broadcasts against `like`."""
    return flag.view(*flag.shape, *[1] * (like.dim() - flag.dim()))


def channels_last(x: Tensor) -> bool:
    """Whether images [B, C, H, W] are stored with the channels of each pixel side by side; so are their copies."""
    return x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last)


def by_name(obs: Obs) -> dict[str, Tensor]:
    """The tensors of an observation by their names; "" is the name of one that is no dict."""
    return obs if isinstance(obs, dict) else {"": obs}


def where(flag: Tensor, if_true: T, if_false: T) -> T:
    """torch.where over trees; `flag` covers the leading dimensions."""
    return tree_map(lambda a, b: torch.where(expand(flag, a), a, b), if_true, if_false)


class Act(NamedTuple):
    """The answer of a policy to one instant."""

    action: Tensor
    extras: Tree = ()
    """stored with the row, verbatim"""
    carry: Tree = ()
    """handed back at the next step: () for an MLP"""


class Explanation(NamedTuple):
    """How a policy judges an observation before it acts, for people to look at."""

    encoded: Tree
    """the observation as the first layer gets it: normalised, one-hot, joined"""
    distribution: dict[str, Tensor]
    """probability of each choice, and its value q where that is known; or mean and std of each number, as it acts"""
    entropy: Tensor
    value: Tensor | None
    """None without a critic"""
    state: Tree = None
    """of its world model, from which it can `dream`; None without one"""
    attention: Tensor | None = None
    """[N, steps] how much it looks at the present step and at each before it, newest first; None without attention"""


class Dream(NamedTuple):
    """The future that a world model imagines from each of T states, H instants long; [T, H, ...]."""

    obs: Obs
    """as the worlds would give it"""
    reward: Tensor
    """on arrival: of the action that led there"""
    goes_on: Tensor
    """the chance that the episode does not end on arrival"""
    value: Tensor | None
    """None without a critic"""


class Row(NamedTuple):
    """One instant of N worlds, as acted upon; [T, N, ...] when stacked."""

    obs: Obs
    is_first: Tensor
    """obs opens an episode"""
    action: Tensor
    reward: Tensor
    """of this action"""
    terminated: Tensor
    truncated: Tensor
    slot: Tensor
    """int64, the slot in which the final observation of the running episode will be stored"""
    extras: Tree


class Final(NamedTuple):
    """An instant that was not acted upon: what a critic needs to value it."""

    obs: Obs
    carry: Tree


class Rollout(NamedTuple):
    """All rows that an on-policy algorithm learns from: the table itself, no copy."""

    row: Row
    """[T, N, ...]"""
    start: Tree
    """carry before the first row, [N, ...]"""
    next: Final
    """after the last row, [N, ...]"""
    final: Final
    """where a time limit cut, [S, N, ...]; row.slot says which"""


def known_none(flags: Tensor) -> bool:
    """Whether none of them is set; a device is not asked, as that would be a wait."""
    return flags.device.type == "cpu" and not flags.numpy().any()


def known_uncut(rollout: Rollout) -> bool:
    """Whether nothing was truncated, so that nobody asks for final observations."""
    return known_none(rollout.row.truncated)


class Transitions(NamedTuple):
    """Single or n-step transitions, [B, ...]: the target is reward + discount * V(next_obs) in every algorithm."""

    obs: Obs
    action: Tensor
    reward: Tensor
    """discounted n-step sum"""
    discount: Tensor
    """gamma^k, 0 after termination"""
    next_obs: Obs
    """the true one, never the reset one"""
    row_id: Tensor
    weight: Tensor
    """importance weight of a row drawn by priority, at most 1; 1 where rows are drawn uniformly"""


class Sequences(NamedTuple):
    """Arrivals in order, [L, B, ...]; the final observation of an ended episode has an entry of its own (row_id -1)."""

    obs: Obs
    action: Tensor
    """that led here, 0 at is_first"""
    reward: Tensor
    """on arrival"""
    is_first: Tensor
    terminated: Tensor
    extras: Tree
    """[B, ...] stored by the policy with the row before the first"""
    row_id: Tensor
