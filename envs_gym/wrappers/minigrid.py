"""MiniGrid's view as numbers that networks read, its sentence included, and which actions would change anything.

What a cell shows is three codes (kind, colour, state), of which a larger one is not more: each becomes one-hot.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stride.envs_gym.spaces import MASK
from stride.envs_gym.wrappers.base import ResetAnswer, StepAnswer, env_name, require
from stride.envs_gym.wrappers.images import ChannelFirst

CODES = (11, 6, 4)  # kinds of things, colours, and states of a door, or the four ways that an agent can look
DIRECTIONS = 4
MOST_SENTENCES = 100_000


class MiniGridPlanes(ChannelFirst):
    """The view as a picture with a plane for each code, 0 or 255, beside the direction and the words of the mission."""

    def __init__(self, env: gymnasium.Env, mission: bool = True) -> None:
        super().__init__(env)
        self._view = checked_view(env, type(self).__name__)
        self._words = Words(missions(env, type(self).__name__) if mission else ())
        height, width, _ = self._view
        parts: dict[str, spaces.Space[Any]] = {
            "image": spaces.Box(0, 255, (sum(CODES), height, width), np.uint8),
            "direction": spaces.Discrete(DIRECTIONS),
        }
        if self._words.size:
            parts["mission"] = spaces.MultiBinary(self._words.size)
        self.observation_space = spaces.Dict(parts)

    def reset(self, **kwargs: Any) -> ResetAnswer:
        obs, info = self.env.reset(**kwargs)
        return self.observed(obs), info

    def step(self, action: object) -> StepAnswer:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return self.observed(obs), reward, terminated, truncated, info

    def observed(self, obs: Mapping[str, Any]) -> Any:
        planes = np.ascontiguousarray(one_hot(obs["image"]).transpose(2, 0, 1)) * np.uint8(255)
        observation = {"image": planes, "direction": obs["direction"]}
        return {**observation, "mission": self._words.encode(obs["mission"])} if self._words.size else observation


class MiniGridFlat(MiniGridPlanes):
    """All of it as one vector of 0 and 1."""

    def __init__(self, env: gymnasium.Env, mission: bool = True) -> None:
        super().__init__(env, mission)
        size = math.prod(self._view[:2]) * sum(CODES) + DIRECTIONS + self._words.size
        self.observation_space = spaces.Box(0.0, 1.0, (size,), np.float32)

    def observed(self, obs: Mapping[str, Any]) -> Any:
        parts = (one_hot(obs["image"]).reshape(-1), np.arange(DIRECTIONS) == obs["direction"])
        return np.concatenate((*parts, self._words.encode(obs["mission"])), dtype=np.float32, casting="unsafe")


class MiniGridMask(gymnasium.Wrapper):
    """Tells in `info` which actions would change anything, for `action_mask: true`.

    A task with rules of its own may react to an action that moves nothing: there the mask leaves out only picking up
    where nothing can be, and dropping nothing or onto something.
    """

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        checked_view(env, type(self).__name__)
        require(isinstance(env.action_space, spaces.Discrete), f"{type(self).__name__} needs MiniGrid's own actions")
        from minigrid.minigrid_env import MiniGridEnv

        assert isinstance(env.action_space, spaces.Discrete)
        self._count = int(env.action_space.n)
        self._own_rules = type(env.unwrapped).step is not MiniGridEnv.step

    def reset(self, **kwargs: Any) -> ResetAnswer:
        obs, info = self.env.reset(**kwargs)
        return obs, {**info, MASK: self._useful()}

    def step(self, action: object) -> StepAnswer:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, {**info, MASK: self._useful()}

    def _useful(self) -> np.ndarray:
        """Of left, right, forward, pick up, drop, toggle, done."""
        world: Any = self.unwrapped
        ahead, carried = world.grid.get(*world.front_pos), world.carrying
        enters = ahead is None or ahead.can_overlap()
        takes = ahead is not None and carried is None and ahead.can_pickup()
        opens = ahead is not None and self._opens(ahead, carried)
        own = self._own_rules
        mask = [True, True, enters or own, takes, carried is not None and ahead is None, opens or own, own]
        return np.array(mask[: self._count])

    @staticmethod
    def _opens(ahead: Any, carried: Any) -> bool:
        if ahead.type == "door" and ahead.is_locked:
            return carried is not None and carried.type == "key" and carried.color == ahead.color
        return ahead.type in ("door", "box")


class Words:
    """The sentences of a list as one-hot words, place by place; places where all say the same are left out."""

    def __init__(self, sentences: Sequence[str]) -> None:
        columns = [*itertools.zip_longest(*(sentence.split() for sentence in sentences), fillvalue="")]
        varying = {place: sorted({*column}) for place, column in enumerate(columns) if len({*column}) > 1}
        places = [(place, word) for place, words in varying.items() for word in words]
        self._places = [*varying]
        self._index = {key: index for index, key in enumerate(places)}
        self.size = len(places)

    def encode(self, sentence: str) -> np.ndarray:
        """int8 [size]; ValueError for a sentence that is not of the list."""
        words = sentence.split()
        code = np.zeros(self.size, np.int8)
        for place in self._places:
            word = words[place] if place < len(words) else ""
            if (place, word) not in self._index:
                raise ValueError(f"its mission {sentence!r} is none of its mission space")
            code[self._index[place, word]] = 1
        return code


def one_hot(image: np.ndarray) -> np.ndarray:
    """[height, width, 3] codes -> uint8 [height, width, 21]."""
    return np.concatenate([np.eye(n, dtype=np.uint8)[image[..., i]] for i, n in enumerate(CODES)], -1)


def checked_view(env: gymnasium.Env, name: str) -> tuple[int, int, int]:
    """The shape of a MiniGrid's view; UserError for whatever is none."""
    space = env.observation_space
    parts = space.spaces if isinstance(space, spaces.Dict) else {}
    image = parts.get("image")
    fitting = isinstance(image, spaces.Box) and len(image.shape) == 3 and image.shape[2] == len(CODES)
    require(
        fitting and {"direction", "mission"} <= {*parts}, f"{name} needs MiniGrid's own view, not {env_name(env)}'s"
    )
    assert isinstance(image, spaces.Box)
    height, width, channels = image.shape
    return height, width, channels


def missions(env: gymnasium.Env, name: str) -> list[str]:
    """Every sentence that a world may say; UserError where they are those of a grammar."""
    assert isinstance(env.observation_space, spaces.Dict)
    space: Any = env.observation_space["mission"]
    cure = f"give {{id: {name}, mission: false}}, and the policy is not told what to do"
    require("BabyAI" not in type(space).__name__, f"{env_name(env)} speaks in sentences of a grammar; {cure}")
    options = space.ordered_placeholders or []
    many = math.prod(map(len, options))
    require(many <= MOST_SENTENCES, f"{env_name(env)} has {many:,} sentences; {cure}")
    return [space.mission_func(*chosen) for chosen in itertools.product(*options)]
