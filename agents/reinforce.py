"""REINFORCE (Williams 1992): the loss as pure functions, then the agent. Monte Carlo returns, no GAE."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from stride.agents.base import Agent
from stride.agents.experience.memory import slots_for
from stride.agents.experience.minibatches import CUTS
from stride.agents.experience.nouns import Rollout, Tree
from stride.agents.experience.shards import SINGLE, SingleShard
from stride.agents.networks.actor_critic import ActorCritic
from stride.agents.networks.policies import build_policy
from stride.agents.networks.popart import ValueScale
from stride.agents.on_policy import actor_critic_optimizer, epochs, play_and_learn, scaled_rewards
from stride.agents.returns import ends_within, explained_variance, from_episode_start, reward_to_go
from stride.config.schema import REINFORCEConfig
from stride.envs_fast.vec_env import VecEnv


class REINFORCEBatch(NamedTuple):
    """What an update needs. A whole rollout has tensors [T, N, ...] (T steps, N environments).

    A minibatch has [B, ...]; if the policy has a memory, so that whole sequences are kept, [T, B, ...].
    """

    obs: Tree
    is_first: Tensor
    action: Tensor
    weight: Tensor
    """w, what log pi(a|s) is multiplied by: the return, or the return minus V(s)"""
    target: Tensor
    """of the critic: the return"""
    counted: Tensor
    """1 if the return is complete, so that the row counts; else 0"""
    start: Tree = ()
    """the policy's carry before the first row of each environment, [N, ...]; () if it has no memory"""


def masked_mean(x: Tensor, counted: Tensor, shard: SingleShard = SINGLE) -> Tensor:
    """Return the mean [] of x over the rows with `counted` 1 instead of 0; 0 if there are none. Both have one shape.

    With several shards, return this shard's share: the mean of the shares is the mean over the rows of all shards.
    """
    return (x * counted).sum() / (shard.sum(counted.sum()).clamp(min=1) / shard.count)


def masked_standardize(x: Tensor, counted: Tensor, shard: SingleShard = SINGLE) -> Tensor:
    """Shift and scale x so that the rows with `counted` 1, of all shards, have mean 0 and standard deviation 1."""
    centred = x - shard.mean(masked_mean(x, counted, shard))
    return centred / (shard.mean(masked_mean(centred.square(), counted, shard)).sqrt() + 1e-8)


def policy_gradient(log_prob: Tensor, weight: Tensor, counted: Tensor, shard: SingleShard = SINGLE) -> Tensor:
    """Policy gradient loss -E[w log pi(a|s)] over the rows with `counted` 1; all tensors [B] or [T, B]. -> []"""
    return -masked_mean(log_prob * weight, counted, shard)


class REINFORCE(Agent):
    """Play a rollout, compute Monte Carlo returns, then learn by the plain policy gradient.

    With `policy_targets: returns` there is no critic: a row counts only if its episode ends inside the rollout.
    With `advantages` V(s) is subtracted from the return, and V also replaces the rewards after a time limit or after
    the rollout's last row, so every row counts.
    """

    config: REINFORCEConfig
    policy: ActorCritic

    def __init__(self, config: REINFORCEConfig, envs: VecEnv, rank: int = 0) -> None:
        policy = build_policy(config, envs, critic=config.policy_targets == "advantages")
        slot_count = slots_for(config.n_steps, envs.time_limit)
        super().__init__(config, envs, policy, config.n_steps, slot_count, replayed=False, rank=rank)
        self.reward_scale = scaled_rewards(self, config)
        self.value_scale = ValueScale(policy)
        self.cut = CUTS[policy.cut]

    def configure_optimizers(self) -> Optimizer:
        return actor_critic_optimizer(self, self.config, self.policy)

    def iteration(self) -> None:
        play_and_learn(self, self.config.n_steps)

    def learn(self, rollout: Rollout) -> None:
        table = self.judge(rollout)
        self.metrics.add(self.value_scale.learn(table.target, self.shard))
        for batch in epochs(self, self.config, self.cut, table):
            self.update(batch)
        self.policy.encoder.learn(rollout.row.obs, self.shard)
        self.metrics.add(self.policy.head.describe())

    @torch.no_grad()
    def judge(self, rollout: Rollout) -> REINFORCEBatch:
        """Return the table that updates learn from: the weight w of each action, and the critic's targets, [T, N]."""
        row = rollout.row
        value = self.policy.value(row.obs, rollout.start, row.is_first)
        reward = self.reward_scale(row.reward, row.terminated | row.truncated, self.shard)
        v_tp1 = self.policy.next_values(rollout, value, self.collector.is_first)
        returns = reward_to_go(reward, row.terminated, row.truncated, v_tp1, self.live.gamma)
        counted = torch.ones_like(returns)
        if self.policy.critic is None:
            counted = ends_within(row.terminated, row.truncated).float()
        else:
            explained = explained_variance(value, returns, self.shard.variance)
            self.metrics.add({"train/value/explained_variance": explained})
        self.metrics.add({"train/return/mean": self.shard.mean(masked_mean(returns, counted, self.shard))})
        weight = from_episode_start(returns, row.is_first) if self.config.returns_type == "mc:episode" else returns
        weight = weight - value
        if self.config.normalize_returns == "rollout":
            weight = masked_standardize(weight, counted, self.shard)
        return REINFORCEBatch(row.obs, row.is_first, row.action, weight, returns, counted, rollout.start)

    def update(self, batch: REINFORCEBatch) -> None:
        """Make one step on -E[w log pi] - ent_coef E[entropy] + vf_coef E[(V - target)^2], and log its parts."""
        judgement = self.policy.evaluate(batch.obs, batch.start, batch.is_first, batch.action)
        weight = batch.weight
        if self.config.normalize_returns == "batch":
            weight = masked_standardize(weight, batch.counted, self.shard)
        policy_loss = policy_gradient(judgement.log_prob, weight, batch.counted, self.shard)
        entropy = masked_mean(judgement.entropy, batch.counted, self.shard)
        loss = policy_loss - self.live.ent_coef * entropy
        losses = {"train/loss/policy": policy_loss, "train/policy/entropy": entropy}
        if self.policy.critic is not None:
            error = self.value_scale.relative(judgement.value - batch.target)
            losses["train/loss/value"] = error.square().mean()
            loss = loss + self.live.vf_coef * losses["train/loss/value"]
        losses = self.differentiate(self.optimizer, {**losses, "train/loss/total": loss}, "train/loss/total")
        norms = self.step(self.optimizer, losses["train/loss/total"], self.live.max_grad_norm)
        self.metrics.add({**losses, **self.policy.gradient_norms(norms)})
