"""A small simulation that answers tensors: a point that is pushed about a square and wants to be in the middle.

Everything is arithmetic on [N] tensors of any device, `meta` included. World i of a seed is the same whatever N is.
"""

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv

BOX = gymnasium.spaces.Box


class Square(VectorEnv):
    """Observes place and target, is pushed by [-2, 2] in each of two directions; ends beyond the edge, or by time."""

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}  # noqa: RUF012
    tells_final = True

    def __init__(self, num_envs, device="cpu", max_episode_steps=8, edge=1.5):
        self.num_envs, self.device, self.limit, self.edge = num_envs, torch.device(device), max_episode_steps, edge
        self.single_observation_space = BOX(-np.inf, np.inf, (2,), np.float32)
        self.single_action_space = BOX(-2, 2, (2,), np.float32)
        self.index = torch.arange(num_envs, device=self.device)
        self.place = torch.zeros(num_envs, 2, device=self.device)
        self.age = torch.zeros(num_envs, dtype=torch.int64, device=self.device)
        self.episode = torch.zeros_like(self.age)
        self.pushed, self.closed = [], False

    def starts(self):
        """Where the present episode of each world begins: a hash of seed, world and episode."""
        mixed = (self.seed % 9973) * 0.731 + self.index * 0.377 + self.episode * 0.119
        return torch.stack((mixed.sin(), mixed.cos()), 1)

    def reset(self, *, seed=None, options=None):
        self.seed = seed
        self.age.zero_()
        self.episode.zero_()
        self.place = self.starts()
        return self.observe(), {}

    def observe(self):
        return self.place

    def step(self, actions):
        self.pushed.append(actions)
        moved = self.place + 0.2 * actions
        self.age = self.age + 1
        terminated = moved.abs().amax(1) > self.edge
        truncated = self.age >= self.limit
        ended = terminated | truncated
        self.episode = self.episode + ended
        self.age = self.age * ~ended
        self.place = torch.where(ended[:, None], self.starts(), moved)
        info = {"final_obs": moved} if self.tells_final else {}
        return self.observe(), -moved.square().sum(1), terminated, truncated, info

    def close(self, **kwargs):
        self.closed = True


class Kept(Square):
    """The same, and it can be put back."""

    def state_dict(self):
        names = ("place", "age", "episode")
        return {"seed": self.seed, **{name: getattr(self, name).to("cpu", copy=True) for name in names}}

    def load_state_dict(self, state):
        self.seed = state["seed"]
        for name in ("place", "age", "episode"):
            setattr(self, name, state[name].to(self.device))


class InPlace(Square):
    """Writes what is seen into one buffer for ever, and does not tell where an episode ended, as Isaac Lab does."""

    tells_final = False

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.buffer = torch.zeros(self.num_envs, 2, device=self.device)

    def observe(self):
        return self.buffer.copy_(self.place)


for kind in (Square, Kept, InPlace):
    gymnasium.register(f"tensor-test/{kind.__name__}-v0", None, vector_entry_point=kind, reward_threshold=-1.0,
                       max_episode_steps=8)  # fmt: skip
