"""An environment that cannot be drawn, for tests: importing this registers Plain-v0."""

import gymnasium
import numpy as np


class Plain(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), float(action), False, False, {}


gymnasium.register("Plain-v0", Plain, max_episode_steps=7)
