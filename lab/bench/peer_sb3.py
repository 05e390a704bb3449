"""The same trainings by Stable-Baselines3 and by SBX: seconds of one, plain environments, no Monitor, no checker."""

import importlib
import time
from collections.abc import Callable
from typing import Any, Protocol

import gymnasium
import torch
from torch import nn

from config.schedule import Schedule
from config.schema import Config, DQNConfig, PPOConfig, ReplayConfig, SACConfig

SB3, SBX = "stable_baselines3", "sbx"  # to import


class Worlds(Protocol):
    """Whatever a peer steps; all that is asked of it here is to end."""

    def close(self) -> None: ...


class Peer(Protocol):
    """An algorithm of theirs; neither library is installed wherever types are checked."""

    def learn(self, total_timesteps: int) -> object: ...


def worlds_of(config: Config) -> Worlds:
    """Their loop over Python objects."""
    vec_env = importlib.import_module("stable_baselines3.common.vec_env")
    envs: Worlds = vec_env.DummyVecEnv(
        [lambda: gymnasium.make(config.env_id, disable_env_checker=True)] * config.n_envs
    )
    return envs


def ppo(config: PPOConfig, iterations: int) -> float:
    """Seconds of so many iterations of SB3."""
    envs = worlds_of(config)
    peer = importlib.import_module(SB3).PPO(
        "MlpPolicy",
        envs,
        n_steps=config.n_steps,
        batch_size=config.minibatch_size,
        n_epochs=config.n_epochs,
        policy_kwargs={"net_arch": {"pi": [*config.hidden_dims], "vf": [*config.hidden_dims]}},
        seed=config.seed,
        device="cpu",
    )
    return _learnt(peer, envs, config.rollout_size * iterations)


def sbx_ppo(config: PPOConfig) -> Callable[[int], float]:
    """The same there: seconds of so many iterations more of one training, whose programs are compiled once."""
    peer = importlib.import_module(SBX).PPO(
        "MlpPolicy",
        worlds_of(config),
        n_steps=config.n_steps,
        batch_size=config.minibatch_size,
        n_epochs=config.n_epochs,
    )

    def seconds(iterations: int) -> float:
        began = time.perf_counter()
        peer.learn(config.rollout_size * iterations, reset_num_timesteps=False)
        return time.perf_counter() - began

    return seconds


def off_policy(config: ReplayConfig, module: str, threads: int) -> float:
    """Seconds of a whole training of DQN or SAC by SB3 or SBX.

    The first by SBX in a process has its programs compiled on the way.
    """
    torch.set_num_threads(threads)
    library, envs = importlib.import_module(module), worlds_of(config)
    lr = config.policy_lr
    assert not isinstance(lr, Schedule)
    common: dict[str, Any] = {
        "learning_rate": lr, "buffer_size": config.buffer_size, "batch_size": config.batch_size,
        "learning_starts": config.learning_starts, "train_freq": config.train_freq, "gamma": config.gamma,
        "gradient_steps": config.gradient_steps, "seed": config.seed,
        "policy_kwargs": {"net_arch": [*config.hidden_dims]},
    }  # fmt: skip
    if module == SB3:
        common["device"] = "cpu"
        common["policy_kwargs"]["activation_fn"] = nn.ReLU
    if isinstance(config, DQNConfig):
        explored = config.epsilon if isinstance(config.epsilon, Schedule) else Schedule("linear", 1.0, config.epsilon)
        common |= {"target_update_interval": config.target_freq, "exploration_fraction": explored.end}
        peer = library.DQN("MlpPolicy", envs, exploration_final_eps=explored.end_value, **common)
    else:
        assert isinstance(config, SACConfig)
        peer = library.SAC("MlpPolicy", envs, tau=config.tau, ent_coef="auto", **common)
    return _learnt(peer, envs, config.max_timesteps)


def _learnt(peer: Peer, envs: Worlds, env_steps: int) -> float:
    """Seconds of a training from its first env step on; its worlds are closed."""
    began = time.perf_counter()
    peer.learn(env_steps)
    elapsed = time.perf_counter() - began
    envs.close()
    return elapsed
