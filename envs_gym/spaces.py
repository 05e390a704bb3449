"""How Gymnasium's spaces become tensors: what the policy sees of an observation, what the world is given of an action.

Knows no environment: spaces and values in, buffers and values out.
"""

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor

from stride.envs_fast.vec_env import Obs, Step
from stride.utils.user_error import UserError

Batch = Sequence[Any] | np.ndarray  # something of each world, indexed by world
READABLE = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)
MASK = "action_mask"  # the observation's leaf that says which discrete actions make sense: bool [A]
Write = Callable[[int, Any], None]  # (world, value from the environment) -> stored in that world's row


def observation_space(space: Space[object]) -> Space[Any]:
    """The policy's view: float32 boxes (images stay uint8), 0-based integers, one flat `Dict` for all nesting."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        return _leaf_space(space)
    leaves = leaf_spaces(space, "")
    names = [name for name, _ in leaves]
    if not names or len(set(names)) < len(names):
        raise UserError(f"observation space {space} is empty or has two entries of one name: {', '.join(names)}")
    _check_readable(space, leaves)
    return spaces.Dict({name: _mask_or_leaf_space(name, leaf) for name, leaf in leaves})


def first_options(space: Space[object]) -> dict[str, Tensor]:
    """What a policy's 0 stands for in each leaf of integers, by its name; "" of one that is alone."""
    found: dict[str, Tensor] = {}
    for name, leaf in leaf_spaces(space, ""):
        if isinstance(leaf, spaces.Discrete):
            found[name] = torch.tensor(int(leaf.start))
        elif isinstance(leaf, spaces.MultiDiscrete):
            found[name] = torch.from_numpy(leaf.start.astype(np.int64).reshape(-1))
    return found


def zeros(space: Space[object], num_envs: int) -> Obs:
    """Buffers [N, ...] for observations of a space made by `observation_space`."""
    if isinstance(space, spaces.Dict):
        parts = space.spaces.items()
        return {name: _all_valid(leaf, num_envs) if name == MASK else _zeros(leaf, num_envs) for name, leaf in parts}
    return _zeros(space, num_envs)


def step_buffers(space: Space[object], num_envs: int) -> Step:
    """A Step of zeros, to be filled by every step of N worlds whose observation space is `space`."""

    def column(dtype: torch.dtype) -> Tensor:
        return torch.zeros(num_envs, dtype=dtype)

    return Step(
        obs=zeros(space, num_envs),
        reward=column(torch.float32),
        terminated=column(torch.bool),
        truncated=column(torch.bool),
        final_obs=zeros(space, num_envs),
        episode_return=column(torch.float32),
        episode_length=column(torch.float32),
    )


def observation_writer(space: Space[object], buffers: Obs, name: str = "") -> Write:
    """A function that stores one world's observation of the original `space` in its row of the buffers.

    It raises ValueError or TypeError where a value does not fit the space: NumPy alone would broadcast or truncate it.
    """
    in_leaf = f" {name}" if name else ""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        # by the entries of the space: what else a value holds is ignored, what it lacks is an error
        writers = [(key, observation_writer(child, buffers, _join(name, key))) for key, child in _children(space)]

        def write_all(world: int, value: Mapping[str, object] | Sequence[object]) -> None:
            for key, write in writers:
                try:
                    part = value[key]
                except (LookupError, TypeError) as error:
                    raise ValueError(f"observation{in_leaf} has no {key!r}") from error
                write(world, part)

        return write_all
    view = (buffers[name] if isinstance(buffers, dict) else buffers).numpy()
    if isinstance(space, spaces.Discrete):
        return _integer_writer(view, int(space.start), int(space.n), in_leaf)
    if isinstance(space, spaces.MultiDiscrete):
        return _integers_writer(view, space, in_leaf)
    return _array_writer(view, space, in_leaf)


class Actions(NamedTuple):
    """The policy's action space and the way from its actions to the environment's."""

    space: Space[Any]  # Discrete, MultiDiscrete or Box of one world, as the policy sees it
    example: Tensor  # shape and dtype of one world's action
    convert: Callable[[np.ndarray], Batch]  # [N, ...] -> one fresh action of the environment per world


def actions(space: Space[object]) -> Actions:
    """How to act in `space`: integers from 0, or floats of which [-1, 1] spans every bounded dimension."""
    _check_size(space, "action")
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return Actions(
            spaces.Discrete(int(space.n)), torch.zeros((), dtype=torch.int64), lambda action: (action + start).tolist()
        )
    if isinstance(space, spaces.MultiBinary):
        return _multi_discrete(np.full(space.shape, 2), np.zeros(space.shape, np.int64), space)
    if isinstance(space, spaces.MultiDiscrete):
        return _multi_discrete(space.nvec, space.start, space)
    if isinstance(space, spaces.Box):
        return _box(space)
    raise UserError(f"action space {space} is not supported; discrete, multi-discrete, multi-binary and box are")


def _multi_discrete(counts: np.ndarray, start: np.ndarray, space: Space[object]) -> Actions:
    shape, dtype = counts.shape, space.dtype

    def convert(action: np.ndarray) -> np.ndarray:
        return (action.reshape(-1, *shape) + start).astype(dtype)

    return Actions(spaces.MultiDiscrete(counts.reshape(-1)), torch.zeros(counts.size, dtype=torch.int64), convert)


def _box(space: spaces.Box) -> Actions:
    """Scale bounded dimensions from [-1, 1] and clip; a dimension without two bounds keeps its own units."""
    bounded = space.bounded_below & space.bounded_above
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    bottom, top = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
    centre, half = bottom / 2 + top / 2, top / 2 - bottom / 2  # halves first: huge bounds must not overflow
    integral = np.issubdtype(space.dtype, np.integer)

    def convert(action: np.ndarray) -> np.ndarray:
        scaled = np.clip(centre + half * action.reshape(-1, *space.shape), low, high)
        return (np.rint(scaled) if integral else scaled).astype(space.dtype)

    policy_low, policy_high = (np.where(bounded, side, edge).reshape(-1) for side, edge in ((-1.0, low), (1.0, high)))
    policy_space = spaces.Box(policy_low.astype(np.float32), policy_high.astype(np.float32), dtype=np.float32)
    return Actions(policy_space, torch.zeros(low.size, dtype=torch.float32), convert)


def _children(space: spaces.Dict | spaces.Tuple) -> list[tuple[Any, Space[Any]]]:
    return list(space.spaces.items()) if isinstance(space, spaces.Dict) else list(enumerate(space.spaces))


def _join(prefix: str, key: object) -> str:
    return f"{prefix}.{key}" if prefix else str(key)


def leaf_spaces(space: Space[object], name: str) -> list[tuple[str, Space[Any]]]:
    """(name, space) of every part that has no parts itself; nested names are joined by "."."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        return [leaf for key, child in _children(space) for leaf in leaf_spaces(child, _join(name, key))]
    return [(name, space)]


def is_image(space: Space[object]) -> bool:
    """Whether a leaf is stored as it is: bytes in at least two dimensions."""
    return isinstance(space, spaces.Box) and space.dtype == np.uint8 and len(space.shape) >= 2


def has_image(space: Space[Any]) -> bool:
    """Whether an image is among the leaves of an observation."""
    return any(is_image(leaf) for leaf in (space.values() if isinstance(space, spaces.Dict) else [space]))


def _mask_or_leaf_space(name: str, space: Space[object]) -> Space[Any]:
    """A mask stays MultiBinary, which stands for bool; worlds may declare it as a box of 0 and 1."""
    if name != MASK:
        return _leaf_space(space)
    known = isinstance(space, spaces.MultiBinary | spaces.Box) and len(space.shape or ()) == 1
    if not known or space.dtype is None or space.dtype.kind not in "iub":
        raise UserError(f"{MASK} takes a multi-binary space or an integer box of one dimension, not {space}")
    assert space.shape is not None
    return spaces.MultiBinary(space.shape[0])


def _check_size(space: Space[object], what: str) -> None:
    """ValueError for a space of no number at all: nothing could be seen, or done."""
    if 0 in (space.shape or ()):
        raise ValueError(f"{what} space {space} is empty: its shape is {list(space.shape or ())}")


def _leaf_space(space: Space[object]) -> Space[Any]:
    _check_size(space, "observation")
    if isinstance(space, spaces.Discrete):
        return spaces.Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete):
        return spaces.MultiDiscrete(space.nvec.reshape(-1))
    if isinstance(space, spaces.MultiBinary):
        return spaces.Box(0.0, 1.0, space.shape, np.float32)
    if isinstance(space, spaces.Box):
        if is_image(space):
            return space
        shape = space.shape or (1,)
        with np.errstate(over="ignore"):  # bounds at the end of float64 become infinite
            low, high = (bound.astype(np.float32).reshape(shape) for bound in (space.low, space.high))
        return spaces.Box(low, high, dtype=np.float32)
    kinds = "box, discrete, multi-discrete, multi-binary and dicts or tuples of these"
    raise UserError(f"observation space {space} is not supported; {kinds} are")


def _check_readable(space: Space[object], leaves: Sequence[tuple[str, Space[Any]]]) -> None:
    """UserError that says how to leave out what no network reads, such as MiniGrid's sentence."""
    readable = {name for name, leaf in leaves if isinstance(leaf, READABLE)}
    if len(readable) < len(leaves) and readable and isinstance(space, spaces.Dict):
        name, leaf = next((name, leaf) for name, leaf in leaves if name not in readable)
        kept = ",".join(key for key in space.spaces if any(f"{each}.".startswith(f"{key}.") for each in readable))
        raise UserError(
            f"observation {name!r} is {type(leaf).__name__}, which no network reads; leave it out: "
            f"env_wrappers=[{{id:'gymnasium.wrappers:FilterObservation',filter_keys:[{kept}]}}]"
        )


def _all_valid(space: Space[object], num_envs: int) -> Tensor:
    return torch.ones((num_envs, *(space.shape or ())), dtype=torch.bool)


def _zeros(space: Space[object], num_envs: int) -> Tensor:
    shape = space.shape or ()
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return torch.zeros((num_envs, *shape), dtype=torch.int64)
    return torch.zeros((num_envs, *shape), dtype=torch.uint8 if is_image(space) else torch.float32)


def _integer_writer(view: np.ndarray, start: int, count: int, name: str) -> Write:
    def write(world: int, value: SupportsIndex) -> None:
        index = operator.index(value) - start
        if not 0 <= index < count:
            raise ValueError(f"observation{name} {value} is outside {start}..{start + count - 1}")
        view[world] = index

    return write


def _integers_writer(view: np.ndarray, space: spaces.MultiDiscrete, name: str) -> Write:
    def write(world: int, value: object) -> None:
        array = np.asarray(value)
        if array.shape != space.shape or array.dtype.kind not in "iu":
            raise ValueError(f"observation{name} {array.dtype}{list(array.shape)} does not fit {space}")
        index = (array.astype(np.int64) - space.start).reshape(-1)
        if (index < 0).any() or (index >= space.nvec.reshape(-1)).any():
            raise ValueError(f"observation{name} {value} is outside {space}")
        view[world] = index

    return write


def _array_writer(view: np.ndarray, space: Space[object], name: str) -> Write:
    """The hot path: one class, one dtype and one shape comparison; whatever differs is looked at more closely."""
    shape, dtype = space.shape, space.dtype
    kinds = {"uint8": "u", "bool": "iub"}.get(view.dtype.name, "fiub")

    def write(world: int, value: object) -> None:
        if value.__class__ is not np.ndarray or value.dtype is not dtype or value.shape != shape:
            value = np.asarray(value)
            if value.shape != shape or value.dtype.kind not in kinds or (kinds == "u" and value.dtype != np.uint8):
                found = f"{value.dtype}{list(value.shape)}"
                raise ValueError(f"observation{name} {found} does not fit {dtype}{list(shape or ())}")
        view[world] = value

    return write
