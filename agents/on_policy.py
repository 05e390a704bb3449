"""The common parts of algorithms that learn from rollouts: playing one, scaled rewards, passes in minibatches."""

from collections.abc import Callable, Iterator
from itertools import groupby
from time import perf_counter
from typing import TypeVar

import torch
from torch.optim import Optimizer

from stride.agents.base import Agent, Passes, scaled_optimizer
from stride.agents.experience.nouns import Final, Tree, tree_map
from stride.agents.experience.reward_scale import RewardScale
from stride.agents.networks.actor_critic import ActorCritic
from stride.config.schema import PolicyGradientConfig, RolloutConfig
from stride.utils.counter_rng import SHUFFLE, Key

Batch = TypeVar("Batch", bound=Tree)
Cut = Callable[[Batch, int, Key], Iterator[Batch]]


def scaled_rewards(agent: Agent, config: RolloutConfig) -> RewardScale:
    """The scale of an agent's rewards, whose statistics a checkpoint holds."""
    reward_scale = RewardScale(config.normalize_reward, agent.live, agent.memory.table.reward[0])
    agent.parts["reward_scale"] = reward_scale
    return reward_scale


def play_and_learn(agent: Agent, steps: int) -> None:
    """An iteration: a rollout from the present state of the worlds, then everything that is learnt from it."""
    start_carry = tree_map(torch.clone, agent.collector.carry)
    agent.collect(steps)
    agent.learn_from(agent.memory.rollout(start_carry, Final(agent.collector.obs, agent.collector.carry)))


def epochs(
    agent: Agent, config: RolloutConfig, cut: Cut[Batch], table: Batch, standardized: str = ""
) -> Iterator[Batch]:
    """Every minibatch of every pass over a rollout's table, each pass in an order of its own.

    `standardized`: the column that an update standardizes; where there are several shards it is done here, as what all
    minibatches of a pass need of the other shards comes in one exchange.
    """
    iterations = agent.progress["iterations"] if agent.counter is None else agent.counter
    begun = perf_counter()
    for epoch in range(config.n_epochs):
        agent.passes = Passes(epoch, config.n_epochs, begun)
        order_key = agent.key(SHUFFLE, iterations * config.n_epochs + epoch)
        batches = cut(table, config.minibatch_size, order_key)
        yield from agent.shard.standardize_batches(batches, standardized) if standardized else batches
    agent.passes = None


def actor_critic_optimizer(agent: Agent, config: PolicyGradientConfig, policy: ActorCritic) -> Optimizer:
    """Over all of the policy in its order, by which gradient norms are told apart; actor and critic by rates of theirs.

    What neither has for itself, such as a network that reads images, learns by policy_lr.
    """
    scales = {id(parameter): config.actor_shape.lr_scale for parameter in policy.actor.parameters()}
    if policy.critic is not None:
        scales |= {id(parameter): config.critic_shape.lr_scale for parameter in policy.critic.parameters()}
    runs = groupby(policy.parameters(), lambda parameter: scales.get(id(parameter), 1.0))
    return scaled_optimizer(config, [([*parameters], scale) for scale, parameters in runs], agent.live.policy_lr)
