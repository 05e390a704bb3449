"""SAC: losses as pure functions, then the agent (Haarnoja et al. 2018, with a learnt temperature)."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from stride.agents.base import build_optimizer
from stride.agents.experience.nouns import Transitions
from stride.agents.networks.squashed import SquashedPolicy
from stride.agents.off_policy import BoundedAgent, move_towards, renew_priorities
from stride.agents.returns import td_target
from stride.config.schema import SACConfig
from stride.envs_fast.vec_env import VecEnv
from stride.utils.counter_rng import EXPLORE, uniforms

CRITICS = 2


def soft_value(q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
    """min over the critics of Q(s, a) - alpha log pi(a|s): [n, B], [B] -> [B]."""
    return q.amin(0) - alpha * log_prob


def critic_loss(q: Tensor, target: Tensor, weight: Tensor | float = 1.0) -> Tensor:
    """Sum over the critics of E[weight (q - target)^2] / 2: [n, B], [B]; the weight makes up for uneven draws."""
    return (weight * (q - target).square()).mean(-1).sum() / 2


def temperature_loss(log_alpha: Tensor, log_prob: Tensor, target_entropy: float) -> Tensor:
    """-log alpha E[log pi + target]: alpha grows while the entropy is below its target."""
    return -log_alpha * (log_prob.detach() + target_entropy).mean()


class SAC(BoundedAgent):
    """Twin critics, a squashed Gaussian, a temperature; all three losses in one backward pass and one step."""

    config: SACConfig
    policy: SquashedPolicy
    actor = SquashedPolicy

    def __init__(self, config: SACConfig, envs: VecEnv, rank: int = 0) -> None:
        super().__init__(config, envs, rank)
        self.log_alpha = nn.Parameter(torch.zeros((), device=envs.device), requires_grad=config.ent_coef is None)
        self.target_entropy = -float(self.policy.draws) if config.target_entropy is None else config.target_entropy

    @property
    def critic_sizes(self) -> tuple[int, int]:
        return CRITICS, 1

    def configure_optimizers(self) -> Optimizer:
        parameters = [*self.policy.parameters(), *self.critics.parameters(), self.log_alpha]
        return build_optimizer(self.config, [p for p in parameters if p.requires_grad], self.live.policy_lr)

    def update_noise(self, updates: int) -> Tensor:
        """Uniforms [updates, 2, B, A] for the actions that are drawn anew in this iteration's updates."""
        shape = (updates, 2, self.config.batch_size, self.policy.draws)
        return uniforms(self.key(EXPLORE, self.progress["iterations"]), shape, self.log_alpha.device)

    def next_value(self, q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
        """The value of the next observation, for a target: of the target critics' values of an action there."""
        return soft_value(q, log_prob, alpha)

    def value(self, q: Tensor, log_prob: Tensor, alpha: Tensor) -> Tensor:
        """What the policy maximises, [B]."""
        return soft_value(q, log_prob, alpha)

    def regression(self, q: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """The loss of the critics, in units of the value scale."""
        return self.value_scale.relative(critic_loss(q, target, weight), 2)

    def update(self, batch: Transitions, noise: Tensor) -> Mapping[str, Tensor]:
        """`noise` [2, B, A]: for the actions of the observations, and of the next ones."""
        learns_alpha = self.live.ent_coef is None
        alpha = self.log_alpha.detach().exp() if learns_alpha else torch.full_like(self.log_alpha, self.live.ent_coef)
        with torch.no_grad():
            action, log_prob = self.policy.draw(batch.next_obs, noise[1])
            next_value = self.next_value(self.target(batch.next_obs, action), log_prob, alpha)
            target = td_target(batch.reward, batch.discount, next_value)
        moments = self.value_scale.learn(target)
        q = self.critics(batch.obs, batch.action)
        action, log_prob = self.policy.draw(batch.obs, noise[0])
        q_loss = self.regression(q, target, batch.weight)
        # frozen: one backward pass serves all losses, and the policy's must not move the critics
        value = self.value(self.critics(batch.obs, action, frozen=True), log_prob, alpha)
        policy_loss = -self.value_scale.relative(value).mean()
        loss = q_loss + policy_loss
        if learns_alpha:
            loss = loss + temperature_loss(self.log_alpha, log_prob, self.target_entropy)
        norms = self.descend(self.optimizer, loss, self.live.max_grad_norm)
        move_towards(self.target, self.critics, self.live.tau)
        renew_priorities(self, batch, q, target)
        return {
            "train/loss/policy": policy_loss,
            "train/loss/q": q_loss,
            "train/value/q": q.mean(),
            "train/value/target": target.mean(),
            "train/policy/entropy": -log_prob.mean(),
            "train/policy/alpha": alpha,
            "train/grad_norm/total": norms.norm(),
            **moments,
        }
