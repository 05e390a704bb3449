"""PPO the way CleanRL's single files do it, written anew for timing: Gymnasium's SyncVectorEnv, torch, no frills."""

import time

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical


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


def seconds(
    env_id: str, n_envs: int, n_steps: int, epochs: int, minibatch: int, widths: tuple[int, ...], iterations: int
) -> float:
    """Of `iterations` rollouts and their updates."""
    envs = gymnasium.vector.SyncVectorEnv([lambda: gymnasium.make(env_id, disable_env_checker=True)] * n_envs)
    space, choices = envs.single_observation_space, envs.single_action_space
    assert isinstance(choices, gymnasium.spaces.Discrete) and space.shape is not None
    began = time.perf_counter()
    train(envs, Nets(space.shape[0], int(choices.n), widths), n_steps, epochs, minibatch, iterations)
    envs.close()
    return time.perf_counter() - began


def train(
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
                _update(nets, optimizer, *(x[rows] for x in table))


def _update(
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
