"""Proximal policy optimisation, PPO (Schulman et al. 2017): the losses as pure functions, then the agent.

Beyond the paper, by keys of the config: a learning rate that follows the KL divergence, intrinsic rewards
(`exploration`), values in units of their targets (`value_scale`), and playing with the policy of one iteration before
(`lag`), which V-trace corrects.
"""

from typing import NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from stride.agents.base import Agent, groups
from stride.agents.experience.memory import slots_for
from stride.agents.experience.minibatches import CUTS
from stride.agents.experience.nouns import Rollout, Tree
from stride.agents.exploration.explorer import make_explorer
from stride.agents.networks.actor_critic import ActorCritic, Lagging
from stride.agents.networks.policies import build_policy
from stride.agents.networks.popart import ValueScale
from stride.agents.on_policy import actor_critic_optimizer, epochs, play_and_learn, scaled_rewards
from stride.agents.returns import explained_variance, gae, standardize, vtrace
from stride.config.schedule import KL_FACTOR, KL_MAX_RATE, KL_MIN_RATE, KL_START_RATE, FollowKL
from stride.config.schema import PPOConfig
from stride.envs_fast.vec_env import VecEnv

Number = TypeVar("Number", float, Tensor)  # a tensor [] if a CUDA graph reads it while a schedule changes it


class PPOBatch(NamedTuple):
    """What an update needs. A whole rollout has tensors [T, N, ...] (T steps, N environments).

    A minibatch has [B, ...]; if the policy has a memory, so that whole sequences are kept, [T, B, ...].
    """

    obs: Tree
    is_first: Tensor
    action: Tensor
    log_prob_old: Tensor
    """log pi_old(a|s), before the first update"""
    value_old: Tensor
    """V_old(s), before the first update"""
    advantage: Tensor
    target: Tensor
    """of the critic: advantage + V_old(s)"""
    start: Tree = ()
    """the policy's carry before the first row of each environment, [N, ...]; () if it has no memory"""


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip: Number) -> Tensor:
    """The paper's L^CLIP, negated: -E[min(r A, clip(r, 1 - c, 1 + c) A)] with r = pi(a|s) / pi_old(a|s). -> []

    `ratio` r and `advantage` A have one shape, [B] or [T, B]; `clip` is the paper's epsilon.
    """
    return -torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()


def value_loss(value: Tensor, value_old: Tensor, target: Tensor, clip: Number | None) -> Tensor:
    """The critic's squared error: E[(v - g)^2], g = `target`. -> []

    With `clip` c: E[max((v - g)^2, (v_old + clip(v - v_old, -c, c) - g)^2)]. Tensors [B] or [T, B].
    """
    error = (value - target).square()
    if clip is None:
        return error.mean()
    clipped = value_old + (value - value_old).clamp(-clip, clip)
    return torch.max(error, (clipped - target).square()).mean()


def approximate_kl(log_ratio: Tensor) -> Tensor:
    """Estimate KL(pi_old || pi) by E[(r - 1) - log r], from log r = log pi(a|s) - log pi_old(a|s), [B]. -> []

    Unbiased, and no sample is negative (the k3 of Schulman, "Approximating KL divergence", 2020).
    """
    return (log_ratio.exp() - 1 - log_ratio).mean()


def followed_rate(rate: Tensor, kl: Tensor, target: float) -> Tensor:
    """Return the next learning rate, [] float32, by the mean KL divergence `kl` [] of the last updates.

    Divided by KL_FACTOR if kl > 2 target, multiplied by it if kl < target / 2, else unchanged (also if kl is NaN).
    """
    slower, faster = rate / KL_FACTOR, rate * KL_FACTOR
    next_rate = torch.where(kl > 2 * target, slower, torch.where(kl < target / 2, faster, rate))
    return next_rate.clamp(KL_MIN_RATE, KL_MAX_RATE)


class PPO(Agent):
    """Play a rollout, estimate advantages, then make n_epochs passes over it in minibatches, one update for each."""

    config: PPOConfig
    policy: ActorCritic

    def __init__(self, config: PPOConfig, envs: VecEnv, rank: int = 0) -> None:
        policy = build_policy(config, envs, critic=True)
        slots = slots_for(config.n_steps, envs.time_limit)
        super().__init__(config, envs, policy, config.n_steps, slots, replayed=False, rank=rank)
        self.reward_scale = scaled_rewards(self, config)
        self.value_scale = ValueScale(policy)
        self.explorer = make_explorer(self, config, policy.encoder, valued=True)
        self.cut = CUTS[policy.cut]
        self.stopped = torch.zeros_like(self.broken)  # flag: the divergence passed target_kl, updates stop
        # [sum of the KL divergence of this rollout's minibatches that were learnt from, their number]
        self.kl_sums = torch.zeros(2, device=envs.device)
        self.follows = config.policy_lr if isinstance(config.policy_lr, FollowKL) else None
        if self.follows:
            start = torch.tensor(KL_START_RATE, device=envs.device)  # float32: the bits of graphs and eager are equal
            self.live.policy_lr = start if self.far else start.item()
        self.lagging = Lagging(policy) if config.lag else None
        if self.lagging:
            self.collector.policy = self.lagging.policy

    def configure_optimizers(self) -> Optimizer:
        return actor_critic_optimizer(self, self.config, self.policy)

    def iteration(self) -> None:
        play_and_learn(self, self.config.n_steps)

    def learn(self, rollout: Rollout) -> None:
        table = self.judge(rollout)
        self.metrics.add(self.value_scale.learn(table.target, self.shard))
        self.stopped.zero_()
        self.kl_sums.zero_()
        standardized = "advantage" if self.config.normalize_advantages == "batch" else ""
        for batch in epochs(self, self.config, self.cut, table, standardized):
            self.update(batch)
        self.follow(self.kl_sums[0] / self.kl_sums[1])
        if self.explorer:
            self.explorer.learn()
        # only now, so that pi and pi_old were computed with the same statistics of observations
        self.policy.encoder.learn(rollout.row.obs, self.shard)
        self.metrics.add(self.policy.head.describe())

    @torch.no_grad()
    def judge(self, rollout: Rollout) -> PPOBatch:
        """Return the table that updates learn from: advantages, critic targets, pi_old and V_old, [T, N] each."""
        row = rollout.row
        log_prob, _, value = self.policy.evaluate(row.obs, rollout.start, row.is_first, row.action)
        reward = self.reward_scale(row.reward, row.terminated | row.truncated, self.shard)
        v_tp1 = self.policy.next_values(rollout, value, self.collector.is_first)
        steps = (reward, row.terminated, row.truncated, value, v_tp1)
        discounts = (self.live.gamma, self.live.gae_lambda)
        if self.lagging is None:
            advantage = gae(*steps, *discounts)
        else:
            advantage = vtrace(*steps, self.catch_up(self.lagging, rollout, log_prob), *discounts)
        target = advantage + value
        self.metrics.add(
            {
                "train/value/explained_variance": explained_variance(value, target, self.shard.variance),
                "train/advantage/mean": self.shard.mean(advantage.mean()),
                "train/advantage/std": self.shard.deviation(advantage),
            }
        )
        if self.explorer:  # after `target`: the critic learns the environment's rewards only
            advantage = advantage + self.explorer.advantage(rollout, self.live.gae_lambda)
        if self.config.normalize_advantages == "rollout":
            advantage = self.shard.standardize(advantage)
        return PPOBatch(row.obs, row.is_first, row.action, log_prob, value, advantage, target, rollout.start)

    def catch_up(self, lagging: Lagging, rollout: Rollout, log_prob: Tensor) -> Tensor:
        """Return the ratio [T, N] of pi(a|s) of the present policy to that of the lagging one, which played.

        Then copy the present policy into the lagging one. `log_prob` [T, N] is the present policy's. Updates clip
        around the present policy, not around the one that played (Hilton et al. 2021).
        """
        ratio = (log_prob - lagging.log_prob(rollout)).exp()
        lagging.follow(self.policy)
        self.log_lag(ratio)
        return ratio

    def log_lag(self, ratio: Tensor) -> None:
        """Log how far the present policy has moved from the one that played; `ratio` [T, N] as from `catch_up`."""
        (ratio,) = self.shard.gather_worlds(ratio)
        self.metrics.add(
            {
                "train/lag/ratio/mean": ratio.mean(),
                "train/lag/ratio/max": ratio.max(),
                "train/lag/clipped": (ratio > 1).float().mean(),
            }
        )

    def update(self, batch: PPOBatch) -> None:
        """Make one step on the loss -L^CLIP + vf_coef L^VF - ent_coef S (entropy S), and log its parts."""
        live = self.live
        judgement = self.policy.evaluate(batch.obs, batch.start, batch.is_first, batch.action)
        log_ratio = judgement.log_prob - batch.log_prob_old
        ratio = log_ratio.exp()
        advantage = batch.advantage
        if self.config.normalize_advantages == "batch" and self.shard.count == 1:
            advantage = standardize(advantage)
        policy_loss = clipped_surrogate(ratio, advantage, live.clip_range)
        critic_loss = value_loss(judgement.value, batch.value_old, batch.target, live.clip_range_vf)
        critic_loss = self.value_scale.relative(critic_loss, 2)
        entropy = judgement.entropy.mean()
        loss = policy_loss + live.vf_coef * critic_loss - live.ent_coef * entropy
        with torch.no_grad():
            kl = approximate_kl(log_ratio)
            clip_fraction = ((ratio - 1).abs() > live.clip_range).float().mean()
        values = {
            "train/loss/policy": policy_loss,
            "train/loss/value": critic_loss,
            "train/loss/total": loss,
            "train/policy/entropy": entropy,
            "train/policy/approx_kl": kl,
            "train/policy/clip_fraction": clip_fraction,
        }
        values = self.differentiate(self.optimizer, values, "train/loss/total")
        kl = values["train/policy/approx_kl"]
        with torch.no_grad():
            if self.follows:
                is_counted = ~(self.stopped | self.poisoned)
                self.kl_sums += torch.where(is_counted, torch.stack([kl, torch.ones_like(kl)]), 0.0)
            if live.target_kl is not None:
                self.stopped |= kl > 1.5 * live.target_kl
        # the host does not read this flag: later minibatches are still computed, but change nothing
        stopped = None if live.target_kl is None else self.stopped
        norms = self.step(self.optimizer, values["train/loss/total"], live.max_grad_norm, stopped)
        stop = {"train/policy/kl_stopped": self.stopped.float()}
        self.metrics.add({**values, **stop, **self.policy.gradient_norms(norms)})

    def follow(self, kl: Tensor) -> None:
        """Set the next learning rate by the mean KL divergence `kl` [] of this rollout, if policy_lr is `kl_...`."""
        if self.follows is None:
            return
        rate = self.live.policy_lr
        if isinstance(rate, Tensor):
            rate.copy_(followed_rate(rate, kl, self.follows.target))
        else:
            self.live.policy_lr = followed_rate(torch.tensor(rate), kl, self.follows.target).item()

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        super().on_save_checkpoint(checkpoint)
        if self.follows:  # store the next rate; the optimizer still has the last one
            for group in groups(checkpoint):
                group["lr"] = float(self.live.policy_lr)

    def on_load_checkpoint(self, checkpoint: dict) -> None:
        super().on_load_checkpoint(checkpoint)
        if self.follows:
            rate, live = groups(checkpoint)[0]["lr"], self.live
            live.policy_lr = live.policy_lr.fill_(rate) if isinstance(live.policy_lr, Tensor) else rate
