"""Wrappers that change actions: renumber them, repeat them at random, or mark illegal ones by a mask."""

from collections.abc import Mapping, Sequence
from typing import Any, SupportsInt

import numpy as np
from gymnasium import Env, Wrapper
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from stride.envs_gym.spaces import MASK
from stride.envs_gym.wrappers.base import ResetAnswer, StepAnswer, env_name, require, require_discrete_actions


class ActionRemapper(Wrapper):
    """Action i of the policy becomes action `actions[i]` of the environment; a mask in `info` is reordered too."""

    def __init__(self, env: Env, actions: Sequence[int]) -> None:
        super().__init__(env)
        self._actions = checked_actions("ActionRemapper", "actions", env, actions, once=False)
        self.action_space = Discrete(len(self._actions))

    def reset(self, **kwargs: Any) -> ResetAnswer:
        observation, info = self.env.reset(**kwargs)
        return observation, self._with_reordered_mask(info)

    def step(self, action: SupportsInt) -> StepAnswer:
        observation, reward, terminated, truncated, info = self.env.step(self._actions[int(action)])
        return observation, reward, terminated, truncated, self._with_reordered_mask(info)

    def _with_reordered_mask(self, info: dict[str, object]) -> dict[str, Any]:
        """Return the info with its mask (if any) in the order of the policy's actions."""
        return {**info, MASK: np.asarray(info[MASK])[self._actions]} if MASK in info else info


class CarRacingPedals(Wrapper):
    """Two actions in [-1, 1]: steering, and one pedal for gas (positive) and brake (negative).

    A new policy acts near the middle: neither gas nor brake. With CarRacing's own three actions it would use half the
    gas and half the brake.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        space = env.action_space
        fitting = isinstance(space, Box) and space.low.tolist() == [-1, 0, 0] and space.high.tolist() == [1, 1, 1]
        require(fitting, f"CarRacingPedals needs steering, gas and brake, not {space}")
        self.action_space = Box(-1.0, 1.0, (2,), np.float32)

    def step(self, action: object) -> StepAnswer:
        steering, pedal = np.asarray(action, np.float32)
        return self.env.step(np.array([steering, max(pedal, 0.0), max(-pedal, 0.0)], np.float32))


class StickyActions(Wrapper):
    """With this probability, the previous action is repeated instead (Machado et al. 2018)."""

    def __init__(self, env: Env, probability: float = 0.25) -> None:
        super().__init__(env)
        require(0 <= probability < 1, f"StickyActions: probability must be in [0, 1), not {probability}")
        self.probability = probability
        self._last: Any = None  # the action before; None at the start of an episode

    def reset(self, **kwargs: Any) -> ResetAnswer:
        self._last = None
        return self.env.reset(**kwargs)

    def step(self, action: object) -> StepAnswer:
        if self._last is not None and self.unwrapped.np_random.random() < self.probability:
            action = self._last
        self._last = action
        return self.env.step(action)


class ActionMask(Wrapper):
    """Adds `action_mask` to the observation: true for each valid action.

    The mask is constant with `valid_actions`, otherwise it comes from `info["action_mask"]` at each step.
    """

    def __init__(self, env: Env, valid_actions: Sequence[int] | None = None) -> None:
        super().__init__(env)
        self._count = require_discrete_actions(env, "ActionMask")
        self._constant: np.ndarray | None = None  # the mask of `valid_actions`, bool [A]; None: `info` has the mask
        if valid_actions is not None:
            valid = checked_actions("ActionMask", "valid_actions", env, valid_actions, once=True)
            self._constant = np.isin(np.arange(self._count), valid)
        else:
            _, info = env.reset(seed=0)  # only to look at the info; worlds are seeded again before they are used
            has_mask = MASK in info and np.shape(info[MASK]) == (self._count,)
            hint = "set valid_actions, or spec.valid_actions"
            require(has_mask, f"the info of {env_name(env)} has no {MASK} of {self._count} actions; {hint}")
        space = env.observation_space
        components = dict(space.spaces) if isinstance(space, Dict) else {"obs": space}
        require(MASK not in components, f"the observation of {env_name(env)} already has an {MASK}")
        self.observation_space = Dict({**components, MASK: MultiBinary(self._count)})

    def reset(self, **kwargs: Any) -> ResetAnswer:
        observation, info = self.env.reset(**kwargs)
        return self._masked(observation, info, False), info

    def step(self, action: object) -> StepAnswer:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._masked(observation, info, terminated), reward, terminated, truncated, info

    def _masked(self, observation: object, info: dict[str, object], terminated: bool) -> dict[str, object]:
        """Return the observation as a dict with its mask; ValueError for a mask that allows no action."""
        mask = np.asarray(info[MASK], bool) if self._constant is None else self._constant
        if not mask.any():
            if not terminated:
                raise ValueError(f"{MASK} allows no action")
            mask = np.ones(self._count, bool)  # no action is chosen after the end, but networks need a legal one
        return {**observation, MASK: mask} if isinstance(observation, Mapping) else {"obs": observation, MASK: mask}


def checked_actions(name: str, key: str, env: Env, actions: int | Sequence[int], once: bool) -> list[int]:
    """Return `actions` as a list; UserError where one does not exist, or (with `once`) is listed twice.

    `name`, `key`: the wrapper and its argument, for the message.
    """
    count = require_discrete_actions(env, name)
    listed: list[Any] = list(actions) if isinstance(actions, list | tuple) else [actions]
    fitting = bool(listed) and all(isinstance(a, int) and 0 <= a < count for a in listed)
    require(fitting, f"{name}: {key} must list actions from 0 to {count - 1}, not {actions}")
    require(not once or len(set(listed)) == len(listed), f"{name}: {key} must list each action once, not {actions}")
    return listed
