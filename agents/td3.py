"""TD3: losses as pure functions, then the agent (Fujimoto et al. 2018). With keys of its config it is DDPG."""

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor
from torch.optim import Optimizer

from stride.agents.base import Agent, build_optimizer
from stride.agents.experience.nouns import Transitions
from stride.agents.networks.squashed import DeterministicPolicy
from stride.agents.off_policy import (
    batches,
    build_judges,
    collect_and_learn,
    layers_of,
    learn_statistics,
    move_towards,
    prioritise,
    renew_priorities,
    replay_size,
    updates_due,
)
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


class TD3(Agent):
    """Critics that learn from the least of their targets; actor and targets that move at every few updates alone."""

    config: TD3Config
    policy: DeterministicPolicy

    def __init__(self, config: TD3Config, envs: VecEnv, rank: int = 0) -> None:
        policy = DeterministicPolicy(
            envs.observation_space, envs.action_space, *layers_of(config, envs), config.noise_correlation, config.seed
        ).to(envs.device)
        super().__init__(config, envs, policy, *replay_size(config, envs), rank=rank, storage=config.replay_storage)
        prioritise(self, config)
        policy.noise_std = self.live.action_noise
        self.critics, self.target, self.value_scale = build_judges(config, envs, policy.draws, config.n_critics)
        self.target_policy = deepcopy(policy).requires_grad_(False)
        self.ratio = updates_due(self, config)

    def configure_optimizers(self) -> Optimizer:
        """One for all: it leaves the actor as it is in an update that gave it no gradient."""
        parameters = [*self.policy.parameters(), *self.critics.parameters()]
        return build_optimizer(self.config, parameters, self.live.policy_lr)

    def iteration(self) -> None:
        self.policy.at_random = self.progress["env_steps"] < self.config.learning_starts
        self.policy.noise_std = self.live.action_noise
        collect_and_learn(self, self.config.train_freq, self.ratio, self.config.n_step + 1)

    def learn(self, updates: int) -> None:
        learn_statistics(self, self.config, self.policy, self.critics, self.target, self.target_policy)
        if not updates:
            return
        shape = (updates, self.config.batch_size, self.policy.draws)
        noise = normal(uniforms(self.key(EXPLORE, self.progress["iterations"]), shape, self.device))
        pairs = zip(batches(self, self.config, updates), noise, strict=True)
        self.metrics.add_all([self.update(batch, z) for batch, z in pairs])

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
