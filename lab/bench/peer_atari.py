"""Games by Stable-Baselines3 and CleanRL's way: their own wrappers, loops and networks, made ready to be timed."""

import importlib
from collections.abc import Callable
from typing import NamedTuple

import gymnasium
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

from config.schema import PPOConfig
from lab.bench import peer_cleanrl
from lab.bench.peer_sb3 import SB3, Peer, Worlds

FRAMES = 4  # of a stack, as the general settings for images have it


class Ready(NamedTuple):
    """A training that was built, and not yet begun."""

    run: Callable[[], object]
    close: Callable[[], object]


def sb3(config: PPOConfig, iterations: int) -> Ready:
    """Its PPO with CnnPolicy, whose network is that of `policy: cnn`: 512 features for actor and critic."""
    worlds = _sb3_worlds(config)
    peer: Peer = importlib.import_module(SB3).PPO(
        "CnnPolicy",
        worlds,
        n_steps=config.n_steps,
        batch_size=config.minibatch_size,
        n_epochs=config.n_epochs,
        seed=config.seed,
        device="cpu",
    )
    return Ready(lambda: peer.learn(config.rollout_size * iterations), worlds.close)


def cleanrl(config: PPOConfig, iterations: int) -> Ready:
    """A loop over Gymnasium's own worlds, observations kept as floats."""
    envs = gymnasium.vector.SyncVectorEnv([lambda: _gymnasium_world(config.env_id)] * config.n_envs)
    shape, choices = envs.single_observation_space.shape, envs.single_action_space
    assert shape is not None and isinstance(choices, gymnasium.spaces.Discrete)
    nets = peer_cleanrl.Seeing(shape[0], int(choices.n))
    sizes = (config.n_steps, config.n_epochs, config.minibatch_size, iterations)
    return Ready(lambda: peer_cleanrl.train(envs, nets, *sizes), envs.close)


def _is_game(env_id: str) -> bool:
    return env_id.startswith("ALE/")


def _gymnasium_world(env_id: str) -> gymnasium.Env:
    if not _is_game(env_id):
        return gymnasium.make(env_id, disable_env_checker=True)
    return FrameStackObservation(AtariPreprocessing(_game(env_id)), FRAMES)


def _game(env_id: str) -> gymnasium.Env:
    """Every frame of it, for a peer's own wrappers."""
    gymnasium.register_envs(importlib.import_module("ale_py"))  # in a process of its own nobody has done that
    return gymnasium.make(env_id, frameskip=1, disable_env_checker=True)


def _sb3_worlds(config: PPOConfig) -> Worlds:
    """Its AtariWrapper over a loop of Python objects; a lost life ends nothing, as with us."""
    vec_env = importlib.import_module(f"{SB3}.common.vec_env")
    if not _is_game(config.env_id):
        plain: Worlds = vec_env.DummyVecEnv([lambda: _gymnasium_world(config.env_id)] * config.n_envs)
        return plain
    wrapper = importlib.import_module(f"{SB3}.common.atari_wrappers").AtariWrapper

    def world() -> gymnasium.Env:
        wrapped: gymnasium.Env = wrapper(_game(config.env_id), terminal_on_life_loss=False)
        return wrapped

    stacked: Worlds = vec_env.VecFrameStack(vec_env.DummyVecEnv([world] * config.n_envs), FRAMES)
    return stacked
