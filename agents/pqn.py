"""Parallelised Q-network, PQN (Gallici et al. 2024): Q-learning on rollouts, without replay memory and target network.

The targets are lambda-returns; layer norms in the network keep learning stable.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from stride.agents.base import Agent
from stride.agents.experience.memory import slots_for
from stride.agents.experience.minibatches import minibatches
from stride.agents.experience.nouns import Rollout, Tree, known_uncut
from stride.agents.exploration.explorer import make_explorer
from stride.agents.networks.popart import ValueScale
from stride.agents.networks.q_network import QNetworkShape, QPolicy, build_q_policy, pick
from stride.agents.on_policy import epochs, play_and_learn
from stride.agents.returns import lambda_returns, next_values
from stride.config.schema import PQNConfig
from stride.envs_fast.vec_env import VecEnv


class PQNBatch(NamedTuple):
    """What an update needs: tensors [T, N, ...] of a whole rollout, [B, ...] of a minibatch."""

    obs: Tree
    action: Tensor
    target: Tensor
    """the lambda-return of the action"""


class PQN(Agent):
    """Play a rollout epsilon-greedily, compute lambda-returns, then make n_epochs passes over it in minibatches."""

    config: PQNConfig
    policy: QPolicy

    def __init__(self, config: PQNConfig, envs: VecEnv, rank: int = 0) -> None:
        network_shape = QNetworkShape(config.hidden_dims, config.activation, config.normalize_obs, layer_norm=True)
        policy = build_q_policy(config, envs, network_shape)
        slot_count = slots_for(config.n_steps, envs.time_limit)
        super().__init__(config, envs, policy, config.n_steps, slot_count, replayed=False, rank=rank)
        self.value_scale = ValueScale(policy)
        self.explorer = make_explorer(self, config, policy.network.encoder, valued=False)

    def iteration(self) -> None:
        self.policy.epsilon = self.live.epsilon
        play_and_learn(self, self.config.n_steps)

    def learn(self, rollout: Rollout) -> None:
        table = self.judge(rollout)
        self.metrics.add(self.value_scale.learn(table.target, self.shard))
        for batch in epochs(self, self.config, minibatches, table):
            self.update(batch)
        if self.explorer:
            self.explorer.learn()
        self.policy.network.encoder.learn(rollout.row.obs, self.shard)

    @torch.no_grad()
    def judge(self, rollout: Rollout) -> PQNBatch:
        """Return the table that updates learn from; targets [T, N]: lambda-returns with V(s) = max_a Q(s, a)."""
        row = rollout.row
        v_t = self.policy.value(row.obs)
        v_next = self.policy.value(rollout.next.obs)
        v_final = None if known_uncut(rollout) else self.policy.value(rollout.final.obs)
        v_tp1 = next_values(v_t, v_next, v_final, row.truncated, row.slot)
        reward = row.reward
        if self.explorer:
            reward = reward + self.explorer.config.coef * self.explorer.reward(rollout)
        discounts = (self.live.gamma, self.live.return_lambda)
        target = lambda_returns(reward, row.terminated, row.truncated, v_tp1, *discounts)
        return PQNBatch(row.obs, row.action, target)

    def update(self, batch: PQNBatch) -> None:
        """Make one step on E[(target - Q(s, a))^2] / 2, in units of the value scale."""
        q = pick(self.policy.network(batch.obs), batch.action)
        error = batch.target - q
        loss = self.value_scale.relative(error).square().mean() / 2
        values = {
            "train/loss/q": loss,
            "train/value/q": q.mean(),
            "train/value/target": batch.target.mean(),
            "train/value/td_error": error.abs().mean(),
        }
        values = self.differentiate(self.optimizer, values, "train/loss/q")
        norms = self.step(self.optimizer, values["train/loss/q"], self.live.max_grad_norm)
        self.metrics.add({**values, "train/grad_norm/total": norms.norm()})
