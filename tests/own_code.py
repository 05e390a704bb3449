"""What a user might have written: copied as `mypkg` onto the path by tests/test_plugins.py."""

from dataclasses import dataclass

import gymnasium
import lightning as L
import numpy as np

from stride.agents.networks.actor_critic import ActorCritic, Plan
from stride.agents.ppo import PPO
from stride.config.schema import PPOConfig


class Net(ActorCritic):
    def __init__(self, plan: Plan, width: int = 16) -> None:
        super().__init__(plan._replace(hidden_dims=(width,)))


class Halved(gymnasium.ObservationWrapper):
    def __init__(self, env: gymnasium.Env, factor: float = 0.5) -> None:
        super().__init__(env)
        self.factor = factor
        low, high = env.observation_space.low * factor, env.observation_space.high * factor
        self.observation_space = gymnasium.spaces.Box(low, high, dtype=np.float32)

    def observation(self, observation: np.ndarray) -> np.ndarray:
        return (observation * self.factor).astype(np.float32)


class Slower(L.Callback):
    """Halves the clip range each `every` iterations; how often it did so is its state."""

    def __init__(self, every: int = 1) -> None:
        self.every, self.times = every, 0

    def on_train_batch_start(self, trainer, agent, batch, batch_idx) -> None:
        if agent.progress["iterations"] % self.every == 0:
            self.times += 1
        agent.live.clip_range = 0.2 * 0.5**self.times

    def state_dict(self) -> dict:
        return {"times": self.times}

    def load_state_dict(self, state: dict) -> None:
        self.times = state["times"]


class Hoarder(L.Callback):
    def state_dict(self) -> dict:
        return {"seen": {1, 2}}


@dataclass(frozen=True)
class TimidConfig(PPOConfig):
    """PPO that learns less."""

    timidity: float = 0.5
    """Share of the clip range that is used."""


class Timid(PPO):
    config: TimidConfig

    def __init__(self, config: TimidConfig, envs, rank: int = 0) -> None:
        super().__init__(config, envs, rank)
        self.live.clip_range = config.clip_range * config.timidity

    def learn(self, rollout) -> None:
        super().learn(rollout)
        self.metrics.set({"train/mine/timidity": self.config.timidity})


class Chatty(PPO):
    config: PPOConfig

    def learn(self, rollout) -> None:
        self.metrics.set({"train/loss/polcy": 1.0})


class Bare(PPOConfig):
    more: int = 3


class Undecorated(PPO):
    config: Bare


NUMBER = 3
