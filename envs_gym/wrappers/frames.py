"""Wrappers that repeat actions for several frames, or stack several observations."""

from collections import deque
from math import ceil
from typing import Any

import gymnasium
import numpy as np
from gymnasium import Env, Wrapper
from gymnasium.spaces import Box

from stride.envs_gym.wrappers.base import ResetAnswer, StepAnswer, check_observation, layers, require, require_positive
from stride.envs_gym.wrappers.images import ChannelFirst, channel_first

TimeLimit = gymnasium.wrappers.TimeLimit  # truncates after max_episode_steps; inside a FrameSkip it counts frames


class FrameSkip(Wrapper):
    """Repeats each action for `skip` frames and adds up their rewards; stops early if the episode ends.

    `max_last_two` observes the brighter of the last two frames, for games that draw objects only in every second frame.
    """

    def __init__(self, env: Env, skip: int, max_last_two: bool = False) -> None:
        super().__init__(env)
        require_positive("FrameSkip: skip", skip)
        box = isinstance(env.observation_space, Box)
        require(box or not max_last_two, f"FrameSkip: max_last_two needs an image, not {env.observation_space}")
        self.skip = skip
        self.max_last_two = max_last_two

    def step(self, action: object) -> StepAnswer:
        total_reward = 0.0
        recent = deque[Any](maxlen=2)
        for _ in range(self.skip):
            obs, reward, terminated, truncated, info = self.env.step(action)
            total_reward += float(reward)
            recent.append(np.array(obs) if self.max_last_two else obs)  # a copy: worlds may reuse their buffer
            if terminated or truncated:
                break
        observation = np.maximum(recent[0], recent[-1]) if self.max_last_two else recent[-1]
        return observation, total_reward, terminated, truncated, info


class FrameStack(ChannelFirst):
    """The last `frames` observations joined along their first axis: channels of an image, entries of a vector.

    An episode starts with its first observation repeated.
    """

    def __init__(self, env: Env, frames: int) -> None:
        require_positive("FrameStack: frames", frames)
        super().__init__(channel_first(env))
        space: Any = self.env.observation_space
        require(isinstance(space, Box) and bool(space.shape), f"FrameStack needs a box, not {space}")
        check_observation("FrameStack", (frames, *space.shape), space.dtype)
        lower = np.concatenate([space.low] * frames)
        upper = np.concatenate([space.high] * frames)
        self.observation_space = Box(lower, upper, dtype=space.dtype.type)
        self._frames: deque[np.ndarray] = deque(maxlen=frames)
        self._stacked = frames

    def reset(self, **kwargs: Any) -> ResetAnswer:
        observation, info = self.env.reset(**kwargs)
        self._frames.append(np.array(observation))  # a copy: worlds may reuse their buffer
        return self.again(), info

    def step(self, action: object) -> StepAnswer:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._frames.append(np.array(observation))
        return np.concatenate(self._frames), reward, terminated, truncated, info

    def again(self) -> np.ndarray:
        """Return the newest observation repeated, as at the start of an episode."""
        self._frames.extend([self._frames[-1]] * self._stacked)
        return np.concatenate(self._frames)


def step_limit(env: Env) -> int | None:
    """Return the time limit in steps of the policy; None where no wrapper has a limit."""
    limit: int | None = None
    for layer in reversed(list(layers(env))):  # innermost first
        if isinstance(layer, TimeLimit):
            layer_limit = layer._max_episode_steps
            limit = layer_limit if limit is None else min(limit, layer_limit)
        elif isinstance(layer, FrameSkip) and limit is not None:
            limit = ceil(limit / layer.skip)
    return limit
