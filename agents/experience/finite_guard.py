"""Find where a NaN or an infinity came from: a cheap check of new rows, and a full search once the check has failed.

The check sets a flag on the device without a wait. The agent reads the flag later (agents/base.py), and calls
`locate_non_finite` if it is set. Evaluations check the numbers of each world (`EpisodeTally` of collector.py).
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from stride.agents.experience.memory import Memory, set_flag
from stride.agents.experience.nouns import Tree, by_name, leaves
from stride.utils.kernel_cache import njit
from stride.utils.user_error import NumbersError


class NonFiniteNumber(NamedTuple):
    """The first non-finite number of a training; world and env step are None where it belongs to no row."""

    description: str
    world: int | None
    env_step: int | None

    def __str__(self) -> str:
        if self.world is None:
            return self.description
        return f"{self.description} of environment {self.world} at env step {self.env_step:,}"


class NonFiniteError(NumbersError):
    """A world of an evaluation has a non-finite number; `step` counts within the episode, `episode` from 1."""

    def __init__(self, description: str, world: int, step: int, episode: int) -> None:
        super().__init__(f"{description} of environment {world} at step {step} of its episode {episode}")
        self.description = description
        self.world = world
        self.step = step
        self.episode = episode


def float_views(*trees: Tree) -> list[np.ndarray]:
    """Return NumPy views of the floating-point tensors of `trees`."""
    return [float_tensor.cpu().numpy() for float_tensor in leaves(trees) if float_tensor.is_floating_point()]


def floating(tree: Tree) -> Tree:
    """Return the floating-point tensors of an observation or action, by name."""
    return {tensor_name: tensor for tensor_name, tensor in by_name(tree).items() if tensor.is_floating_point()}


def may_be_non_finite(views: list[np.ndarray]) -> bool:
    """Whether a search is needed: a sum is non-finite where a number is, or where the numbers are very large."""
    return not all(math.isfinite(np.add.reduce(array_view, None)) for array_view in views)


def non_finite_in(name: str, tree: Tree, worlds: Collection[int]) -> tuple[str, int] | None:
    """Describe the first non-finite number of these worlds in a tree [N, ...], with its world; None where none is."""
    for tensor_name, tensor in _floats(_named(name, tree)):
        for world_index in _bad(tensor, 1).nonzero().flatten().tolist():
            if world_index in worlds:
                return f"{tensor_name}: {_kind(tensor[world_index])}", world_index
    return None


def first_non_finite(values: Mapping[str, object]) -> str:
    """Describe the first number that is non-finite in 32 bits among raw values; "" where none is."""
    for value_name, raw_value in values.items():
        if isinstance(raw_value, Mapping | tuple):
            part_items = raw_value.items() if isinstance(raw_value, Mapping) else enumerate(raw_value)
            description = first_non_finite({f"{value_name} {key}": part for key, part in part_items})
            if description:
                return description
        elif np.asarray(raw_value).dtype.kind == "f":
            with np.errstate(over="ignore"):
                numbers = torch.from_numpy(np.asarray(raw_value, np.float32).reshape(-1))
            if not numbers.isfinite().all():
                return f"{value_name}: {_kind(numbers)}"
    return ""


def flag_non_finite(memory: Memory, steps: int, *flags: Tensor) -> None:
    """Raise the flags, bool [], if any of the rows just written holds a non-finite number."""
    non_finite: Tensor | bool
    if memory.slot.is_cpu:  # six torch operations on cold caches cost a tenth of a small iteration
        end_row = (memory.written - 1) % memory.rows + 1
        non_finite = not all(_finite(row_column, end_row - steps, end_row) for row_column in memory.guarded)
    else:
        float_columns = [row_column for _, row_column in _floats(_columns(memory, steps))]
        non_finite = ~torch.stack(torch._foreach_norm(float_columns, math.inf)).isfinite().all()
    for problem_flag in flags:
        set_flag(problem_flag, non_finite)


def _finite(column: np.ndarray, begin: int, end: int) -> bool:
    """Whether the rows [begin, end) of a ring are finite; a negative `begin` counts from the end of the ring."""
    ring_parts = [column[begin:end]] if begin >= 0 else [column[begin:], column[:end]]
    return all(all_finite(ring_part.reshape(-1)) for ring_part in ring_parts)


@njit(cache=True, nogil=True, fastmath={"reassoc"})
def all_finite(numbers: np.ndarray) -> bool:
    zero_sum = np.float32(0.0)
    for x in numbers:
        zero_sum += x * np.float32(0.0)  # 0, or NaN where x is NaN or infinite
    return zero_sum == 0.0


def _columns(memory: Memory, steps: int) -> Iterator[tuple[str, Tensor]]:
    """Observation, action and reward of the last `steps` rows, oldest first, [T, N, ...] each."""
    table = memory.table
    end = (memory.written - 1) % memory.rows + 1
    begin = end - steps
    for name, column in (*_named("observation", table.obs), *_named("action", table.action), ("reward", table.reward)):
        yield (name, column[begin:end] if begin >= 0 else torch.cat((column[begin:], column[:end])))


def _named(name: str, tree: Tree) -> list[tuple[str, Tensor]]:
    return [(f"{name} {tensor_name}".rstrip(), tensor) for tensor_name, tensor in by_name(tree).items()]


def _floats(columns: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    return ((name, column) for name, column in columns if column.is_floating_point())


def _bad(column: Tensor, dims: int) -> Tensor:
    """Which entries of the first `dims` dimensions hold a non-finite number, bool."""
    return (~column.isfinite())[..., None].flatten(dims).any(-1)


def locate_non_finite(memory: Memory, steps: int, env_steps: int, weights: nn.Module, lost: bool) -> NonFiniteNumber:
    """The first non-finite number: in the weights, else in the earliest row, else in the loss, else in the gradient."""
    for tensor_name, weight_tensor in weights.state_dict().items():
        if weight_tensor.is_floating_point() and not weight_tensor.isfinite().all():
            return NonFiniteNumber(f"weights: {_kind(weight_tensor)} in {tensor_name}", None, None)
    candidates: list[tuple[int, int, str, int]] = []  # row, order within a row, description, world
    for column_order, (tensor_name, column) in enumerate(_floats(_columns(memory, steps))):
        for row_index, world in _bad(column, 2).nonzero()[:1].tolist():
            candidates.append((row_index, column_order, f"{tensor_name}: {_kind(column[row_index, world])}", world))
    if candidates:
        row_index, _, description, world = min(candidates)
        return NonFiniteNumber(description, world, env_steps - (steps - 1 - row_index) * memory.num_envs)
    for tensor_name, column in _floats(_named("last observation of an episode", memory.final.obs)):
        bad = _bad(column, 2)
        if lost and bad.any():
            return NonFiniteNumber(f"{tensor_name}: {_kind(column)}", int(bad.nonzero()[0, 1]), env_steps)
    culprit = "loss" if lost else "gradient"
    return NonFiniteNumber(f"the {culprit} became not a number", None, None)


def _kind(value: Tensor) -> str:
    if value.isnan().any():
        return "NaN"
    return "infinity" if (value == math.inf).any() else "-infinity"


def zero_non_finite(memory: Memory, steps: int) -> None:
    """Replace non-finite numbers in the last rows by zeros, because these rows will be drawn again and again."""
    for _, row_column in _floats(_columns(memory, min(steps, memory.rows))):
        row_column.nan_to_num_(0.0, 0.0, 0.0)
