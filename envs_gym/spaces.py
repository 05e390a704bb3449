"""Converts Gymnasium's spaces and values: observations to the policy's tensors, the policy's actions to the world's.

All backends with Gymnasium environments use it. It knows no environment, only spaces and values.
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

Batch = Sequence[Any] | np.ndarray  # one value for each world, indexed by world
READABLE = (Box, Discrete, MultiDiscrete, MultiBinary)  # spaces that become tensors
MASK = "action_mask"  # name of the observation's part that says which discrete actions are legal: bool [A]
Write = Callable[[int, Any], None]  # (world, value from the environment): store the value in that world's row


def observation_space(space: Space) -> Space:
    """Return the space that the policy sees: float32 boxes (images stay uint8), integers from 0, one flat `Dict`.

    Example: Dict(arm=Dict(angle=Box(2,)), goal=Discrete(4, start=1)) -> Dict("arm.angle": Box(2,), goal: Discrete(4)).
    UserError for a space that no network can read.
    """
    if not isinstance(space, Dict | Tuple):
        return _policy_space(space)
    subspaces = leaf_spaces(space)
    names = [name for name, _ in subspaces]
    if not names or len(set(names)) < len(names):
        raise UserError(f"observation space {space} is empty or has two entries with one name: {', '.join(names)}")
    _check_readable(space, subspaces)
    return Dict({name: (_mask_space if name == MASK else _policy_space)(subspace) for name, subspace in subspaces})


def leaf_spaces(space: Space, name: str = "") -> list[tuple[str, Space]]:
    """Return (name, space) of every part that is not a Dict or Tuple; nested names are joined by "."."""
    if not isinstance(space, Dict | Tuple):
        return [(name, space)]
    subspaces = []
    for key, child in children(space):
        subspaces += leaf_spaces(child, join(name, key))
    return subspaces


def children(space: Dict | Tuple) -> list[tuple[Any, Space]]:
    """Return (key, space) of the direct parts of a Dict or Tuple."""
    return list(space.spaces.items()) if isinstance(space, Dict) else list(enumerate(space.spaces))


def join(prefix: str, key: object) -> str:
    """Return the name of a nested part, such as "arm.angle"."""
    return f"{prefix}.{key}" if prefix else str(key)


def first_options(space: Space) -> dict[str, Tensor]:
    """Return, by name, the environment's number for the policy's 0 in each part of integers.

    The name is "" where the observation is a single space.
    """
    firsts = {}
    for name, subspace in leaf_spaces(space):
        if isinstance(subspace, Discrete):
            firsts[name] = torch.tensor(int(subspace.start))
        elif isinstance(subspace, MultiDiscrete):
            firsts[name] = torch.from_numpy(subspace.start.astype(np.int64).reshape(-1))
    return firsts


def zeros(space: Space, num_envs: int) -> Obs:
    """Return zeros [N, ...] for observations of a space made by `observation_space`; a mask allows all actions."""
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
    """Return a Step of zeros, a buffer for the steps of N worlds whose observation space is `space`."""
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
    """Apply the function to each tensor of an observation; return the results in the same form (tensor or dict)."""
    return {name: function(tensor) for name, tensor in obs.items()} if isinstance(obs, dict) else function(obs)


def tensors_of(obs: Obs) -> list[Tensor]:
    """Return the tensors of an observation, sorted by name: the same order for all observations of one space."""
    return [obs[name] for name in sorted(obs)] if isinstance(obs, dict) else [obs]


def step_tensors(step: Step) -> list[Tensor]:
    """Return the tensors of a step, those of `obs` first: the same order for all steps of one space."""
    return [tensor for component in step for tensor in tensors_of(component)]


def copy_obs(target: Obs, source: Obs) -> None:
    """Copy the observation `source` into the tensors of `target`."""
    for buffer, tensor in zip(tensors_of(target), tensors_of(source), strict=True):
        buffer.copy_(tensor)


def observation_writer(space: Space, buffers: Obs, name: str = "") -> Write:
    """Return a function that writes one world's observation, a value of the original `space`, into its row.

    It raises ValueError or TypeError for a value that does not fit the space: NumPy alone would broadcast or truncate
    it. `name`: the part of `buffers` to write, "" for an observation of one tensor.
    """
    label = f"observation {name}".rstrip()
    if isinstance(space, Dict | Tuple):
        # only the entries of the space are read: further entries of a value are ignored, a missing one is an error
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
    """Return the writer for boxes. It is called for each world at each step, so the usual case needs few checks."""
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
    """The policy's action space, and a function that converts its actions to the environment's."""

    space: Space  # Discrete, MultiDiscrete or Box of one world, as the policy sees it
    example: Tensor  # shape and dtype of one world's action
    convert: Callable[[np.ndarray], Batch]  # [N, ...] -> a new action of the environment for each world

    def buffer(self, num_envs: int) -> Tensor:
        """Return zeros for an action of each world, [N, ...]."""
        return torch.zeros((num_envs, *self.example.shape), dtype=self.example.dtype)


def actions(space: Space) -> ActionConverter:
    """Return how a policy acts in `space`: by integers from 0, or by floats.

    For floats [-1, 1] spans every bounded dimension; other dimensions keep their units. UserError for other spaces.
    """
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
    """Return [4, numbers]: centre, half the width, lower bound and upper bound of each dimension.

    The environment's action is centre + half * the policy's action. A dimension without two bounds has centre 0 and
    half 1, so it keeps its own units.
    """
    bounded = space.bounded_below & space.bounded_above
    lower = space.low.astype(np.float64)
    upper = space.high.astype(np.float64)
    bottom = np.where(bounded, lower, -1.0)
    top = np.where(bounded, upper, 1.0)
    # halves are added, not sums halved: the sum of two huge bounds would overflow
    rows = (bottom / 2 + top / 2, top / 2 - bottom / 2, lower, upper)
    return np.stack([row.reshape(-1) for row in rows])


def _box(space: Box) -> ActionConverter:
    """Return the converter for a box: it scales bounded dimensions from [-1, 1], then clips to the bounds."""
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
    """ValueError unless `action` is a tensor of this shape and dtype; `name` is for the message."""
    if not isinstance(action, Tensor):
        raise ValueError(f"{name} takes actions {dtype}{list(shape)}, got {type(action).__name__}")
    if action.shape != torch.Size(shape) or action.dtype != dtype:
        raise ValueError(f"{name} takes actions {dtype}{list(shape)}, got {action.dtype}{list(action.shape)}")


def is_image(space: Space) -> bool:
    """Whether a space is an image: uint8 with at least two dimensions. Images stay uint8."""
    return isinstance(space, Box) and space.dtype == np.uint8 and len(space.shape) >= 2


def has_image(space: Space) -> bool:
    """Whether a part of the observation is an image."""
    return any(is_image(subspace) for _, subspace in leaf_spaces(space))


def _mask_space(space: Space) -> Space:
    """Return MultiBinary (bool) for the space of an action mask, which a world may declare as a box of 0 and 1."""
    flat = isinstance(space, MultiBinary | Box) and len(space.shape) == 1
    if not flat or space.dtype is None or space.dtype.kind not in "iub":
        raise UserError(f"{MASK} takes a multi-binary space or an integer box of one dimension, not {space}")
    return MultiBinary((space.shape or ())[0])


def _check_size(space: Space, kind: str) -> None:
    """ValueError for a space that has no numbers at all."""
    if 0 in (space.shape or ()):
        raise ValueError(f"{kind} space {space} is empty: its shape is {list(space.shape or ())}")


def _policy_space(space: Space) -> Space:
    """Return the policy's view of a space without parts, see `observation_space`."""
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
        with np.errstate(over="ignore"):  # bounds near float64's largest number become infinite
            lower = space.low.astype(np.float32).reshape(shape)
            upper = space.high.astype(np.float32).reshape(shape)
        return Box(lower, upper, dtype=np.float32)
    kinds = "box, discrete, multi-discrete, multi-binary or dicts or tuples of these"
    raise UserError(f"observation space {space} is not supported; use {kinds}")


def _check_readable(space: Space, subspaces: Sequence[tuple[str, Space]]) -> None:
    """UserError, with the wrapper that cures it, for a Dict with a part that no network reads (MiniGrid's sentence)."""
    unreadable = [(name, subspace) for name, subspace in subspaces if not isinstance(subspace, READABLE)]
    if not unreadable or len(unreadable) == len(subspaces) or not isinstance(space, Dict):
        return
    name, sentence = unreadable[0]
    keys = [key for key, part in space.items() if any(isinstance(leaf, READABLE) for _, leaf in leaf_spaces(part))]
    raise UserError(
        f"observation {name!r} is {type(sentence).__name__}, which a network cannot read; leave it out: "
        f"env_wrappers=[{{id:'gymnasium.wrappers:FilterObservation',filter_keys:[{','.join(keys)}]}}]"
    )
