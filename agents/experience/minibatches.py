"""Cutting an on-policy table into shuffled minibatches."""

from collections.abc import Iterator

from agents.experience.nouns import Tree, leaves, tree_map
from utils.counter_rng import Key, permutation


def minibatches(table: Tree, size: int, key: Key) -> Iterator[Tree]:
    """One pass over [T, N, ...] leaves in an order drawn from `key`: the rows are gathered once, then cut."""
    flat = tree_map(lambda x: x.flatten(0, 1), table)
    first = leaves(flat)[0]
    order = permutation(key, len(first), first.device)
    shuffled = tree_map(lambda x: x[order], flat)
    for start in range(0, len(first), size):
        yield tree_map(lambda x: x[start : start + size], shuffled)  # noqa: B023  (used before start moves on)
