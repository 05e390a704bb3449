"""Twin delayed DDPG, TD3 (Fujimoto et al. 2018): losses as pure functions, then the agent.

With one critic, no target noise and `actor_every=1` it is DDPG (Lillicrap et al. 2016). B samples, A numbers of an
action.
"""

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor

from stride.agents.experience.nouns import Transitions
from stride.agents.networks.residual import batch_moments, batch_norms
from stride.agents.networks.squashed import DeterministicPolicy
from stride.agents.off_policy import BoundedAgent, learn_statistics, move_towards
from stride.agents.returns import td_target
from stride.agents.sac import critic_loss
from stride.config.schema import TD3Config
from stride.envs_fast.vec_env import VecEnv
from stride.utils.counter_rng import EXPLORE, normal, uniforms


def smoothed(action: Tensor, z: Tensor, deviation: float, limit: float) -> Tensor:
    """Target policy smoothing: clip(a + clip(deviation z, -limit, limit), -1, 1). -> [B, A]

    `action` a [B, A], `z` [B, A] standard normal. So a narrow peak of a critic, often an error, raises targets little.
    """
    return (action + (deviation * z).clamp(-limit, limit)).clamp(-1, 1)


def actor_loss(q: Tensor) -> Tensor:
    """Loss -E[Q_1(s, pi(s))] of the actor; `q` [1, B]: only the first critic judges it. -> []"""
    return -q.mean()


class TD3(BoundedAgent):
    """Critics learn from the smallest target critic; actor and target networks move every `actor_every` updates."""

    config: TD3Config
    policy: DeterministicPolicy
    actor = DeterministicPolicy

    def __init__(self, config: TD3Config, envs: VecEnv, rank: int = 0) -> None:
        super().__init__(config, envs, rank)
        self.policy.noise_std = self.live.action_noise
        self.target_policy = deepcopy(self.policy).requires_grad_(False)
        self.target_actor_norms = batch_norms(self.target_policy)

    @property
    def critic_sizes(self) -> tuple[int, int]:
        return self.config.n_critics, 1

    def iteration(self) -> None:
        self.policy.noise_std = self.live.action_noise
        super().iteration()

    def renew_statistics(self) -> None:
        super().renew_statistics()
        learn_statistics(self, self.config, self.target_policy)

    def update_noise(self, updates: int) -> Tensor:
        """Draw standard normal numbers [updates, B, A], for the actions of the target policy."""
        shape = (updates, self.config.batch_size, self.policy.actions)
        return normal(uniforms(self.key(EXPLORE, self.progress["iterations"]), shape, self.device))

    def update(self, batch: Transitions, z: Tensor) -> Mapping[str, Tensor]:
        """Make one step; `z` [B, A]: standard normal noise on the target policy's actions. -> metrics"""
        live, batch, moves_actor = self.live, self.scaled(batch), self.moves_actor()
        with torch.no_grad():
            next_action = smoothed(self.target_policy(batch.next_obs), z, live.target_noise, live.target_noise_clip)
            next_q = self.target_q(batch, next_action)
            if self.bins:
                target = self.bins.target(batch.reward, batch.discount, next_q)
            else:
                target = td_target(batch.reward, batch.discount, next_q.amin(0))
        moments, relative = self.value_scale.learn(target), self.value_scale.relative
        q = self.present_q(batch, next_action)
        if self.bins:
            q_loss = self.bins.loss(q, target, batch.weight)
        else:
            q_loss = relative(critic_loss(q, target, batch.weight), 2)
        loss = q_loss
        if moves_actor:
            with batch_moments(self.actor_norms):
                action = self.policy(batch.obs)
            # frozen: one backward pass serves both losses, and the actor's loss must not change the critics
            policy_loss = relative(actor_loss(self.expected(self.critics(batch.obs, action, frozen=True, first=1))))
            loss = q_loss + policy_loss
            self.metrics.add({"train/loss/policy": policy_loss})
        norms = self.descend(self.optimizer, loss, live.max_grad_norm)
        self.project(moves_actor)
        if moves_actor:
            move_towards(self.target, self.critics, live.tau)
            move_towards(self.target_policy, self.policy, live.tau)
            for target_norm, norm in zip(self.target_actor_norms, self.actor_norms, strict=True):
                target_norm.follow(norm)
        return {
            "train/loss/q": q_loss,
            **self.value_metrics(batch, q, target),
            "train/grad_norm/total": norms.norm(),
            **moments,
        }
