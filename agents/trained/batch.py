"""Many observations of an environment at once, as a program has them, for a policy."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
from gymnasium import Space, spaces

from stride.envs_fast.vec_env import Obs
from stride.envs_gym.spaces import observation_space, observation_writer, zeros
from stride.utils.user_error import UserError


def batch_of(space: Space[object], batch: Any) -> Obs:
    """N observations of the original `space` as the policy sees them; UserError where they are not of it."""
    rows = rows_of(space, batch)
    obs = zeros(observation_space(space), len(rows))
    write = observation_writer(space, obs)
    try:
        for row, value in enumerate(rows):
            write(row, value)
    except (ValueError, TypeError) as error:
        raise UserError(f"{error}; a batch is N observations, [N, ...]; one alone is obs[None]") from error
    return obs


def rows_of(space: Space[object], batch: Any) -> Sequence[Any]:
    """The N observations of a batch, whose parts may be arrays [N, ...] each; UserError where that is none."""
    if isinstance(space, spaces.Dict) and isinstance(batch, Mapping):
        if missing := space.spaces.keys() - batch.keys():
            raise UserError(f"the batch has no {', '.join(map(repr, sorted(missing)))}")
        parts = {key: rows_of(child, batch[key]) for key, child in space.spaces.items()}
        return [dict(zip(parts, row, strict=True)) for row in _together([*parts.values()])]
    if isinstance(space, spaces.Tuple) and isinstance(batch, tuple) and len(batch) == len(space.spaces):
        return _together([rows_of(child, part) for child, part in zip(space.spaces, batch, strict=True)])
    if isinstance(batch, list | tuple) or (isinstance(batch, np.ndarray) and batch.ndim):
        return cast(Sequence[Any], batch)
    raise UserError(f"a batch is N observations, [N, ...], not a single {type(batch).__name__}")


def _together(parts: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    counts = sorted({len(part) for part in parts})
    if len(counts) > 1:
        raise UserError(f"the parts of the batch have {' and '.join(map(str, counts))} rows")
    return list(zip(*parts, strict=True))
