"""A Gymnasium environment for tests of worker processes, which import this: the action says what goes wrong."""

import os
import time

import gymnasium as gym
import numpy as np

FINE, RAISE, HANG, EXIT, SLOW = range(5)


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


gym.register("stride-test/Trouble-v0", Trouble)
