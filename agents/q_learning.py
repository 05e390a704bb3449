"""Tabular Q-learning (Watkins 1989): the update as a pure function, then the agent. No replay, no network."""

import torch
from torch import Tensor

from stride.agents.base import Agent
from stride.agents.experience.memory import slots_for
from stride.agents.experience.nouns import Rollout, expand, tree_map, where
from stride.agents.networks.q_table import QTable
from stride.agents.on_policy import play_and_learn
from stride.config.schema import QLearningConfig
from stride.envs_fast.vec_env import VecEnv


def step_size(lr: float, visits: Tensor, power: float) -> Tensor:
    """lr / visits^power: 0 stays as it is, above 1/2 and up to 1 the noise of the targets averages out."""
    return lr * visits.clamp(min=1).pow(-power)


def learn_pairs(q: Tensor, visits: Tensor, pair: Tensor, target: Tensor, lr: float, power: float) -> Tensor:
    """Move q [P] towards the targets [N] of `pair` int64 [N], in place; -> errors [N].

    Worlds that share a pair move it to the mean of their targets, as far as one update after the other would have:
    1 - (1 - size)^count.
    """
    error = target - q[pair]
    pair_counts = torch.zeros_like(q).index_add_(0, pair, torch.ones_like(error))
    mean_errors = torch.zeros_like(q).index_add_(0, pair, error) / pair_counts.clamp(min=1)
    visits += pair_counts
    q += (1 - (1 - step_size(lr, visits, power)).pow(pair_counts)) * mean_errors
    return error


class QLearning(Agent):
    """A step in every world, then an update of every pair that was met."""

    config: QLearningConfig
    policy: QTable
    visits: Tensor

    def __init__(self, config: QLearningConfig, envs: VecEnv, rank: int = 0) -> None:
        policy = QTable(envs.observation_space, envs.action_space, config.initial_q).to(envs.device)
        slot_count = slots_for(config.n_steps, envs.time_limit)
        super().__init__(config, envs, policy, config.n_steps, slot_count, replayed=False, rank=rank)
        self.register_buffer("visits", torch.zeros_like(policy.table).flatten())

    def configure_optimizers(self) -> None:
        """None: there is no gradient."""

    def iteration(self) -> None:
        self.policy.epsilon = self.live.epsilon
        play_and_learn(self, self.config.n_steps)

    @torch.no_grad()
    def learn(self, rollout: Rollout) -> None:
        policy, row, live = self.policy, rollout.row, self.live
        slot = row.slot
        following = tree_map(lambda x, last: torch.cat((x[1:], last[None])), row.obs, rollout.next.obs)
        final = tree_map(lambda x: x.gather(0, expand(slot, x).expand(*slot.shape, *x.shape[2:])), rollout.final.obs)
        next_obs = where(row.truncated, final, following)
        pair = policy.state(row.obs) * policy.actions + row.action
        table = policy.table.view(-1)
        before = [table.clone(), self.visits.clone()]
        for t in range(self.config.n_steps):
            next_value = policy.values(tree_map(lambda x: x[t], next_obs)).amax(-1)  # noqa: B023
            target = row.reward[t] + live.gamma * ~row.terminated[t] * next_value
            error = learn_pairs(table, self.visits, pair[t], target, live.policy_lr, self.config.visits_power)
            self.progress["updates"] += 1
            self.metrics.add({"train/value/td_error": error.abs().mean(), "train/value/target": target.mean()})
        for now, old in zip((table, self.visits), before, strict=True):  # a non-finite rollout is not learnt from
            now.copy_(torch.where(self.poisoned, old, now))
