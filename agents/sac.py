"""Soft actor-critic, SAC (Haarnoja et al. 2018, with a learnt temperature): losses as pure functions, then the agent.

Letters in shapes: n critics, B samples, A numbers of an action. alpha is the temperature, the weight of the entropy.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stride.agents.experience.nouns import Transitions
from stride.agents.networks.residual import batch_moments
from stride.agents.networks.squashed import SquashedPolicy
from stride.agents.off_policy import BoundedAgent, move_towards
from stride.agents.returns import td_target
from stride.config.schema import SACConfig
from stride.envs_fast.vec_env import VecEnv
from stride.utils.counter_rng import EXPLORE, uniforms

CRITICS = 2


def soft_value(q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
    """Soft value V(s) = min over i of Q_i(s, a) - alpha log pi(a|s), for an action a drawn from pi. -> [B]

    `q` [n, B], `log_prob` [B], `alpha` [].
    """
    return q.amin(0) - alpha * log_prob


def critic_loss(q: Tensor, target: Tensor, weight: Tensor | float = 1.0) -> Tensor:
    """J_Q, summed over the critics: sum over i of E[weight (Q_i(s, a) - target)^2] / 2. -> []

    `q` [n, B], `target` [B]; `weight` [B] corrects the bias of draws by priority, and is 1 for uniform draws.
    """
    return (weight * (q - target).square()).mean(-1).sum() / 2


def temperature_loss(log_alpha: Tensor, log_prob: Tensor, target_entropy: float) -> Tensor:
    """J(alpha) with log alpha in place of alpha: -log alpha E[log pi(a|s) + target entropy]. -> []

    Its gradient makes alpha grow while the entropy -E[log pi] is below `target_entropy`. `log_prob` [B].
    """
    return -log_alpha * (log_prob.detach() + target_entropy).mean()


def target_entropy(config: SACConfig, actions: int) -> float:
    """Return the target entropy in nats, for actions of this many numbers.

    By `target_std` it is the entropy of a Gaussian with that deviation in each number; else `target_entropy`, by
    default minus one nat for each number.
    """
    if config.target_std is not None:
        return actions * 0.5 * math.log(2 * math.pi * math.e * config.target_std**2)
    return -float(actions) if config.target_entropy is None else config.target_entropy


class SAC(BoundedAgent):
    """Two critics, a squashed Gaussian policy, a temperature; one backward pass and one step for all three losses."""

    config: SACConfig
    policy: SquashedPolicy
    actor = SquashedPolicy

    def __init__(self, config: SACConfig, envs: VecEnv, rank: int = 0) -> None:
        super().__init__(config, envs, rank)
        start = torch.tensor(math.log(config.initial_alpha), device=envs.device)
        self.log_alpha = nn.Parameter(start, requires_grad=config.ent_coef is None)
        self.target_entropy = target_entropy(config, self.policy.actions)

    @property
    def critic_sizes(self) -> tuple[int, int]:
        return CRITICS, 1

    @property
    def beside(self) -> list[nn.Parameter]:
        return [self.log_alpha] if self.log_alpha.requires_grad else []

    def update_noise(self, updates: int) -> Tensor:
        """Draw uniforms [updates, 2, B, A], from which updates draw actions at s (index 0) and at s' (index 1)."""
        shape = (updates, 2, self.config.batch_size, self.policy.actions)
        return uniforms(self.key(EXPLORE, self.progress["iterations"]), shape, self.log_alpha.device)

    def next_value(self, q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
        """Return V(s') [B] for a target; `q` [n, B] are the target critics' values of an action a' drawn from pi."""
        return soft_value(q, log_prob, alpha)

    def value(self, q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
        """Return what the policy maximises, [B], by the critics' outputs `q` for an action drawn from pi at s."""
        return soft_value(self.expected(q), log_prob, alpha)

    def regression(self, q: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """Return the loss [] of the critics, in units of the value scale."""
        if self.bins:
            return self.bins.loss(q, target, weight)
        return self.value_scale.relative(critic_loss(q, target, weight), 2)

    def targets(self, batch: Transitions, noise: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Return the actions a' [B, A] drawn at s', and the critics' targets.

        Targets are values [B], samples of the return [B, M] (TQC), or probabilities of bins [B, K].
        """
        action, log_prob = self.policy.draw(batch.next_obs, noise)
        q = self.target_q(batch, action)
        if self.bins:
            return action, self.bins.target(batch.reward, batch.discount, q, alpha * log_prob)
        return action, td_target(batch.reward, batch.discount, self.next_value(q, log_prob, alpha))

    def policy_loss(self, batch: Transitions, noise: Tensor, alpha: Tensor) -> Tensor:
        """Return -E[V(s)] of actions that the policy draws, plus J(alpha) if the temperature is learnt. -> []"""
        with batch_moments(self.actor_norms):
            action, log_prob = self.policy.draw(batch.obs, noise)
        # frozen: one backward pass serves all losses, and the policy's loss must not change the critics
        value = self.value(self.critics(batch.obs, action, frozen=True), log_prob, alpha)
        policy_loss = -self.value_scale.relative(value).mean()
        self.metrics.add({"train/loss/policy": policy_loss, "train/policy/entropy": -log_prob.mean()})
        if self.log_alpha.requires_grad:
            return policy_loss + temperature_loss(self.log_alpha, log_prob, self.target_entropy)
        return policy_loss

    def update(self, batch: Transitions, noise: Tensor) -> Mapping[str, Tensor]:
        """Make one step; `noise` [2, B, A]: uniforms for the actions at s and at s'. -> metrics"""
        learns_alpha = self.live.ent_coef is None
        alpha = self.log_alpha.detach().exp() if learns_alpha else torch.full_like(self.log_alpha, self.live.ent_coef)
        batch, moves_actor = self.scaled(batch), self.moves_actor()
        with torch.no_grad():
            next_action, target = self.targets(batch, noise[1], alpha)
        moments = self.value_scale.learn(target)
        q = self.present_q(batch, next_action)
        loss = q_loss = self.regression(q, target, batch.weight)
        if moves_actor:
            loss = q_loss + self.policy_loss(batch, noise[0], alpha)
        norms = self.descend(self.optimizer, loss, self.live.max_grad_norm)
        self.project(moves_actor)
        move_towards(self.target, self.critics, self.live.tau)
        return {
            "train/loss/q": q_loss,
            **self.value_metrics(batch, q, target),
            "train/policy/alpha": alpha,
            "train/grad_norm/total": norms.norm(),
            **moments,
        }
