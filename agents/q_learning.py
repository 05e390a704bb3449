"""Tabular Q-learning (Watkins 1989): the update as a pure function, then the agent. No replay memory, no network.

A "pair" is an index into the flat table Q(s, a): state * number of actions + action; P is the number of pairs.
"""

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
    """Return the learning rate of each pair, lr / visits^power, in the shape of `visits`.

    Power 0 keeps lr constant; with 1/2 < power <= 1 the noise of the targets averages out.
    """
    return lr * visits.clamp(min=1).pow(-power)


def learn_pairs(q: Tensor, visits: Tensor, pair: Tensor, target: Tensor, lr: float, power: float) -> Tensor:
    """Update q [P] and visits [P] in place: Q(s, a) += size (target - Q(s, a)) for N environments. -> errors [N]

    `pair` int64 [N] and `target` [N] belong to the environments. If `count` environments share a pair, it moves towards
    the mean of their targets by the fraction 1 - (1 - size)^count, as far as `count` updates one by one would move it.
    """
    error = target - q[pair]
    pair_counts = torch.zeros_like(q).index_add_(0, pair, torch.ones_like(error))
    mean_errors = torch.zeros_like(q).index_add_(0, pair, error) / pair_counts.clamp(min=1)
    visits += pair_counts
    q += (1 - (1 - step_size(lr, visits, power)).pow(pair_counts)) * mean_errors
    return error


class QLearning(Agent):
    """Play n_steps in every environment, then update the pair of each step, in order of time."""

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
        # next_obs [T, N, ...]: the observation that each action led to, from the slots after a truncation
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
        for present, old in zip((table, self.visits), before, strict=True):  # undo it all if a row was non-finite
            present.copy_(torch.where(self.poisoned, old, present))
