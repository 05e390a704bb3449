"""Compiled environments as a `gymnasium.vector.VectorEnv`: spaces, seeds, infos and autoreset as in SyncVectorEnv.

`gymnasium.make_vec("fast/CartPole-v1", num_envs=4096)` after `from stride import envs_fast`.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Space, spaces
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import ArrayLike

from stride.envs_fast.autoreset import FirstStates, present
from stride.envs_fast.drawing import Drawing
from stride.envs_fast.registry import make
from stride.envs_fast.scale import Scale
from stride.envs_fast.toy_infos import ToyInfos
from stride.envs_fast.world import NO_LIMIT, StepResults, bind, fast_id
from stride.utils.counter_rng import WORLD, Key, integers
from stride.utils.user_error import UserError

# The seed of all worlds if each gets a seed of its own: that decides only the number of the world's first episode.
SEPARATE_SEEDS = (1 << 63) - 1
BOOL, BYTE = np.dtype(np.bool_), np.dtype(np.uint8)  # NumPy takes longer to look up a type than to make a small array
Observation = np.ndarray | tuple[np.ndarray, ...]
Returned = tuple[Observation, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]


class FastVectorEnv(VectorEnv[Observation, np.ndarray, np.ndarray]):
    """N compiled worlds as Gymnasium's vector environment. `copy=False`: each call overwrites the last observations.

    An int seed gives world i the random numbers of (seed, i); a list seeds each world separately; None continues with
    the next random numbers. Actions outside a Box are clipped, as in Gymnasium; render_mode "human" shows world 0.
    """

    def __init__(
        self, env_id: str, num_envs: int = 1, max_episode_steps: int | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP, copy: bool = True,
        render_mode: str | None = None, **env_kwargs: Any,
    ) -> None:  # fmt: skip
        self.env = make(env_id, num_envs, max_episode_steps=max_episode_steps, **env_kwargs)
        self.num_envs = num_envs
        self.copy = copy
        self.render_mode = render_mode
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.env.charge_as_gymnasium()
        self._drawing = Drawing(self.env, env_kwargs, render_mode)
        self.metadata = {**self._drawing.metadata, "autoreset_mode": self.autoreset_mode}
        self.spec = gymnasium.registry.get(fast_id(env_id))
        self.single_observation_space = native(self.env.observation_space)
        self.single_action_space = self.env.setting.gym_action_space or self.env.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

        env = self.env
        self._toy = None if env.setting.odds is None else ToyInfos(env, env.setting.odds)
        self._obs, self._reward, _, _, *self._last = last = env.last.arrays  # _last: the buffers for ended episodes
        self._final_obs = last.final_obs.reshape(num_envs, -1)
        self._ended = np.zeros(num_envs, np.uint32)
        self._count = 0  # number of episodes that ended in the last step: _ended[:_count] are their worlds
        self._first_states = FirstStates(
            self._ended, np.zeros_like(env.state.T, order="C"), np.zeros_like(self._final_obs)
        )
        self._worlds = env.worlds._replace(state=env.state)
        self._present = bind(present, self._worlds, last, self._first_states, np.zeros(num_envs), 0, False, 0)
        self._limit = NO_LIMIT if env.time_limit is None else env.time_limit
        self._hold = self.autoreset_mode is not AutoresetMode.SAME_STEP
        units = self.env.action_space if self.env.setting.in_gym_units else self.single_action_space
        self._scale = Scale(units) if isinstance(units, spaces.Box) else None

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Begin new episodes in all worlds, or in those of `options["reset_mask"]`; return all observations, infos."""
        mask = _mask(options, self.num_envs)
        # worlds that have ended, and whose next episode has begun in the kernels only: they show the final observation
        waiting = np.zeros(self.num_envs, np.bool_)
        waiting[self._ended[: self._count]] = self._hold
        self._begin(seed, mask, waiting)
        unseen = np.flatnonzero(waiting & ~mask)
        out = self._target()
        np.copyto(out, self._obs)
        out.reshape(self.num_envs, -1)[unseen] = self._final_obs[unseen]
        self._forget(mask)
        if self.render_mode == "human":
            self.render()
        infos = {} if self._toy is None else self._toy.infos(np.ones(self.num_envs), out[0], mask)
        return self._tree(out), infos

    def _begin(self, seed: int | Sequence[int | None] | None, mask: np.ndarray, waiting: np.ndarray) -> None:
        """Begin episodes in the worlds of the mask, seeded by an int, a list or nothing (see the class)."""
        env = self.env
        whole = bool(mask.all())
        seed = int(seed) if isinstance(seed, np.integer) else seed
        if env.seed is None and not whole:
            raise UserError(f"{env.env_id}: the first reset must reset all environments, without a reset_mask")
        if whole and isinstance(seed, int):
            super().reset(seed=seed)
            env.reset(seed)
        elif seed is None and env.seed is None:
            env.reset(int(self.np_random.integers(1 << 63)))
        elif seed is None:
            env.restart(mask & ~waiting)
        else:
            self._seed_each([seed + i for i in range(self.num_envs)] if isinstance(seed, int) else [*seed], mask)

    def _seed_each(self, seeds: list[int | None], mask: np.ndarray) -> None:
        """Begin an episode in each world of the mask: its number follows from its seed, None is a random one."""
        if len(seeds) != self.num_envs:
            raise ValueError(f"a list of seeds needs one for each of num_envs={self.num_envs}, got {len(seeds)}")
        if mask.all():
            self.env.reset(SEPARATE_SEEDS)
        for world in np.flatnonzero(mask):
            seed = seeds[world]
            key = Key(int(self.np_random.integers(1 << 63)) if seed is None else int(seed), WORLD)
            self.env.episodes[world] = integers(key, 1, 1 << 30)[0]
        self.env.restart(mask)

    def _forget(self, mask: np.ndarray) -> None:
        """Remove the worlds of the mask from the list of ended ones; the entries of the others move to the front."""
        remaining = np.flatnonzero(~mask[self._ended[: self._count]])
        for array in self._first_states:
            array[: len(remaining)] = array[remaining]
        self._count = len(remaining)

    def step(self, actions: np.ndarray) -> Returned:
        """Advance every world by one action of `single_action_space`.

        With autoreset NEXT_STEP a world that ended in the last step begins its next episode instead; with DISABLED,
        ResetNeeded is raised.
        """
        begin = self._count if self._hold else 0
        if begin and self.autoreset_mode is AutoresetMode.DISABLED:
            worlds = ", ".join(map(str, self._ended[: min(begin, 8)]))
            raise gymnasium.error.ResetNeeded(
                f"{self.env.env_id}: the episodes of environments {worlds} have ended; reset them"
            )
        action = self._convert(actions)
        obs = self._target()
        reward = np.empty(self.num_envs)
        terminated = np.empty(self.num_envs, BOOL)
        truncated = np.empty(self.num_envs, BOOL)
        results = StepResults(obs, self._reward, terminated.view(BYTE)[None], truncated.view(BYTE)[None], *self._last)
        # before the step, because it changes the ages, on which the random numbers depend
        prob = None if self._toy is None else self._toy.ahead(action)
        if prob is not None:
            prob[self._ended[:begin]] = 1.0
        self._drawing.remember(action)
        self._advance(action, results, begin)
        self._count = self._present(self._worlds, results, self._first_states, reward, begin, self._hold, self._limit)
        infos = {} if self._hold or not self._count else self._final_infos(prob)
        if self._toy is not None and prob is not None:
            infos |= self._toy.infos(prob, obs[0], np.ones(self.num_envs, np.bool_))
        if self.render_mode == "human":
            self.render()
        return self._tree(obs), reward, terminated, truncated, infos

    def _advance(self, action: np.ndarray, results: StepResults, begin: int) -> None:
        """Play one step of the kernel. The first `begin` worlds in `_ended` only begin: any action is valid."""
        try:
            self.env.play(action[None], results)
            return
        except ValueError:
            if not begin:
                raise
        action = action.copy()
        action[self._ended[:begin]] = 0
        self.env.play(action[None], results)

    def _final_infos(self, prob: np.ndarray | None) -> dict[str, Any]:
        """Return SyncVectorEnv's infos about the episodes that ended in this step, and set their `prob` to 1."""
        worlds = self._ended[: self._count]
        final = np.full(self.num_envs, None, object)
        mask = np.zeros(self.num_envs, np.bool_)
        mask[worlds] = True
        rows = self._final_obs[worlds]  # a copy
        if isinstance(self.single_observation_space, spaces.Tuple):
            values: list[Any] = [tuple(row) for row in rows.tolist()]
        else:
            rows = rows.reshape(-1, *self._obs.shape[2:])
            values = rows.tolist() if isinstance(self.single_observation_space, spaces.Discrete) else [*rows]
        for world, value in zip(worlds.tolist(), values, strict=True):
            final[world] = value
        info = {}
        if self._toy is not None and prob is not None:
            info = self._toy.infos(prob, self._final_obs[:, 0], mask)
            prob[worlds] = 1.0
        return {"final_obs": final, "_final_obs": mask, "final_info": info, "_final_info": mask.copy()}

    def _convert(self, actions: ArrayLike) -> np.ndarray:
        """Convert actions to what the kernels take: int64, or float32 in [-1, 1]. Else ValueError."""
        array = np.asarray(actions)
        kinds, wanted = ("iu", np.int64) if self._scale is None else ("fiu", np.float32)
        if array.dtype.kind not in kinds or array.shape != self.action_space.shape:
            wrong = f"got {array.dtype}{list(array.shape)}"
            raise ValueError(f"{self.env.env_id} takes actions like {self.action_space}, {wrong}")
        return np.ascontiguousarray(array, wanted) if self._scale is None else self._scale.to_unit(array)

    def _target(self) -> np.ndarray:
        """Return the array to write observations to: a new one, or with `copy=False` always the same."""
        return np.empty(self._obs.shape, self._obs.dtype) if self.copy else self._obs

    def _tree(self, obs: np.ndarray) -> Observation:
        if isinstance(self.single_observation_space, spaces.Tuple):
            return tuple(np.ascontiguousarray(column) for column in obs[0].T)
        return obs[0]

    def render(self) -> tuple[Any, ...] | None:
        """Return a frame of every world, drawn by Gymnasium's environment; "human": show world 0 in a window."""
        if self.render_mode is None:
            raise UserError(f"{self.env.env_id} was made without a render_mode")
        worlds = range(1 if self.render_mode == "human" else self.num_envs)
        self._pose()
        frames = tuple(self._drawing.call("render", worlds))
        return None if self.render_mode == "human" else frames

    def call(self, name: str, *args: object, **kwargs: object) -> tuple[Any, ...]:
        """Call a method of Gymnasium's environment (or read an attribute) in the state of each world."""
        self._pose()
        return tuple(self._drawing.call(name, range(self.num_envs), *args, **kwargs))

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Read an attribute of Gymnasium's environment in the state of each world."""
        self._pose()
        return tuple(self._drawing.read(name, range(self.num_envs)))

    def _pose(self) -> None:
        """Pass the final observations of ended worlds to the drawing: their state is that of the next episode."""
        ended = self._ended[: self._count].tolist() if self._hold else []
        self._drawing.last_seen = {world: self._final_obs[world] for world in ended}

    def set_attr(self, name: str, values: object) -> None:
        """Raise UserError: compiled environments have no attributes to set."""
        raise UserError(f"{self.env.env_id}: {name!r} cannot be set in compiled environments; use make_vec")

    def close_extras(self, **kwargs: object) -> None:
        """Close the window and stop the threads."""
        self._drawing.close()
        self.env.close()


def native(space: Space[Any]) -> Space[Any]:
    """Return an observation space as Gymnasium has it: a Dict of VecEnv was a Tuple there."""
    return spaces.Tuple(tuple(space.spaces.values())) if isinstance(space, spaces.Dict) else space


def _mask(options: dict[str, Any] | None, num_envs: int) -> np.ndarray:
    """Return which worlds to reset, bool [num_envs]; the same errors as SyncVectorEnv's."""
    if options is None or "reset_mask" not in options:
        return np.ones(num_envs, np.bool_)
    mask = options["reset_mask"]
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        kind = f"an array of {mask.dtype}" if isinstance(mask, np.ndarray) else f"a {type(mask).__name__}"
        raise TypeError(f"options['reset_mask'] must be a numpy array of dtype bool, got {kind}")
    if mask.shape != (num_envs,):
        raise ValueError(f"options['reset_mask'] must have shape ({num_envs},), got {mask.shape}")
    if not mask.any():
        raise ValueError("options['reset_mask'] must have at least one True")
    return mask
