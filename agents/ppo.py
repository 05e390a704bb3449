"""PPO: the losses as pure functions, then the agent (Schulman et al. 2017)."""

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

Number = TypeVar("Number", float, Tensor)  # a tensor [], where a schedule moves it and a graph reads it


class PPOBatch(NamedTuple):
    """The input of an update; [T, N, ...], then [B, ...] or, cut by worlds, [T, B, ...]."""

    obs: Tree
    is_first: Tensor
    action: Tensor
    log_prob_old: Tensor
    value_old: Tensor
    advantage: Tensor
    target: Tensor
    start: Tree = ()
    """carry before the first row of each world, [N, ...]; () for a policy without a memory"""


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip: Number) -> Tensor:
    """-E[min(r A, clip(r, 1 - c, 1 + c) A)] with r = pi(a|s) / pi_old(a|s)."""
    return -torch.min(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()


def value_loss(value: Tensor, value_old: Tensor, target: Tensor, clip: Number | None) -> Tensor:
    """E[(v - g)^2], or with clipping E[max((v - g)^2, (v_old + clip(v - v_old) - g)^2)]."""
    error = (value - target).square()
    if clip is None:
        return error.mean()
    clipped = value_old + (value - value_old).clamp(-clip, clip)
    return torch.max(error, (clipped - target).square()).mean()


def approximate_kl(log_ratio: Tensor) -> Tensor:
    """E[(r - 1) - log r]: unbiased, never negative in expectation (Schulman, "Approximating KL divergence", 2020)."""
    return (log_ratio.exp() - 1 - log_ratio).mean()


def followed_rate(rate: Tensor, kl: Tensor, target: float) -> Tensor:
    """The learning rate after updates of this mean divergence, [] float32; where that is NaN, the same."""
    slower, faster = rate / KL_FACTOR, rate * KL_FACTOR
    return torch.where(kl > 2 * target, slower, torch.where(kl < target / 2, faster, rate)).clamp(
        KL_MIN_RATE, KL_MAX_RATE
    )


class PPO(Agent):
    """Rollouts, generalised advantages, epochs x minibatches of the clipped surrogate."""

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
        self.stopped = torch.zeros_like(self.broken)  # target_kl ended this rollout's updates
        # of the minibatches that this rollout's updates were made of: the sum of their KL divergence, and their number
        self.moved = torch.zeros(2, device=envs.device)
        self.follows = config.policy_lr if isinstance(config.policy_lr, FollowKL) else None
        if self.follows:
            start = torch.tensor(KL_START_RATE, device=envs.device)  # float32, as a graph has it
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
        self.moved.zero_()
        by_batch = "advantage" if self.config.normalize_advantages == "batch" else ""
        for batch in epochs(self, self.config, self.cut, table, by_batch):
            self.update(batch)
        self.follow(self.moved[0] / self.moved[1])
        if self.explorer:
            self.explorer.learn()
        # only now, so that old and new log-probabilities were computed with the same statistics
        self.policy.encoder.learn(rollout.row.obs, self.shard)
        self.metrics.add(self.policy.head.describe())

    @torch.no_grad()
    def judge(self, rollout: Rollout) -> PPOBatch:
        """Judge each action: its advantage, and the target of the critic."""
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
        if self.explorer:  # the critic's target remains that of the environment's rewards
            advantage = advantage + self.explorer.advantage(rollout, self.live.gae_lambda)
        if self.config.normalize_advantages == "rollout":
            advantage = self.shard.standardize(advantage)
        return PPOBatch(row.obs, row.is_first, row.action, log_prob, value, advantage, target, rollout.start)

    def catch_up(self, lagging: Lagging, rollout: Rollout, log_prob: Tensor) -> Tensor:
        """pi(a|s) of the present policy over that of the one that played, which then becomes the present one, [T, N].

        Updates clip around the present policy, not around the one that played (Hilton et al. 2021).
        """
        ratio = (log_prob - lagging.log_prob(rollout)).exp()
        lagging.follow(self.policy)
        self.log_lag(ratio)
        return ratio

    def log_lag(self, ratio: Tensor) -> None:
        """Log how far the present policy has moved from the one that played."""
        (ratio,) = self.shard.gather_worlds(ratio)
        self.metrics.add(
            {
                "train/lag/ratio/mean": ratio.mean(),
                "train/lag/ratio/max": ratio.max(),
                "train/lag/clipped": (ratio > 1).float().mean(),
            }
        )

    def update(self, batch: PPOBatch) -> None:
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
                counts = ~(self.stopped | self.poisoned)
                self.moved += torch.where(counts, torch.stack([kl, torch.ones_like(kl)]), 0.0)
            if live.target_kl is not None:
                self.stopped |= kl > 1.5 * live.target_kl
        # a flag on the device, which nobody waits for: later minibatches are computed, too, but step nowhere
        stopped = None if live.target_kl is None else self.stopped
        norms = self.step(self.optimizer, values["train/loss/total"], live.max_grad_norm, stopped)
        stop = {"train/policy/kl_stopped": self.stopped.float()}
        self.metrics.add({**values, **stop, **self.policy.gradient_norms(norms)})

    def follow(self, kl: Tensor) -> None:
        """Set the next learning rate by the mean divergence of this rollout's updates, where it follows that."""
        if self.follows is None:
            return
        rate = self.live.policy_lr
        if isinstance(rate, Tensor):
            rate.copy_(followed_rate(rate, kl, self.follows.target))
        else:
            self.live.policy_lr = followed_rate(torch.tensor(rate), kl, self.follows.target).item()

    def on_save_checkpoint(self, checkpoint: dict) -> None:
        super().on_save_checkpoint(checkpoint)
        if self.follows:  # the next rate, where the optimizer still has the last one
            for group in groups(checkpoint):
                group["lr"] = float(self.live.policy_lr)

    def on_load_checkpoint(self, checkpoint: dict) -> None:
        super().on_load_checkpoint(checkpoint)
        if self.follows:
            rate, live = groups(checkpoint)[0]["lr"], self.live
            live.policy_lr = live.policy_lr.fill_(rate) if isinstance(live.policy_lr, Tensor) else rate
