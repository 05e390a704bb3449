"""Policies for vector observations: an actor, a critic where one is wanted, separate or on a shared trunk."""

from typing import NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn

from agents.experience.collector import Policy
from agents.experience.nouns import Act, Explanation, Rollout, Tree, leaves
from agents.networks.encoders import FlatEncoder
from agents.networks.heads import head_for
from agents.returns import next_values
from config.schema import RolloutConfig
from envs_fast.vec_env import VecEnv
from utils.user_error import UserError, nearest

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


class Judgement(NamedTuple):
    """An action taken before, in the light of the present weights."""

    log_prob: Tensor
    entropy: Tensor
    value: Tensor


class ActorCritic(Policy):
    """pi(a|s) and V(s) over flat features. Without a critic V is 0 everywhere and costs nothing."""

    membership: Tensor
    parts: list[str]

    def __init__(
        self,
        observation_space: gym.Space,
        action_space: gym.Space,
        hidden_dims: tuple[int, ...] = (64, 64),
        activation: str = "tanh",
        share_trunk: bool = False,
        critic: bool = True,
        normalize_obs: bool | str = False,
        seed: int = 0,
        log_std_init: float = 0.0,
    ) -> None:
        super().__init__()
        self.encoder = FlatEncoder(observation_space, normalize_obs)
        width = hidden_dims[-1] if hidden_dims else self.encoder.size

        def torso() -> nn.Module:
            return mlp(self.encoder.size, hidden_dims, ACTIVATIONS[activation])

        self.trunk = torso() if share_trunk else nn.Identity()
        self.head = head_for(action_space, width, log_std_init)
        self.actor = nn.Sequential(nn.Identity() if share_trunk else torso(), self.head)
        self.critic = nn.Sequential(nn.Identity() if share_trunk else torso(), nn.Linear(width, 1)) if critic else None
        self.draws = self.head.draws
        self.register_buffer("membership", self._membership(), persistent=False)
        initialize(self, torch.Generator().manual_seed(seed))

    def initial(self, num_envs: int) -> Tree:
        return ()

    def act(self, obs: Tree, carry: Tree, is_first: Tensor, noise: Tensor, greedy: bool) -> Act:
        """Remembers nothing beside the action: values and log-probabilities of a rollout are cheaper at once."""
        parameters = self.actor(self.trunk(self.encoder(obs)))
        return Act(self.head.mode(parameters) if greedy else self.head.sample(parameters, noise))

    def value(self, obs: Tree, carry: Tree, is_first: Tensor) -> Tensor:
        return self._value(self.trunk(self.encoder(obs)))

    def evaluate(self, obs: Tree, carry: Tree, is_first: Tensor, action: Tensor) -> Judgement:
        features = self.trunk(self.encoder(obs))
        parameters = self.actor(features)
        return Judgement(self.head.log_prob(parameters, action), self.head.entropy(parameters), self._value(features))

    def explain(self, obs: Tree, carry: Tree, is_first: Tensor) -> Explanation:
        seen = self.encoder(obs)
        features = self.trunk(seen)
        parameters = self.actor(features)
        value = None if self.critic is None else self._value(features)
        return Explanation(seen, self.head.tell(parameters), self.head.entropy(parameters), value)

    def next_values(self, rollout: Rollout, v_t: Tensor, is_first: Tensor) -> Tensor:
        """V of what each action truly led to, [T, N]; `v_t` [T, N] is of the rows, `is_first` [N] of rollout.next."""
        slots = leaves(rollout.final.obs)[0].shape[:2]
        v_next = self.value(*rollout.next, is_first)
        v_final = self.value(*rollout.final, is_first.new_zeros(slots))
        return next_values(v_t, v_next, v_final, rollout.row.truncated, rollout.row.slot)

    def gradient_norms(self, norms: Tensor) -> dict[str, Tensor]:
        """Norms of actor, critic, trunk and all, from those of the single parameters in the order of `parameters()`."""
        squares = self.membership @ norms.square()
        return dict(zip((f"train/grad_norm/{part}" for part in (*self.parts, "total")), squares.sqrt(), strict=True))

    def _membership(self) -> Tensor:
        """[parts + 1, parameters]: 1 where a parameter belongs to a part; the last row is all of them."""
        modules = {"actor": self.actor, "critic": self.critic, "trunk": self.trunk}
        owned = {name: {id(p) for p in module.parameters()} for name, module in modules.items() if module is not None}
        self.parts = [name for name, ids in owned.items() if ids]
        rows = [[float(id(p) in owned[part]) for p in self.parameters()] for part in self.parts]
        return torch.tensor([*rows, [1.0] * len(rows[0])])

    def _value(self, features: Tensor) -> Tensor:
        return features.new_zeros(features.shape[:-1]) if self.critic is None else self.critic(features).squeeze(-1)


POLICIES = {"mlp": ("log_std_init",)}  # name -> its policy_kwargs


def build_policy(config: RolloutConfig, envs: VecEnv, critic: bool) -> ActorCritic:
    """The network a config names, for these worlds."""
    if config.policy not in POLICIES:
        known = ", ".join(POLICIES)
        raise UserError(f"unknown policy {config.policy!r}{nearest(config.policy, POLICIES)} (known: {known})")
    accepted = POLICIES[config.policy]
    for name in config.policy_kwargs:
        if name not in accepted:
            hint = f"{nearest(name, accepted)} (it has {', '.join(accepted)})"
            raise UserError(f"policy_kwargs: {config.policy} has no {name!r}{hint}")
    return ActorCritic(
        envs.observation_space,
        envs.action_space,
        config.hidden_dims,
        config.activation,
        config.share_trunk,
        critic,
        config.normalize_obs,
        config.seed,
        **config.policy_kwargs,
    )


def mlp(size: int, hidden_dims: tuple[int, ...], activation: type[nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in zip((size, *hidden_dims), hidden_dims, strict=False):
        layers += [nn.Linear(fan_in, fan_out), activation()]
    return nn.Sequential(*layers)


def initialize(policy: ActorCritic, generator: torch.Generator) -> None:
    """Orthogonal weights, zero biases: sqrt(2) inside, 0.01 for the action layer, 1 for the value."""
    heads = {id(module) for module in policy.head.modules()}
    for module in policy.modules():
        if isinstance(module, nn.Linear):
            gain = 0.01 if id(module) in heads else 2**0.5
            gain = 1.0 if policy.critic is not None and module is policy.critic[1] else gain
            nn.init.orthogonal_(module.weight, gain, generator)
            nn.init.zeros_(module.bias)
