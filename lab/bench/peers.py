"""The same trainings by other libraries, for lab.bench.cases: Stable-Baselines3, SBX, PureJaxRL's and CleanRL's ways.

CleanRL's way is written here anew. Environments are Gymnasium's without its checker.
"""

import importlib
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
from torch import Tensor, nn
from torch.distributions import Categorical

from stride.config.schedule import Schedule
from stride.config.schema import Config, DQNConfig, PPOConfig, ReplayConfig, SACConfig, TD3Config

SB3, SBX, JAX = "stable_baselines3", "sbx", "jax"  # modules
PIP = {SB3: "stable-baselines3", SBX: "sbx-rl", JAX: "jax"}  # module -> package
PACKAGES = (*PIP.values(), "mujoco", "ale-py")  # their versions are printed with the figures
GAMES = "ALE/"
FRAMES = 4  # stacked, as in Stride's general settings for images


class Worlds(Protocol):
    """The environments that a peer steps; here they are only closed."""

    def close(self) -> None: ...


class Peer(Protocol):
    """A peer's algorithm; a protocol, because the libraries may be missing when types are checked."""

    def learn(self, total_timesteps: int) -> object: ...


class Inside(NamedTuple):
    """Parts of a whole call of stride.train, which lasts from its arguments to the run that it returns."""

    fit: float  # seconds of the training alone, comparable to learn() of a peer
    updates: int = 0
    learning: float = 0.0  # seconds of the updates


class Ready(NamedTuple):
    """A training that is ready to be timed: `run` is the timed part."""

    run: Callable[[], Any]
    close: Callable[[], object]
    inside: Callable[[Any], Inside] | None = None  # takes what `run` returned


def installed(module: str) -> bool:
    return find_spec(module) is not None


def missing() -> str:
    """Return a line about peers that are not installed; "" if all are."""
    names = [name for module, name in PIP.items() if not installed(module)]
    return f"left out, not installed: {', '.join(names)} (pip install {' '.join(names)})" if names else ""


class Library:
    """Whole trainings by SB3 or SBX with one object, so that only the first one compiles programs.

    Each begins with counters of env steps, random first steps and exploration at 0. A replay memory stays filled.
    """

    def __init__(self, config: Config, module: str, threads: int = 0) -> None:
        self.config, self.module, self.threads = config, module, threads or config.torch_threads
        self.peer: Peer | None = None  # made in the process that trains

    def __call__(self, iterations: int) -> Ready:
        torch.set_num_threads(self.threads)
        if self.peer is None:
            self.peer = algorithm(self.config, self.module, worlds_of(self.config))
        env_steps = self.config.iteration_steps * iterations
        return Ready(partial(self.peer.learn, env_steps), lambda: None)


class PureJaxRL:
    """Trainings in PureJaxRL's way (peer_purejax.py); JAX is loaded only in the process that trains."""

    def __init__(self, config: PPOConfig) -> None:
        self.config = config
        self.training: Callable[[int], Ready] | None = None

    def __call__(self, iterations: int) -> Ready:
        if self.training is None:
            prepare: Callable[[int], Ready] = importlib.import_module("lab.bench.peer_purejax").Training(self.config)
            self.training = prepare
        return self.training(iterations)


def algorithm(config: Config, module: str, worlds: Any) -> Any:
    """Return SB3's or SBX's algorithm with the config's numbers; with `policy: cnn` it has its own image network."""
    library, widths = importlib.import_module(module), [*config.hidden_dims]
    numbers: dict[str, Any] = {"learning_rate": rate(config.policy_lr), "gamma": config.gamma, "seed": config.seed}
    if module == SB3:
        numbers["device"] = "cpu"
    if isinstance(config, PPOConfig):
        numbers |= {"n_steps": config.n_steps, "batch_size": config.minibatch_size, "n_epochs": config.n_epochs}
        numbers["gae_lambda"] = config.gae_lambda
        if config.policy == "cnn":
            return library.PPO("CnnPolicy", worlds, **numbers)
        return library.PPO("MlpPolicy", worlds, policy_kwargs={"net_arch": {"pi": widths, "vf": widths}}, **numbers)
    assert isinstance(config, ReplayConfig)
    names = ("buffer_size", "batch_size", "learning_starts", "train_freq", "gradient_steps")
    numbers |= {name: getattr(config, name) for name in names}
    numbers["policy_kwargs"] = {"net_arch": widths} | ({"activation_fn": nn.ReLU} if module == SB3 else {})
    if isinstance(config, DQNConfig):
        schedule = config.epsilon if isinstance(config.epsilon, Schedule) else Schedule("linear", 1.0, config.epsilon)
        numbers |= {"target_update_interval": config.target_freq, "exploration_fraction": schedule.end}
        return library.DQN("MlpPolicy", worlds, exploration_final_eps=schedule.end_value, **numbers)
    if isinstance(config, TD3Config):
        noise = importlib.import_module(f"{SB3}.common.noise").NormalActionNoise
        deviations = np.full(worlds.action_space.shape, config.action_noise)
        numbers |= {"policy_delay": config.actor_every, "action_noise": noise(np.zeros_like(deviations), deviations)}
        numbers |= {"target_policy_noise": config.target_noise, "target_noise_clip": config.target_noise_clip}
        return library.TD3("MlpPolicy", worlds, tau=config.tau, **numbers)
    assert isinstance(config, SACConfig)
    return library.SAC("MlpPolicy", worlds, tau=config.tau, ent_coef="auto", **numbers)


def rate(value: float | Schedule) -> float | Callable[[float], float]:
    """Return a linear schedule as SB3 takes it, a function of the fraction that is left; numbers as they are."""
    if not isinstance(value, Schedule):
        return value
    first, last = value.start_value, value.end_value
    return lambda left: last + (first - last) * left


def worlds_of(config: Config) -> Worlds:
    """Return SB3's loop over Python objects; games have its AtariWrapper, where a lost life ends no episode."""
    vec_env = importlib.import_module(f"{SB3}.common.vec_env")
    if not config.env_id.startswith(GAMES):
        plain: Worlds = vec_env.DummyVecEnv([lambda: _gymnasium_world(config.env_id)] * config.n_envs)
        return plain
    wrapper = importlib.import_module(f"{SB3}.common.atari_wrappers").AtariWrapper

    def world() -> gymnasium.Env:
        wrapped: gymnasium.Env = wrapper(_game(config.env_id), terminal_on_life_loss=False)
        return wrapped

    stacked: Worlds = vec_env.VecFrameStack(vec_env.DummyVecEnv([world] * config.n_envs), FRAMES)
    return stacked


def _gymnasium_world(env_id: str) -> gymnasium.Env:
    if not env_id.startswith(GAMES):
        return gymnasium.make(env_id, disable_env_checker=True)
    return FrameStackObservation(AtariPreprocessing(_game(env_id)), FRAMES)


def _game(env_id: str) -> gymnasium.Env:
    """Return a game that shows every frame, for the wrappers around it."""
    gymnasium.register_envs(importlib.import_module("ale_py"))  # a new process has not registered them
    return gymnasium.make(env_id, frameskip=1, disable_env_checker=True)


class Nets(nn.Module):
    """CleanRL's separate actor and critic of dense layers; returns logits [N, actions] and values [N]."""

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


class ImageNets(nn.Module):
    """CleanRL's network for images [N, channels, 84, 84]; returns logits [N, actions] and values [N]."""

    def __init__(self, channels: int, actions: int) -> None:
        super().__init__()
        first, second, third = nn.Conv2d(channels, 32, 8, 4), nn.Conv2d(32, 64, 4, 2), nn.Conv2d(64, 64, 3)
        join = (nn.Flatten(), nn.Linear(64 * 7 * 7, 512), nn.ReLU())
        self.network = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), third, nn.ReLU(), *join)
        self.actor, self.critic = nn.Linear(512, actions), nn.Linear(512, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.network(x / 255.0)
        return self.actor(features), self.critic(features).flatten()


def cleanrl(config: PPOConfig, iterations: int) -> Ready:
    """Prepare a PPO training in CleanRL's way: one loop over Gymnasium's environments, observations as float32."""
    torch.set_num_threads(config.torch_threads)
    envs = gymnasium.vector.SyncVectorEnv([lambda: _gymnasium_world(config.env_id)] * config.n_envs)
    shape, choices = envs.single_observation_space.shape, envs.single_action_space
    assert shape is not None and isinstance(choices, gymnasium.spaces.Discrete)
    size, actions = shape[0], int(choices.n)
    nets = ImageNets(size, actions) if config.policy == "cnn" else Nets(size, actions, config.hidden_dims)
    sizes = (config.n_steps, config.n_epochs, config.minibatch_size, iterations)
    return Ready(lambda: cleanrl_train(envs, nets, *sizes), envs.close)


def cleanrl_train(
    envs: gymnasium.vector.VectorEnv, nets: nn.Module, n_steps: int, epochs: int, minibatch: int, iterations: int
) -> None:
    """Train `nets`, which return logits and values, for so many iterations.

    A truncated episode counts as terminated, as in CleanRL: the critic does not value final observations. That is less
    work than Stride's and gives other targets.
    """
    n_envs, shape = envs.num_envs, envs.single_observation_space.shape
    assert shape is not None
    optimizer = torch.optim.Adam(nets.parameters(), 3e-4, eps=1e-5)
    obs = torch.zeros(n_steps, n_envs, *shape)
    actions, log_probs, rewards, dones, values = (torch.zeros(n_steps, n_envs) for _ in range(5))
    current_obs, done = torch.from_numpy(envs.reset(seed=1)[0]).float(), torch.zeros(n_envs)
    for _ in range(iterations):
        for t in range(n_steps):
            obs[t], dones[t] = current_obs, done
            with torch.no_grad():
                logits, values[t] = nets(current_obs)
                policy = Categorical(logits=logits)
                action = policy.sample()
                actions[t], log_probs[t] = action, policy.log_prob(action)
            raw, reward, terminated, truncated, _ = envs.step(action.numpy())
            rewards[t] = torch.from_numpy(reward)
            current_obs = torch.from_numpy(raw).float()
            done = torch.from_numpy(np.logical_or(terminated, truncated)).float()
        with torch.no_grad():
            advantages, ahead = torch.zeros_like(rewards), torch.zeros(n_envs)
            following, live = nets(current_obs)[1], 1 - done
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
    logits, new_value = nets(obs)
    policy = Categorical(logits=logits)
    ratio = (policy.log_prob(action) - old).exp()
    weight = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    loss = torch.max(-weight * ratio, -weight * ratio.clamp(0.8, 1.2)).mean()
    loss = loss + 0.5 * 0.5 * (new_value - advantage - value).square().mean()
    optimizer.zero_grad()
    (loss - 0.0 * policy.entropy().mean()).backward()
    nn.utils.clip_grad_norm_(nets.parameters(), 0.5)
    optimizer.step()
