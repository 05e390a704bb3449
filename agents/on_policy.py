"""What PPO, REINFORCE, PQN and Q-learning share: playing a rollout, scaled rewards, passes over it in minibatches."""

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
    """Make the agent's reward scale, and register it as a part, so that checkpoints store its statistics."""
    reward_scale = RewardScale(config.normalize_reward, agent.live, agent.memory.table.reward[0])
    agent.parts["reward_scale"] = reward_scale
    return reward_scale


def play_and_learn(agent: Agent, steps: int) -> None:
    """Run an iteration: play a rollout of `steps` steps from where the environments are now, then learn from it."""
    start_carry = tree_map(torch.clone, agent.collector.carry)
    agent.collect(steps)
    agent.learn_from(agent.memory.rollout(start_carry, Final(agent.collector.obs, agent.collector.carry)))


def epochs(
    agent: Agent, config: RolloutConfig, cut: Cut[Batch], table: Batch, standardized: str = ""
) -> Iterator[Batch]:
    """Yield every minibatch of all n_epochs passes over a rollout's table; each pass has a new random order.

    `cut`: a function of CUTS. `standardized`: a column to standardize in each minibatch ("" for none). It is done here
    only with several shards: the means of all minibatches of a pass then need one exchange. Else `update` does it.
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
    """Build the optimizer over the policy's parameters, in the policy's order, which `gradient_norms` relies on.

    Actor and critic learn at policy_lr times the lr_scale of their block; shared layers learn at policy_lr.
    """
    scales = {id(parameter): config.actor_shape.lr_scale for parameter in policy.actor.parameters()}
    if policy.critic is not None:
        scales |= {id(parameter): config.critic_shape.lr_scale for parameter in policy.critic.parameters()}
    # consecutive parameters with the same factor form one group of the optimizer
    parts = groupby(policy.parameters(), lambda parameter: scales.get(id(parameter), 1.0))
    return scaled_optimizer(config, [([*parameters], scale) for scale, parameters in parts], agent.live.policy_lr)
