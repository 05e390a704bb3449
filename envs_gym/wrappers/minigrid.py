"""Wrappers that encode MiniGrid's view and mission for networks, and mask actions that would change nothing.

MiniGrid describes a cell by three codes: kind, colour and state. Their order has no meaning, so each code becomes
one-hot.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import Env, ObservationWrapper, Wrapper, spaces
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary

from stride.config.extras import COMPILED, extra_of
from stride.envs_gym.spaces import MASK
from stride.envs_gym.wrappers.base import ResetAnswer, StepAnswer, env_name, require
from stride.envs_gym.wrappers.images import ChannelFirst
from stride.utils.user_error import UserError

CODES = (11, 6, 4)  # numbers of kinds, of colours, and of states (of a door; or the direction of an agent)
DIRECTIONS = 4
MAX_SENTENCES = 100_000


class MiniGridPlanes(ChannelFirst, ObservationWrapper):
    """MiniGrid's view as an image with one plane (0 or 255) per code, plus the direction and the mission's words.

    `mission: false` leaves the words out.
    """

    def __init__(self, env: Env, mission: bool = True) -> None:
        super().__init__(env)
        self._view = checked_view(env, type(self).__name__)
        self._words = MissionWords(missions(env, type(self).__name__) if mission else ())
        components: dict[str, spaces.Space[Any]] = {
            "image": Box(0, 255, (sum(CODES), *self._view[:2]), np.uint8),
            "direction": Discrete(DIRECTIONS),
        }
        if self._words.size:
            components["mission"] = MultiBinary(self._words.size)
        self.observation_space = Dict(components)

    def observation(self, observation: Mapping[str, Any]) -> Any:
        planes = np.ascontiguousarray(one_hot(observation["image"]).transpose(2, 0, 1)) * np.uint8(255)
        encoded = {"image": planes, "direction": observation["direction"]}
        if self._words.size:
            encoded["mission"] = self._words.encode(observation["mission"])
        return encoded


class MiniGridFlat(MiniGridPlanes):
    """MiniGrid's view, direction and words of the mission as one vector of 0 and 1.

    `mission: false` leaves the words out.
    """

    def __init__(self, env: Env, mission: bool = True) -> None:
        super().__init__(env, mission)
        size = math.prod(self._view[:2]) * sum(CODES) + DIRECTIONS + self._words.size
        self.observation_space = Box(0.0, 1.0, (size,), np.float32)

    def observation(self, observation: Mapping[str, Any]) -> Any:
        view = one_hot(observation["image"]).reshape(-1)
        direction = np.arange(DIRECTIONS) == observation["direction"]
        mission = self._words.encode(observation["mission"])
        return np.concatenate((view, direction, mission), dtype=np.float32, casting="unsafe")


class MiniGridMask(Wrapper):
    """Adds a mask to `info` of the actions that would change something, for `action_mask: true`.

    Some tasks react to actions that move nothing. In these, the mask excludes only picking up where there is nothing,
    dropping nothing, and dropping onto something.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        checked_view(env, type(self).__name__)
        action_space: Any = env.action_space
        require(isinstance(action_space, Discrete), f"{type(self).__name__} needs MiniGrid's own actions")
        from minigrid.minigrid_env import MiniGridEnv

        self._count = int(action_space.n)
        self._own_rules = type(env.unwrapped).step is not MiniGridEnv.step

    def reset(self, **kwargs: Any) -> ResetAnswer:
        observation, info = self.env.reset(**kwargs)
        return observation, {**info, MASK: self._useful()}

    def step(self, action: object) -> StepAnswer:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, {**info, MASK: self._useful()}

    def _useful(self) -> np.ndarray:
        """Return the mask: whether each of left, right, forward, pick up, drop, toggle, done would change something."""
        world: Any = self.unwrapped
        front = world.grid.get(*world.front_pos)  # the object in front, or None
        carried = world.carrying
        own_rules = self._own_rules  # the task overrides `step`, so these actions may have other effects
        forward = own_rules or front is None or front.can_overlap()
        pick_up = front is not None and carried is None and front.can_pickup()
        drop = front is None and carried is not None
        toggle = own_rules or (front is not None and self._opens(front, carried))
        mask = [True, True, forward, pick_up, drop, toggle, own_rules]
        return np.array(mask[: self._count])

    @staticmethod
    def _opens(front: Any, carried: Any) -> bool:
        if front.type == "door" and front.is_locked:
            return carried is not None and carried.type == "key" and carried.color == front.color
        return front.type in ("door", "box")


class MissionWords:
    """Encodes sentences of a list as one-hot words, position by position.

    Positions at which all sentences have the same word are left out. `size`: numbers in an encoded sentence.
    """

    def __init__(self, sentences: Sequence[str]) -> None:
        self._codes: dict[int, dict[str, int]] = {}  # position -> word -> index, such as {2: {"blue": 0, "red": 1}}
        self.size = 0
        columns = itertools.zip_longest(*map(str.split, sentences), fillvalue="")
        for position, column in enumerate(columns):
            options = sorted(set(column))
            if len(options) > 1:
                self._codes[position] = {word: self.size + index for index, word in enumerate(options)}
                self.size += len(options)

    def encode(self, sentence: str) -> np.ndarray:
        """Return a sentence as int8 [size] of 0 and 1; ValueError for a sentence that is not in the list."""
        sentence_words = sentence.split()
        encoded = np.zeros(self.size, np.int8)
        for position, codes in self._codes.items():
            word = sentence_words[position] if position < len(sentence_words) else ""
            if word not in codes:
                raise ValueError(f"its mission {sentence!r} is not in its mission space")
            encoded[codes[word]] = 1
        return encoded


def one_hot(image: np.ndarray) -> np.ndarray:
    """Convert codes [height, width, 3] to one-hot uint8 [height, width, 21]."""
    return np.concatenate([np.eye(n, dtype=np.uint8)[image[..., i]] for i, n in enumerate(CODES)], -1)


def checked_view(env: Env, name: str) -> tuple[int, int, int]:
    """Return the shape of MiniGrid's view, [height, width, 3]; UserError for other environments."""
    space = env.observation_space
    components: dict[str, Any] = dict(space.spaces) if isinstance(space, Dict) else {}
    image = components.get("image")
    fitting = isinstance(image, Box) and len(image.shape) == 3 and image.shape[2] == len(CODES)
    complete = fitting and {"direction", "mission"} <= components.keys()
    extra = extra_of(env_name(env))
    if not complete and extra and COMPILED.match(env_name(env)):  # Stride's compiled task has the same id
        raise UserError(f"{name} needs MiniGrid's own view, not that of the compiled task: {extra.cure}")
    require(complete, f"{name} needs MiniGrid's own view, not {env_name(env)}'s")
    shape: tuple[int, int, int] = components["image"].shape
    return shape


def missions(env: Env, name: str) -> list[str]:
    """Return every mission that the environment may give; UserError where a grammar makes them, or for too many."""
    components: Any = env.observation_space
    space = components["mission"]
    cure = f"give {{id: {name}, mission: false}}, and the policy does not see the mission"
    require("BabyAI" not in type(space).__name__, f"the missions of {env_name(env)} come from a grammar; {cure}")
    options = space.ordered_placeholders or []
    count = math.prod(map(len, options))
    require(count <= MAX_SENTENCES, f"{env_name(env)} has {count:,} sentences; {cure}")
    return [space.mission_func(*placeholders) for placeholders in itertools.product(*options)]
