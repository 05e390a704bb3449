"""How Gymnasium's spaces become tensors: what the policy sees of an observation, what the world is given of an action.

Knows no environment: spaces and values in, buffers and values out.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
import torch
from gymnasium import Space
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from torch import Tensor

from stride.envs_fast.vec_env import Obs, Step
from stride.utils.user_error import UserError

Batch = Sequence[Any] | np.ndarray  # something of each world, indexed by world
READABLE = (Box, Discrete, MultiDiscrete, MultiBinary)
MASK = "action_mask"  # the observation's part that says which discrete actions make sense: bool [A]
Write = Callable[[int, Any], None]  # (world, value from the environment) -> stored in that world's row


def observation_space(space: Space) -> Space:
    """The policy's view: float32 boxes (images stay uint8), 0-based integers, one flat `Dict` for all nesting."""
    if not isinstance(space, Dict | Tuple):
        return _policy_space(space)
    subspaces = leaf_spaces(space)
    names = [name for name, _ in subspaces]
    if not names or len(set(names)) < len(names):
        raise UserError(f"observation space {space} is empty or has two entries with one name: {', '.join(names)}")
    _check_readable(space, subspaces)
    return Dict({name: (_mask_space if name == MASK else _policy_space)(subspace) for name, subspace in subspaces})


def leaf_spaces(space: Space, name: str = "") -> list[tuple[str, Space]]:
    """(name, space) of every part that has no parts itself; nested names are joined by "."."""
    if not isinstance(space, Dict | Tuple):
        return [(name, space)]
    subspaces = []
    for key, child in children(space):
        subspaces += leaf_spaces(child, join(name, key))
    return subspaces


def children(space: Dict | Tuple) -> list[tuple[Any, Space]]:
    """(key, space) of the direct parts of a space."""
    return list(space.spaces.items()) if isinstance(space, Dict) else list(enumerate(space.spaces))


def join(prefix: str, key: object) -> str:
    """The name of a nested part."""
    return f"{prefix}.{key}" if prefix else str(key)


def first_options(space: Space) -> dict[str, Tensor]:
    """The number that a policy's 0 stands for in each part of integers, by its name; "" of one that is alone."""
    firsts = {}
    for name, subspace in leaf_spaces(space):
        if isinstance(subspace, Discrete):
            firsts[name] = torch.tensor(int(subspace.start))
        elif isinstance(subspace, MultiDiscrete):
            firsts[name] = torch.from_numpy(subspace.start.astype(np.int64).reshape(-1))
    return firsts


def zeros(space: Space, num_envs: int) -> Obs:
    """Buffers [N, ...] for observations of a space made by `observation_space`; all actions of a mask are legal."""
    if isinstance(space, Dict):
        buffers = {name: _zeros(subspace, num_envs) for name, subspace in space.items()}
        if MASK in buffers:
            buffers[MASK] = torch.ones_like(buffers[MASK], dtype=torch.bool)
        return buffers
    return _zeros(space, num_envs)


def _zeros(space: Space, num_envs: int) -> Tensor:
    dtype = torch.uint8 if is_image(space) else torch.float32
    if isinstance(space, Discrete | MultiDiscrete):
        dtype = torch.int64
    return torch.zeros((num_envs, *(space.shape or ())), dtype=dtype)


def step_buffers(space: Space, num_envs: int) -> Step:
    """A Step of zeros, to be filled by every step of N worlds whose observation space is `space`."""
    return Step(
        obs=zeros(space, num_envs),
        reward=torch.zeros(num_envs),
        terminated=torch.zeros(num_envs, dtype=torch.bool),
        truncated=torch.zeros(num_envs, dtype=torch.bool),
        final_obs=zeros(space, num_envs),
        episode_return=torch.zeros(num_envs),
        episode_length=torch.zeros(num_envs),
    )


def map_obs(obs: Any, function: Callable[[Any], Any]) -> Any:
    """The function's result for each tensor of an observation, in the same form."""
    return {name: function(tensor) for name, tensor in obs.items()} if isinstance(obs, dict) else function(obs)


def tensors_of(obs: Obs) -> list[Tensor]:
    """The tensors of an observation, ordered by name, so that those of two observations of one space match."""
    return [obs[name] for name in sorted(obs)] if isinstance(obs, dict) else [obs]


def step_tensors(step: Step) -> list[Tensor]:
    """The tensors of a step, in one order for all steps of a space; those of `obs` are the first."""
    return [tensor for component in step for tensor in tensors_of(component)]


def copy_obs(target: Obs, source: Obs) -> None:
    """Copy an observation into the buffers of another one."""
    for buffer, tensor in zip(tensors_of(target), tensors_of(source), strict=True):
        buffer.copy_(tensor)


def observation_writer(space: Space, buffers: Obs, name: str = "") -> Write:
    """A function that stores one world's observation of the original `space` in its row of the buffers.

    It raises ValueError or TypeError where a value does not fit the space: NumPy alone would broadcast or truncate it.
    """
    label = f"observation {name}".rstrip()
    if isinstance(space, Dict | Tuple):
        # by the entries of the space: what else a value holds is ignored, what it lacks is an error
        writers = [(key, observation_writer(child, buffers, join(name, key))) for key, child in children(space)]

        def write_all(world: int, value: Mapping[str, object] | Sequence[object]) -> None:
            for key, write in writers:
                try:
                    component = value[key]
                except (LookupError, TypeError) as error:
                    raise ValueError(f"{label} has no {key!r}") from error
                write(world, component)

        return write_all
    view = (buffers[name] if isinstance(buffers, dict) else buffers).numpy()
    if isinstance(space, Discrete):
        return _integer_writer(view, int(space.start), int(space.n), label)
    if isinstance(space, MultiDiscrete):
        return _integers_writer(view, space, label)
    return _array_writer(view, space, label)


def _integer_writer(view: np.ndarray, start: int, count: int, label: str) -> Write:
    def write(world: int, value: SupportsIndex) -> None:
        index = operator.index(value) - start
        if not 0 <= index < count:
            raise ValueError(f"{label} {value} is outside {start}..{start + count - 1}")
        view[world] = index

    return write


def _integers_writer(view: np.ndarray, space: MultiDiscrete, label: str) -> Write:
    def write(world: int, value: object) -> None:
        array = np.asarray(value)
        if array.shape != space.shape or array.dtype.kind not in "iu":
            raise ValueError(f"{label} {array.dtype}{list(array.shape)} does not fit {space}")
        index = array.astype(np.int64) - space.start
        if (index < 0).any() or (index >= space.nvec).any():
            raise ValueError(f"{label} {value} is outside {space}")
        view[world] = index.reshape(-1)

    return write


def _array_writer(view: np.ndarray, space: Space, label: str) -> Write:
    """The hot path: one class, one dtype and one shape comparison; whatever differs is looked at more closely."""
    shape, dtype = space.shape, space.dtype
    kinds = {"uint8": "u", "bool": "iub"}.get(view.dtype.name, "fiub")

    def write(world: int, value: object) -> None:
        if value.__class__ is not np.ndarray or value.dtype is not dtype or value.shape != shape:
            value = np.asarray(value)
            if value.shape != shape or value.dtype.kind not in kinds or (kinds == "u" and value.dtype != np.uint8):
                problem = f"{value.dtype}{list(value.shape)} does not fit {dtype}{list(shape or ())}"
                raise ValueError(f"{label} {problem}")
        view[world] = value

    return write


class ActionConverter(NamedTuple):
    """The policy's action space and the way from its actions to the environment's."""

    space: Space  # Discrete, MultiDiscrete or Box of one world, as the policy sees it
    example: Tensor  # shape and dtype of one world's action
    convert: Callable[[np.ndarray], Batch]  # [N, ...] -> one fresh action of the environment per world

    def buffer(self, num_envs: int) -> Tensor:
        """Zeros for an action of each world."""
        return torch.zeros((num_envs, *self.example.shape), dtype=self.example.dtype)


def actions(space: Space) -> ActionConverter:
    """How to act in `space`: integers from 0, or floats of which [-1, 1] spans every bounded dimension."""
    _check_size(space, "action")
    if isinstance(space, Discrete):
        start = int(space.start)
        policy_space = Discrete(int(space.n))
        example = torch.zeros((), dtype=torch.int64)
        return ActionConverter(policy_space, example, lambda action: (action + start).tolist())
    if isinstance(space, MultiBinary):
        return _multi_discrete(np.full(space.shape, 2), np.zeros(space.shape, np.int64), space)
    if isinstance(space, MultiDiscrete):
        return _multi_discrete(space.nvec, space.start, space)
    if isinstance(space, Box):
        return _box(space)
    raise UserError(f"action space {space} is not supported; use discrete, multi-discrete, multi-binary or box")


def _multi_discrete(counts: np.ndarray, start: np.ndarray, space: Space) -> ActionConverter:
    def convert(action: np.ndarray) -> np.ndarray:
        return (action.reshape(-1, *counts.shape) + start).astype(space.dtype)

    example = torch.zeros(counts.size, dtype=torch.int64)
    return ActionConverter(MultiDiscrete(counts.reshape(-1)), example, convert)


def box_scale(space: Box) -> np.ndarray:
    """[4, numbers]: centre and half the width of each dimension, then its bounds.

    A dimension without two bounds has the centre 0 and half the width 1: it keeps its own units.
    """
    bounded = space.bounded_below & space.bounded_above
    lower = space.low.astype(np.float64)
    upper = space.high.astype(np.float64)
    bottom = np.where(bounded, lower, -1.0)
    top = np.where(bounded, upper, 1.0)
    rows = (bottom / 2 + top / 2, top / 2 - bottom / 2, lower, upper)  # halves first: huge bounds must not overflow
    return np.stack([row.reshape(-1) for row in rows])


def _box(space: Box) -> ActionConverter:
    """Scale bounded dimensions from [-1, 1] and clip."""
    centre, half, lower, upper = (row.reshape(space.shape) for row in box_scale(space))
    integral = np.issubdtype(space.dtype, np.integer)

    def convert(action: np.ndarray) -> np.ndarray:
        scaled = np.clip(centre + half * action.reshape(-1, *space.shape), lower, upper)
        return (np.rint(scaled) if integral else scaled).astype(space.dtype)

    bounded = space.bounded_below & space.bounded_above
    policy_low = np.where(bounded, -1.0, lower).reshape(-1).astype(np.float32)
    policy_high = np.where(bounded, 1.0, upper).reshape(-1).astype(np.float32)
    policy_space = Box(policy_low, policy_high, dtype=np.float32)
    return ActionConverter(policy_space, torch.zeros(lower.size, dtype=torch.float32), convert)


def check_action(name: str, action: Tensor, shape: Sequence[int], dtype: torch.dtype) -> None:
    """ValueError for an action of another shape or type, or of no tensor."""
    if not isinstance(action, Tensor):
        raise ValueError(f"{name} takes actions {dtype}{list(shape)}, got {type(action).__name__}")
    if action.shape != torch.Size(shape) or action.dtype != dtype:
        raise ValueError(f"{name} takes actions {dtype}{list(shape)}, got {action.dtype}{list(action.shape)}")


def is_image(space: Space) -> bool:
    """Whether a part is stored as it is: bytes in at least two dimensions."""
    return isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) >= 2


def has_image(space: Space) -> bool:
    """Whether an image is among the parts of an observation."""
    return any(is_image(subspace) for _, subspace in leaf_spaces(space))


def _mask_space(space: Space) -> Space:
    """A mask stays MultiBinary, which stands for bool; worlds may declare it as a box of 0 and 1."""
    flat = isinstance(space, MultiBinary | Box) and len(space.shape) == 1
    if not flat or space.dtype is None or space.dtype.kind not in "iub":
        raise UserError(f"{MASK} takes a multi-binary space or an integer box of one dimension, not {space}")
    return MultiBinary((space.shape or ())[0])


def _check_size(space: Space, kind: str) -> None:
    """ValueError for a space without any number: nothing could be seen, or done."""
    if 0 in (space.shape or ()):
        raise ValueError(f"{kind} space {space} is empty: its shape is {list(space.shape or ())}")


def _policy_space(space: Space) -> Space:
    _check_size(space, "observation")
    if isinstance(space, Discrete):
        return Discrete(int(space.n))
    if isinstance(space, MultiDiscrete):
        return MultiDiscrete(space.nvec.reshape(-1))
    if isinstance(space, MultiBinary):
        return Box(0.0, 1.0, space.shape, np.float32)
    if is_image(space):
        return space
    if isinstance(space, Box):
        shape = space.shape or (1,)
        with np.errstate(over="ignore"):  # bounds at the end of float64 become infinite
            lower = space.low.astype(np.float32).reshape(shape)
            upper = space.high.astype(np.float32).reshape(shape)
        return Box(lower, upper, dtype=np.float32)
    kinds = "box, discrete, multi-discrete, multi-binary or dicts or tuples of these"
    raise UserError(f"observation space {space} is not supported; use {kinds}")


def _check_readable(space: Space, subspaces: Sequence[tuple[str, Space]]) -> None:
    """UserError that says how to leave out what no network reads, such as MiniGrid's sentence."""
    unreadable = [(name, subspace) for name, subspace in subspaces if not isinstance(subspace, READABLE)]
    if not unreadable or len(unreadable) == len(subspaces) or not isinstance(space, Dict):
        return
    name, sentence = unreadable[0]
    keys = [key for key, part in space.items() if any(isinstance(leaf, READABLE) for _, leaf in leaf_spaces(part))]
    raise UserError(
        f"observation {name!r} is {type(sentence).__name__}, which a network cannot read; leave it out: "
        f"env_wrappers=[{{id:'gymnasium.wrappers:FilterObservation',filter_keys:[{','.join(keys)}]}}]"
    )
