"""TD3: losses as pure functions, then the agent (Fujimoto et al. 2018). With keys of its config it is DDPG."""

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor
from torch.optim import Optimizer

from stride.agents.base import build_optimizer
from stride.agents.experience.nouns import Transitions
from stride.agents.networks.squashed import DeterministicPolicy
from stride.agents.off_policy import BoundedAgent, learn_statistics, move_towards, renew_priorities
from stride.agents.returns import td_target
from stride.agents.sac import critic_loss
from stride.config.schema import TD3Config
from stride.envs_fast.vec_env import VecEnv
from stride.utils.counter_rng import EXPLORE, normal, uniforms


def smoothed(action: Tensor, z: Tensor, deviation: float, limit: float) -> Tensor:
    """An action with clipped noise on it, within +-1: a peak of the critics narrower than that is not believed."""
    return (action + (deviation * z).clamp(-limit, limit)).clamp(-1, 1)


def actor_loss(q: Tensor) -> Tensor:
    """-E[Q(s, pi(s))], by the first critic alone: [1, B]."""
    return -q.mean()


class TD3(BoundedAgent):
    """Critics that learn from the least of their targets; actor and targets that move at every few updates alone."""

    config: TD3Config
    policy: DeterministicPolicy
    actor = DeterministicPolicy

    def __init__(self, config: TD3Config, envs: VecEnv, rank: int = 0) -> None:
        super().__init__(config, envs, rank)
        self.policy.noise_std = self.live.action_noise
        self.target_policy = deepcopy(self.policy).requires_grad_(False)

    @property
    def critic_sizes(self) -> tuple[int, int]:
        return self.config.n_critics, 1

    def configure_optimizers(self) -> Optimizer:
        """One for all: it leaves the actor as it is in an update that gave it no gradient."""
        parameters = [*self.policy.parameters(), *self.critics.parameters()]
        return build_optimizer(self.config, parameters, self.live.policy_lr)

    def iteration(self) -> None:
        self.policy.noise_std = self.live.action_noise
        super().iteration()

    def renew_statistics(self) -> None:
        super().renew_statistics()
        learn_statistics(self, self.config, self.target_policy)

    def update_noise(self, updates: int) -> Tensor:
        """Standard normal numbers [updates, B, A]."""
        shape = (updates, self.config.batch_size, self.policy.draws)
        return normal(uniforms(self.key(EXPLORE, self.progress["iterations"]), shape, self.device))

    def update(self, batch: Transitions, z: Tensor) -> Mapping[str, Tensor]:
        """`z` [B, A]: standard normal noise on the target actor's actions."""
        live = self.live
        with torch.no_grad():
            action = smoothed(self.target_policy(batch.next_obs), z, live.target_noise, live.target_noise_clip)
            target = td_target(batch.reward, batch.discount, self.target(batch.next_obs, action).amin(0))
        moments, relative = self.value_scale.learn(target), self.value_scale.relative
        q = self.critics(batch.obs, batch.action)
        loss = q_loss = relative(critic_loss(q, target, batch.weight), 2)
        moves_actor = (self.progress["updates"] + 1) % self.config.actor_every == 0
        if moves_actor:
            # frozen: one backward pass serves both losses, and the actor's must not move the critics
            value = self.critics(batch.obs, self.policy(batch.obs), frozen=True, first=1)
            policy_loss = relative(actor_loss(value))
            loss = q_loss + policy_loss
            self.metrics.add({"train/loss/policy": policy_loss})
        norms = self.descend(self.optimizer, loss, live.max_grad_norm)
        if moves_actor:
            move_towards(self.target, self.critics, live.tau)
            move_towards(self.target_policy, self.policy, live.tau)
        renew_priorities(self, batch, q, target)
        return {
            "train/loss/q": q_loss,
            "train/value/q": q.mean(),
            "train/value/target": target.mean(),
            "train/grad_norm/total": norms.norm(),
            **moments,
        }
