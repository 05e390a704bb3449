"""Whole episodes that are played to be counted: whose turn it is, and what of them is not finite. On the host,
which looks at every step or is told of many at once.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor

from stride.agents.experience.finite_guard import NonFiniteError, float_views, may_be_non_finite, non_finite_in
from stride.agents.experience.nouns import Tree, expand, leaves, tree_map


class Played(NamedTuple):
    """Whole episodes, in the order of their worlds."""

    returns: list[float]
    lengths: list[float]


def shares(count: int, worlds: int) -> list[int]:
    """How many of so many episodes each world plays: evenly, so that short ones are not favoured."""
    return [count // worlds + (world < count % worlds) for world in range(worlds)]


class Seen(NamedTuple):
    """A step of all worlds as a tally is told of it; the leaves that cannot be non-finite, or nobody guards, left out.

    [N, ...], or [T, N, ...] where several are stacked.
    """

    obs: Tree
    """that was acted upon"""
    action: Tree
    reward: Tree
    last: Tree
    ended: Tensor
    returns: Tensor
    lengths: Tensor


class Tally:
    """`count` episodes, shared out over the worlds; told of every step in its order, by tensors on the CPU."""

    def __init__(self, count: int, worlds: int) -> None:
        self.missing, self.steps = count, 0
        self._wanted = shares(count, worlds)
        self._found: list[list[tuple[float, float]]] = [[] for _ in range(worlds)]
        self._began = [0] * worlds  # at which step each world's episode did

    def check(self, what: str, tree: Tree, worlds: Iterable[int] | None = None) -> None:
        """NonFiniteError where a world that still counts, of these or of all, has a non-finite number in [N, ...]."""
        among = range(len(self._wanted)) if worlds is None else worlds
        counting = [world for world in among if len(self._found[world]) < self._wanted[world]]
        if place := non_finite_in(what, tree, counting):
            words, world = place
            raise NonFiniteError(words, world, self.steps - self._began[world], len(self._found[world]) + 1)

    def add(self, ended: list[int], returns: Tensor, lengths: Tensor, last: Tree | None) -> None:
        """The episodes that this step ended, [N]; with their last observations [N, ...] they are checked."""
        views = [] if last is None else float_views(last)
        for world in ended:
            if len(self._found[world]) < self._wanted[world]:
                episode = returns[world].item(), lengths[world].item()
                if last is not None and (
                    not math.isfinite(episode[0]) or may_be_non_finite([leaf[world] for leaf in views])
                ):
                    self.check("last observation", last, [world])
                    self.check("return", returns, [world])
                self._found[world].append(episode)
                self.missing -= 1
            self._began[world] = self.steps

    def played(self) -> Played:
        """What was found, world by world."""
        episodes = [episode for world in self._found for episode in world]
        return Played([total for total, _ in episodes], [length for _, length in episodes])


def fetch(table: Seen, wrong: Tensor | None) -> tuple[bool, bool, Seen]:
    """Whether a number of it is not finite, whether the worlds' flag is set, and the ends, on the CPU, in one copy.

    Where a number is not finite everything follows; else what is guarded need not be looked at.
    """
    ends = torch.stack((table.ended.float(), table.returns, table.lengths))
    broken = unset = torch.zeros(1, device=ends.device)
    if leaves(table.reward):
        last = [x.masked_fill(~expand(table.ended, x), 0) for x in (*leaves(table.last), table.returns)]
        columns = [*leaves(table.obs), *leaves(table.action), table.reward, *last]
        broken = 1 - torch.stack(torch._foreach_norm(columns, math.inf)).isfinite().all().float().view(1)
    flags = broken, unset if wrong is None else wrong.float().view(1)
    fetched = torch.cat((ends.flatten(), *flags)).cpu()
    ended, returns, lengths = fetched[:-2].view(ends.shape)
    is_broken, is_wrong = fetched[-2:].tolist()
    if is_broken:
        return True, bool(is_wrong), tree_map(Tensor.cpu, table)
    return False, bool(is_wrong), Seen((), (), (), (), ended, returns, lengths)
