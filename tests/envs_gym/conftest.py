"""A Gymnasium environment whose every number is known: it counts its steps and ends as it was told."""

import gymnasium as gym
import numpy as np

START = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
KINDS = {
    "box": gym.spaces.Box(-np.inf, np.inf, (2,), np.float32),
    "discrete": gym.spaces.Discrete(100, start=1),
    "tuple": gym.spaces.Tuple((gym.spaces.Discrete(100), gym.spaces.Box(-np.inf, np.inf, (1,), np.float64))),
    "dict": gym.spaces.Dict({"count": gym.spaces.Discrete(100), "deep": gym.spaces.Dict({"start": START})}),
    "multi_discrete": gym.spaces.MultiDiscrete([100, 3]),
}


class Counting(gym.Env):
    """The observation is (count, random start); ends after `length` steps in the way named by `end`."""

    def __init__(self, length=3, end="terminated", kind="box", fault="", action="discrete"):
        self.length, self.end, self.kind, self.fault = length, end, kind, fault
        self.observation_space = KINDS[kind]
        box = gym.spaces.Box(np.array([0, -4], np.float32), np.array([10, 4], np.float32))
        self.action_space = {"discrete": gym.spaces.Discrete(3, start=1), "box": box}[action]
        self.resets: list[int | None] = []
        self.actions: list = []
        self.buffer = np.zeros(2, np.float32)

    def observe(self):
        start = np.float32(self.start)
        if self.kind == "box":
            self.buffer[:] = self.count, start  # one buffer for ever: the adapter has to copy
            return self.buffer[: 1 if self.fault == "shape" and self.count == 2 else 2]
        return {
            "discrete": self.count + 1,
            "tuple": (self.count, np.array([start], np.float64)),
            "dict": {"count": self.count, "deep": {"start": np.array([start])}},
            "multi_discrete": np.array([self.count, 2]),
        }[self.kind]

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets.append(seed)
        self.count, self.start = 0, self.np_random.random()
        return self.observe(), {}

    def step(self, action):
        self.actions.append(action)
        self.count += 1
        if self.fault == "raise" and self.count == 2:
            raise ZeroDivisionError("the sky fell")
        over = self.count >= self.length
        terminated, truncated = over and self.end in ("terminated", "both"), over and self.end in ("truncated", "both")
        return self.observe(), 0.1 * self.count, terminated, truncated, {}


class Forgetful(Counting):
    """Draws from a generator of its own: replaying `np_random` cannot restore it."""

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.start = np.random.default_rng().random()
        return self.observe(), {}


gym.register("stride-test/Counting-v0", Counting)
gym.register("stride-test/Forgetful-v0", Forgetful)
