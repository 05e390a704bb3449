"""Environments for tests of worker processes, which import this: one goes wrong as the action says, one is slow."""

import os
import time

import gymnasium as gym
import numpy as np

FINE, RAISE, HANG, EXIT, SLOW = range(5)
SECONDS = 0.002


class Trouble(gym.Env):
    """Observes how many steps it has made; ends after five."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float32)
    action_space = gym.spaces.Discrete(5)

    def __init__(self, broken=False):
        if broken and os.getpid() != int(os.environ.get("STRIDE_TEST_PARENT", "0")):
            raise ZeroDivisionError("no worker can build me")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        if action == RAISE:
            raise ZeroDivisionError("the sky fell")
        if action == EXIT:
            os._exit(3)
        if action in (HANG, SLOW):
            time.sleep(1000 if action == HANG else 0.25)
        self.count += 1
        return np.full(1, self.count, np.float32), 1.0, self.count == 5, False, {}


class Slow(gym.Env):
    """Random walks of at most nine steps; pays where it stands."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

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


gym.register("stride-test/Trouble-v0", Trouble)
gym.register("stride-test/Slow-v0", Slow)
