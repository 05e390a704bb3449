"""Worlds whose spaces are of every kind there is, offsets and bounds included; importing this registers them."""

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple


class Exotic(gymnasium.Env):
    """Observes whatever its space allows, and takes only actions that lie in the other."""

    def __init__(self, observation_space, action_space):
        self.observation_space, self.action_space = observation_space, action_space

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        return self.observation_space.sample(), 1.0, False, False, {}


MASKED = Dict(near=Box(-2, 3, (2, 2)), turn=Discrete(3, start=2), action_mask=MultiBinary(4))
NESTED = Tuple((Box(-1, 1, (), np.float64), Dict(lamps=MultiBinary(2), wheels=MultiDiscrete([3, 4], start=[1, 0]))))
ODD = Box(np.array([-1, -np.inf, 0, -3]), np.array([3, np.inf, np.inf, 3]), dtype=np.float64)
WORLDS = {
    "Masked-v0": (MASKED, Discrete(4, start=1)),
    "Levers-v0": (NESTED, MultiDiscrete([3, 2], start=[-1, 5])),
    "Dials-v0": (Box(-5, 5, (3,), np.float64), Box(0, 9, (2,), np.int16)),
    "Far-v0": (Box(-1, 1, (3,)), Discrete(3, start=2**40)),
    "Wide-v0": (Box(-1, 1, (3,)), Box(-(2**40), 2**40, (2,), np.int64)),
    "Odd-v0": (Discrete(5, start=-2), ODD),
}
for name, (seen, done) in WORLDS.items():
    gymnasium.register(name, Exotic, max_episode_steps=20, kwargs={"observation_space": seen, "action_space": done})
