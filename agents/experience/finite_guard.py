"""Where a NaN or an infinity came from: a cheap look at what was just collected, and the long look once one is there.

The look leaves a flag on the device; nothing here waits for it but `locate_non_finite`, asked when the flag is known.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from stride.agents.experience.memory import Memory, set_flag
from stride.agents.experience.nouns import Tree, leaves
from stride.utils.kernel_cache import njit
from stride.utils.user_error import NumbersError


class Place(NamedTuple):
    """The first non-finite number: what, in which world, and at which of the env steps."""

    words: str
    world: int | None
    env_step: int | None

    def __str__(self) -> str:
        if self.world is None:
            return self.words
        return f"{self.words} of environment {self.world} at env step {self.env_step:,}"


class NonFiniteError(NumbersError):
    """The first of a world that is played, not trained on: what, in which world, and at which step of which episode."""

    def __init__(self, words: str, world: int, step: int, episode: int) -> None:
        super().__init__(f"{words} of environment {world} at step {step} of its episode {episode}")
        self.words, self.world, self.step, self.episode = words, world, step, episode


def float_views(tree: Tree) -> list[np.ndarray]:
    """Views of the floating-point leaves of a tree."""
    return [leaf.cpu().numpy() for leaf in leaves(tree) if leaf.is_floating_point()]


def floating(tree: Tree) -> Tree:
    """The leaves that could be non-finite, by their names."""
    if isinstance(tree, dict):
        return {name: leaf for name, leaf in tree.items() if leaf.is_floating_point()}
    return tree if tree.is_floating_point() else {}


def may_be_non_finite(views: list[np.ndarray]) -> bool:
    """Whether a look is worth it: a sum is not finite where a number is not, or where the numbers are very large."""
    return not all(math.isfinite(np.add.reduce(view, None)) for view in views)


def non_finite_in(name: str, tree: Tree, worlds: Collection[int]) -> tuple[str, int] | None:
    """In words what is non-finite in a tree [N, ...], and in which of these worlds; None where nothing is."""
    for leaf_name, leaf in _named(name, tree):
        if leaf.is_floating_point():
            bad = (~leaf.isfinite().reshape(len(leaf), -1)).any(1).nonzero().flatten().tolist()
            for world in bad:
                if world in worlds:
                    return f"{leaf_name}: {_word(leaf[world])}", world
    return None


def first_non_finite(named: Mapping[str, object]) -> str:
    """In words what is non-finite among raw values, as 32 bits hold them; "" where nothing is."""
    for name, value in named.items():
        if isinstance(value, Mapping | tuple):
            parts = value.items() if isinstance(value, Mapping) else enumerate(value)
            if found := first_non_finite({f"{name} {key}": part for key, part in parts}):
                return found
        elif np.asarray(value).dtype.kind == "f":
            with np.errstate(over="ignore"):
                seen = torch.from_numpy(np.asarray(value, np.float32).reshape(-1))
            if not seen.isfinite().all():
                return f"{name}: {_word(seen)}"
    return ""


def flag_non_finite(memory: Memory, steps: int, *flags: Tensor) -> None:
    """Raise the flags, bool [], if any of the rows just written holds a non-finite number."""
    found: Tensor | bool
    if memory.slot.device.type == "cpu":  # six torch operations on cold caches cost a tenth of a small iteration
        end = (memory.written - 1) % memory.rows + 1
        found = not all(_finite(column, end - steps, end) for column in memory.guarded)
    else:
        columns = [column for _, column in _columns(memory, steps) if column.is_floating_point()]
        found = ~torch.stack(torch._foreach_norm(columns, math.inf)).isfinite().all()
    for flag in flags:
        set_flag(flag, found)


def _finite(column: np.ndarray, begin: int, end: int) -> bool:
    """Of the rows [begin, end) of a ring, which begin at its end where `begin` is negative."""
    if begin >= 0:
        return all_finite(column[begin:end].reshape(-1))
    return all_finite(column[begin:].reshape(-1)) and all_finite(column[:end].reshape(-1))


@njit(cache=True, nogil=True, fastmath={"reassoc"})
def all_finite(numbers: np.ndarray) -> bool:
    total = np.float32(0.0)
    for x in numbers:
        total += x * np.float32(0.0)  # 0, or NaN where x is NaN or infinite
    return total == 0.0


def _columns(memory: Memory, steps: int) -> Iterator[tuple[str, Tensor]]:
    """Observation, action and reward of the last `steps` rows, oldest first, [T, N, ...] each."""
    table, rows = memory.table, memory.rows
    for name, leaf in (*_named("observation", table.obs), *_named("action", table.action), ("reward", table.reward)):
        end = (memory.written - 1) % rows + 1
        if steps <= end:
            yield name, leaf[end - steps : end]
        else:
            yield name, torch.cat((leaf[end - steps :], leaf[:end]))


def _named(name: str, tree: Tree) -> list[tuple[str, Tensor]]:
    if isinstance(tree, dict):
        return [(f"{name} {key}", leaf) for key, leaf in tree.items()]
    return [(name, tree)]


def locate_non_finite(memory: Memory, steps: int, env_steps: int, weights: nn.Module, lost: bool) -> Place:
    """Where it began: in the weights, else in the earliest row, else in the loss, else in the gradient."""
    for name, value in weights.state_dict().items():
        if value.is_floating_point() and not value.isfinite().all():
            return Place(f"weights: {_word(value)} in {name}", None, None)
    found: list[tuple[int, int, str, int]] = []  # row, order within a row, words, world
    for order, (name, column) in enumerate(_columns(memory, steps)):
        if column.is_floating_point():
            bad = ~column.isfinite().flatten(2).all(-1) if column.dim() > 2 else ~column.isfinite()
            for row, world in bad.nonzero()[:1].tolist():
                found.append((row, order, f"{name}: {_word(column[row, world])}", world))
    if found:
        row, _, words, world = min(found)
        return Place(words, world, env_steps - (steps - 1 - row) * memory.num_envs)
    for name, leaf in _named("last observation of an episode", memory.final.obs):
        bad = ~leaf.isfinite().flatten(2).all(-1) if leaf.dim() > 2 else ~leaf.isfinite()
        if lost and leaf.is_floating_point() and bad.any():
            return Place(f"{name}: {_word(leaf)}", int(bad.nonzero()[0, 1]), env_steps)
    return Place("the loss stopped being a number" if lost else "the gradient stopped being a number", None, None)


def _word(value: Tensor) -> str:
    if value.isnan().any():
        return "NaN"
    return "infinity" if (value == math.inf).any() else "-infinity"


def zero_non_finite(memory: Memory, steps: int) -> None:
    """Zeros in place of non-finite numbers in the last rows, which will be drawn again and again."""
    for _, column in _columns(memory, min(steps, memory.rows)):
        if column.is_floating_point():
            column.nan_to_num_(0.0, 0.0, 0.0)
