"""Worlds whose step takes a while, for tests of worker processes: importing this registers them."""

import time

import gymnasium
import numpy as np

SECONDS = 0.002


class Slow(gymnasium.Env):
    """Random walks of at most nine steps; pays where it stands."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, seconds=SECONDS):
        self.seconds = seconds

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=2).astype(np.float32)
        self.age = 0
        return self.place, {}

    def step(self, action):
        time.sleep(self.seconds)
        self.age += 1
        self.place = self.place + self.np_random.normal(size=2).astype(np.float32) + action
        return self.place, float(self.place[0]), bool(self.np_random.random() < 0.2), self.age == 9, {}


gymnasium.register("stride-test/Slow-v0", Slow)
