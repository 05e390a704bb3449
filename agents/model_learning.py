"""What algorithms with a world model share: when they collect and learn, the model's loss, how well it tells ends."""

from fractions import Fraction
from math import log
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from agents.base import Agent
from agents.experience.nouns import Sequences
from agents.experience.ratio import Ratio
from agents.networks.dreamer_policy import ModelPolicy
from agents.networks.senses import distance
from agents.networks.two_hot import TwoHot
from agents.networks.world_model import RSSM, Guess, State, WorldModel, balanced, divergence
from config.schema import WorldModelConfig

RATIO = 128  # remembered steps learnt from per env step, where the config says nothing
MEMORY = 0.99  # share of what was counted of ends that is kept from update to update


class Unroll:
    """A model's ways through time, for agents that learn one: here a step at a time, which is the meaning of others.

    An engine that knows a faster way lends its own while the agent learns.
    """

    def observe(self, rssm: RSSM, tokens: Tensor, action: Tensor, is_first: Tensor, u: Tensor) -> tuple[State, Guess]:
        """`RSSM.observe`."""
        return rssm.observe(tokens, action, is_first, u)

    def foresee(self, rssm: RSSM, deter: Tensor) -> Guess:
        """`RSSM.foresee`."""
        return rssm.foresee(deter)

    def through(self, x: Tensor, *nets: nn.Module) -> tuple[Tensor, ...]:
        """What nets of hidden layers, each with a head or none, answer to rows [..., inputs]."""
        return tuple(net(x) for net in nets)

    def expect(self, model: WorldModel, features: Tensor) -> tuple[Tensor, Tensor]:
        """`WorldModel.expect`, of which nobody wants gradients."""
        return model.expect(features)

    def mean(self, two_hot: TwoHot, logits: Tensor) -> Tensor:
        """`TwoHot.mean`, of which nobody wants gradients."""
        return two_hot.mean(logits)

    def losses(self, two_hot: TwoHot, logits: Tensor, *targets: Tensor) -> Tensor:
        """`TwoHot.loss` towards each of the targets [...]: [M, ...]."""
        return torch.stack([two_hot.loss(logits, target) for target in targets])


class ModelLoss(NamedTuple):
    """What a batch says of a model."""

    states: State
    """[L, B, ..] it went through, with their gradients"""
    parts: dict[str, Tensor]
    """whose sum is minimised"""
    kl: Tensor
    """mean divergence of posterior and prior"""
    ends: Tensor
    """[L, B] the chance given to the end of the episode, of each state itself"""


def model_loss(
    policy: ModelPolicy, batch: Sequences, u: Tensor, config: WorldModelConfig, unroll: Unroll | None = None
) -> ModelLoss:
    """Of sequences [L, B, ..] that begin with nothing known, from uniforms [L, B, S] for their posteriors."""
    model, unroll = policy.model, unroll or Unroll()
    begins = batch.is_first.clone()
    begins[0] = True  # what led here, and what was known, lies before the sequence
    seen = model.senses.look(batch.obs)
    told = (model.senses(seen), policy.actions(batch.action), begins, u)
    states, posterior = unroll.observe(model.rssm, *told)
    features, prior = states.features, unroll.foresee(model.rssm, states.deter)
    to_posterior, to_prior = balanced(posterior, prior, config.free_nats)
    goes_on, paid, *vector = unroll.through(features, model.goes_on, model.reward, *model.senses.tellers)
    goes_on = goes_on.squeeze(-1)
    parts = {
        "observation": config.observation_coef * distance(model.senses.told(features, *vector), seen).mean(),
        "reward": unroll.losses(model.two_hot, paid, batch.reward).mean(),
        "going_on": going_on_loss(goes_on, batch.terminated, config.end_weight).mean(),
        "prior": config.prior_coef * to_posterior.mean(),
        "posterior": config.posterior_coef * to_prior.mean(),
    }
    with torch.no_grad():
        return ModelLoss(states, parts, divergence(posterior, prior).mean(), (-goes_on).sigmoid())


def going_on_loss(logits: Tensor, ended: Tensor, weight: float) -> Tensor:
    """Cross-entropy [...] in which an end counts `weight` times; the logits' own chances come to be the true ones yet.

    Who counts ends so often finds their odds as many times too high: that much is added where it is learnt, only there.
    """
    told = F.binary_cross_entropy_with_logits(logits - log(weight), (~ended).float(), reduction="none")
    return torch.where(ended, weight * told, told)


class Ends(nn.Module):
    """How well ends are told where they are seen: running sums, because there are few in a batch, or none."""

    sums: Tensor

    def __init__(self) -> None:
        super().__init__()
        # of the chances given to an end where there was one, of all of them, and of the ends
        self.register_buffer("sums", torch.zeros(3))

    @torch.no_grad()
    def learn(self, chances: Tensor, ended: Tensor) -> dict[str, Tensor]:
        """Metrics with these chances [...] counted in; NaN while there was no end."""
        found = torch.stack(((chances * ended).sum(), chances.sum(), ended.sum()))
        self.sums.mul_(MEMORY).add_(torch.where(found.isfinite().all(), found, 0))
        there, told, ends = torch.where(self.sums[2] > 0, self.sums, torch.nan)
        return {"train/model/end_recall": there / ends, "train/model/end_ratio": told / ends}


def updates_per_step(config: WorldModelConfig) -> Fraction:
    """By train_ratio, or as it is said itself."""
    ratio, said = RATIO if config.train_ratio is None else config.train_ratio, config.updates_per_step
    return Fraction(str(ratio)) / (config.batch_size * config.batch_length) if said is None else Fraction(str(said))


def updates_owed(agent: Agent, config: WorldModelConfig) -> Ratio:
    """The debt of updates of an agent, which a checkpoint holds."""
    agent.parts["ratio"] = owed = Ratio(updates_per_step(config), config.learning_starts)
    return owed


def collect_and_learn(agent: Agent, policy: ModelPolicy, config: WorldModelConfig, owed: Ratio) -> None:
    """An iteration: a few steps, at random at first, then the updates that are due for them."""
    before = agent.progress["env_steps"]
    policy.at_random = before < config.learning_starts
    agent.collect(config.train_freq)
    now = agent.progress["env_steps"]
    agent.learn_from(owed.due(now - before, now, agent.memory.ready(config.batch_length + 1)))
