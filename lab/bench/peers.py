"""The same trainings by others: Stable-Baselines3, SBX, and CleanRL's way written anew; plain worlds, no checker."""

import importlib
import time
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from torch import Tensor, nn
from torch.distributions import Categorical

from stride.config.schedule import Schedule
from stride.config.schema import Config, DQNConfig, PPOConfig, ReplayConfig, SACConfig

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


class Nets(nn.Module):
    """Separate tanh networks, orthogonal weights."""

    def __init__(self, size: int, actions: int, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.actor, self.critic = (self._net(size, out, widths) for out in (actions, 1))

    @staticmethod
    def _net(size: int, out: int, widths: tuple[int, ...]) -> nn.Sequential:
        layers: list[nn.Module] = []
        for inner, width in zip((size, *widths), widths, strict=False):
            layers += [nn.Linear(inner, width), nn.Tanh()]
        return nn.Sequential(*layers, nn.Linear((size, *widths)[-1], out))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.actor(x), self.critic(x).flatten()


class Seeing(nn.Module):
    """One network of three convolutions for both, bytes of images divided by 255."""

    def __init__(self, channels: int, actions: int) -> None:
        super().__init__()
        first, second, third = nn.Conv2d(channels, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3)
        join = (nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU())
        self.network = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third, nn.ReLU(), *join)
        self.actor, self.critic = nn.Linear(512, actions), nn.Linear(512, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.network(x / 255.0)
        return self.actor(features), self.critic(features).flatten()


def cleanrl_seconds(
    env_id: str, n_envs: int, n_steps: int, epochs: int, minibatch: int, widths: tuple[int, ...], iterations: int
) -> float:
    """Of `iterations` rollouts and their updates."""
    envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(env_id, disable_env_checker=True)] * n_envs)
    space, choices = envs.single_observation_space, envs.single_action_space
    assert isinstance(choices, gymnasium.spaces.Discrete) and space.shape is not None
    began = time.perf_counter()
    cleanrl_train(envs, Nets(space.shape[0], int(choices.n), widths), n_steps, epochs, minibatch, iterations)
    envs.close()
    return time.perf_counter() - began


def cleanrl_train(
    envs: gymnasium.vector.VectorEnv, nets: nn.Module, n_steps: int, epochs: int, minibatch: int, iterations: int
) -> None:
    """`nets` answers logits and values.

    An episode that was cut short counts as ended, as in CleanRL: the critic is never asked about final observations,
    which is less work than ours and gives other targets.
    """
    n_envs, shape = envs.num_envs, envs.single_observation_space.shape
    assert shape is not None
    optimizer = torch.optim.Adam(nets.parameters(), 3e-4, eps=1e-5)
    obs = torch.zeros(n_steps, n_envs, *shape)
    actions, log_probs, rewards, dones, values = (torch.zeros(n_steps, n_envs) for _ in range(5))
    seen, done = torch.from_numpy(envs.reset(seed=1)[0]).float(), torch.zeros(n_envs)
    for _ in range(iterations):
        for t in range(n_steps):
            obs[t], dones[t] = seen, done
            with torch.no_grad():
                logits, values[t] = nets(seen)
                policy = Categorical(logits=logits)
                action = policy.sample()
                actions[t], log_probs[t] = action, policy.log_prob(action)
            raw, reward, terminated, truncated, _ = envs.step(action.numpy())
            rewards[t] = torch.from_numpy(reward)
            seen, done = torch.from_numpy(raw).float(), torch.from_numpy(np.logical_or(terminated, truncated)).float()
        with torch.no_grad():
            advantages, ahead = torch.zeros_like(rewards), torch.zeros(n_envs)
            following, live = nets(seen)[1], 1 - done
            for t in reversed(range(n_steps)):
                ahead = rewards[t] + 0.99 * following * live - values[t] + 0.99 * 0.95 * live * ahead
                advantages[t], following, live = ahead, values[t], 1 - dones[t]
        table = [x.reshape(n_steps * n_envs, *x.shape[2:]) for x in (obs, actions, log_probs, advantages, values)]
        for _ in range(epochs):
            for rows in torch.randperm(n_steps * n_envs).split(minibatch):
                _cleanrl_update(nets, optimizer, *(x[rows] for x in table))


def _cleanrl_update(
    nets: nn.Module, optimizer: torch.optim.Optimizer, obs: Tensor, action: Tensor, old: Tensor, advantage: Tensor,
    value: Tensor,
) -> None:  # fmt: skip
    logits, judged = nets(obs)
    policy = Categorical(logits=logits)
    ratio = (policy.log_prob(action) - old).exp()
    weight = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    loss = torch.max(-weight * ratio, -weight * ratio.clamp(0.8, 1.2)).mean()
    loss = loss + 0.5 * 0.5 * (judged - advantage - value).square().mean()
    optimizer.zero_grad()
    (loss - 0.0 * policy.entropy().mean()).backward()
    nn.utils.clip_grad_norm_(nets.parameters(), 0.5)
    optimizer.step()


FRAMES = 4  # of a stack, as the general settings for images have it


class Ready(NamedTuple):
    """A training that was built, and not yet begun."""

    run: Callable[[], object]
    close: Callable[[], object]


def sb3_of_a_game(config: PPOConfig, iterations: int) -> Ready:
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


def cleanrl_of_a_game(config: PPOConfig, iterations: int) -> Ready:
    """A loop over Gymnasium's own worlds, observations kept as floats."""
    envs = gymnasium.vector.SyncVectorEnv([lambda: _gymnasium_world(config.env_id)] * config.n_envs)
    shape, choices = envs.single_observation_space.shape, envs.single_action_space
    assert shape is not None and isinstance(choices, gymnasium.spaces.Discrete)
    nets = Seeing(shape[0], int(choices.n))
    sizes = (config.n_steps, config.n_epochs, config.minibatch_size, iterations)
    return Ready(lambda: cleanrl_train(envs, nets, *sizes), envs.close)


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
