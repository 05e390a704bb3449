"""Gymnasium environments whose every number is known: some count their steps, one takes pictures."""

import gymnasium as gym
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

ANY = Box(-np.inf, np.inf, (1,), np.float32)
KINDS = {
    "box": Box(-np.inf, np.inf, (2,), np.float32),
    "discrete": Discrete(100, start=1),
    "dict": Dict({"count": Discrete(100), "deep": Dict({"start": ANY})}),
    "masked": Dict({"count": Discrete(100), "action_mask": Box(0, 1, (3,), np.int8)}),
    "multi_discrete": MultiDiscrete([100, 3]),
}
ACTIONS = {
    "discrete": Discrete(3, start=1),
    "from 0": Discrete(3),
    "multi": MultiDiscrete([2, 3]),
    "box": Box(np.array([0, -4], np.float32), np.array([10, 4], np.float32)),
}


class Counting(gym.Env):
    """The observation is (count, random start); ends after `length` steps in the way named by `end`."""

    def __init__(self, length=3, end="terminated", kind="box", fault="", action="discrete"):
        self.length, self.end, self.kind, self.fault = length, end, kind, fault
        self.observation_space, self.action_space = KINDS[kind], ACTIONS[action]
        self.resets: list[int | None] = []
        self.actions: list = []
        self.buffer = np.zeros(2, np.float32)

    def mask(self):
        some = self.fault != "mask" or self.count != 2
        return np.array([some and self.count == 0, some and self.count > 0, some and self.count > 0], np.int8)

    def observe(self):
        start = np.float32(self.start)
        if self.kind == "box":
            self.buffer[:] = self.count, start  # one buffer for ever: the adapter has to copy
            return self.buffer[: 1 if self.fault == "shape" and self.count == 2 else 2]
        return {
            "discrete": self.count + 1,
            "dict": {"count": self.count, "deep": {"start": np.array([start])}},
            "masked": {"count": self.count, "action_mask": self.mask()},
            "multi_discrete": np.array([self.count, 2]),
        }[self.kind]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets.append(seed)
        self.count, self.start = 0, self.np_random.random()
        return self.observe(), {"action_mask": self.mask()}

    def step(self, action):
        self.actions.append(action)
        self.count += 1
        if self.fault == "raise" and self.count == 2:
            raise ZeroDivisionError("the sky fell")
        over = self.count >= self.length
        terminated, truncated = over and self.end in ("terminated", "both"), over and self.end in ("truncated", "both")
        return self.observe(), 0.1 * self.count, terminated, truncated, {"action_mask": self.mask()}


class Forgetful(Counting):
    """Draws from a generator of its own: replaying `np_random` cannot restore it."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.start = np.random.default_rng().random()
        return self.observe(), {}


class Camera(gym.Env):
    """Random pictures of a shape, alone or beside a number, which are kept; pays half the action."""

    action_space = Discrete(2)

    def __init__(self, shape=(6, 8, 3), named=False, length=0):
        self.shape, self.named, self.length, self.shown = tuple(shape), named, length, []
        picture = Box(0, 255, self.shape, np.uint8)
        self.observation_space = Dict({"eye": picture, "level": Box(0, 1, (1,), np.float32)}) if named else picture
        self.buffer = np.zeros(self.shape, np.uint8)

    def look(self):
        self.buffer[:] = self.np_random.integers(0, 256, self.shape)  # one buffer for ever
        self.shown.append(self.buffer.copy())
        return {"eye": self.buffer, "level": self.np_random.random(1, np.float32)} if self.named else self.buffer

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return self.look(), {}

    def step(self, action):
        self.count += 1
        return self.look(), 0.5 * float(action), self.count == self.length, False, {}


for kind in (Counting, Forgetful, Camera):
    gym.register(f"stride-test/{kind.__name__}-v0", kind)
