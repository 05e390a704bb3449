"""Scripted worlds for tests: rewards and flags come from tables, every instant is seen as a number of its own.

Also how an agent is driven without a Trainer.
"""

import gymnasium as gym
import numpy as np
import torch
from driven import advance, with_optimizer
from torch import Tensor

from stride.agents.base import Agent
from stride.envs_fast.vec_env import Step
from stride.envs_gym.spaces import step_buffers

NAN = float("nan")


class Scripted:
    """Worlds that play tables [T, N] of rewards and flags, over and over, whatever the actions are.

    A world counts its instants: one up per step, two up over an end, because the final observation takes one too.
    So (world, instant) names every observation, and final observations are never seen in `obs`. Whatever the contract
    calls meaningless is NaN.
    """

    device = torch.device("cpu")

    def __init__(self, reward, terminated, truncated, time_limit=None, action_space=None, named=False):
        self.tables = torch.as_tensor(reward).float(), torch.as_tensor(terminated), torch.as_tensor(truncated)
        assert not (self.tables[1] & self.tables[2]).any(), "the contract: never both"
        self.num_envs, self.time_limit, self.named = self.tables[0].shape[1], time_limit, named
        seen = gym.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        kinds = {"at": seen, "kind": gym.spaces.Discrete(3), "pair": gym.spaces.MultiDiscrete([2, 3])}
        self.observation_space = gym.spaces.Dict(kinds) if named else seen
        self.action_space = action_space or gym.spaces.Discrete(3)
        self.out = step_buffers(self.observation_space, self.num_envs)
        self.reset(0)

    def _view(self, instant: Tensor):
        at = torch.stack((torch.arange(self.num_envs).float(), instant), 1)
        if not self.named:
            return at
        whole = instant.nan_to_num(0).long()
        return {"at": at, "kind": whole % 3, "pair": torch.stack((whole % 2, whole % 3), 1)}

    def _show(self, target, instant: Tensor) -> None:
        view = self._view(instant)
        for name in view if self.named else [None]:
            (target if name is None else target[name]).copy_(view if name is None else view[name])

    def reset(self, seed: int):
        self.now = 0
        self.instant, self.paid, self.age = torch.zeros(3, self.num_envs)
        self._show(self.out.obs, self.instant)
        return self.out.obs

    def step(self, action: Tensor) -> Step:
        assert len(action) == self.num_envs
        out = self.out
        reward, terminated, truncated = (table[self.now % len(table)] for table in self.tables)
        ended = terminated | truncated
        out.reward.copy_(reward), out.terminated.copy_(terminated), out.truncated.copy_(truncated)
        self.now += 1
        self.paid, self.age = self.paid + reward, self.age + 1
        self._show(out.final_obs, torch.where(ended, self.instant + 1, NAN))
        out.episode_return.copy_(torch.where(ended, self.paid, NAN))
        out.episode_length.copy_(torch.where(ended, self.age, NAN))
        self.instant = self.instant + 1 + ended
        self.paid, self.age = self.paid.masked_fill(ended, 0), self.age.masked_fill(ended, 0)
        self._show(out.obs, self.instant)
        return out

    def state_dict(self) -> dict:
        return {"now": self.now, **{name: getattr(self, name).clone() for name in ("instant", "paid", "age")}}

    def load_state_dict(self, state: dict) -> None:
        self.now = state["now"]
        self.instant, self.paid, self.age = (state[name].clone() for name in ("instant", "paid", "age"))

    def close(self) -> None:
        pass


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_tables(steps: int, n: int, seed: int, p_terminated: float = 0.1, p_truncated: float = 0.15):
    """Rewards in [0, 1) and flags at random, never both in one row."""
    u, reward = torch.rand(2, steps, n, generator=torch.Generator().manual_seed(seed))
    return reward, u < p_terminated, u > 1 - p_truncated


def limited_tables(steps: int, n: int, limit: int | None, seed: int, p_terminated: float = 0.1):
    """Episodes that end by chance, else by the time limit; without a limit, cut by chance as well."""
    if limit is None:
        return random_tables(steps, n, seed, p_terminated, 0.3)
    u, reward = torch.rand(2, steps, n, generator=torch.Generator().manual_seed(seed))
    terminated, truncated, age = u < p_terminated, torch.zeros(steps, n, dtype=torch.bool), torch.zeros(n)
    for t in range(steps):
        age += 1
        truncated[t] = (age >= limit) & ~terminated[t]
        age[terminated[t] | truncated[t]] = 0
    return reward, terminated, truncated


def driven(agent: Agent, iterations: int = 0) -> Agent:
    """The agent with its optimizer at hand, as a Trainer would give it, after some iterations."""
    return advance(with_optimizer(agent), iterations)


def weights(module: torch.nn.Module) -> Tensor:
    """All parameters as one vector, a copy."""
    return torch.cat([p.detach().flatten() for p in module.parameters()]).clone()
