"""What algorithms with a world model share: when they collect and learn, the model's loss, how well it tells ends."""

from fractions import Fraction
from math import log
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from stride.agents.base import Agent
from stride.agents.experience.nouns import Sequences
from stride.agents.experience.ratio import Ratio
from stride.agents.networks.dreamer_policy import ModelPolicy
from stride.agents.networks.senses import distance
from stride.agents.networks.world_model import State, balanced, divergence
from stride.config.schema import WorldModelConfig

RATIO = 128  # remembered steps learnt from per env step, where the config says nothing
MEMORY = 0.99  # share of what was counted of ends that is kept from update to update


class ModelLoss(NamedTuple):
    """What a batch says of a model."""

    states: State
    """[L, B, ..] it went through, with their gradients"""
    loss: Tensor
    """what is minimised"""
    parts: dict[str, Tensor]
    """whose sum it is, to be told"""
    metrics: dict[str, Tensor]
    ends: Tensor
    """[L, B] the chance given to the end of the episode, of each state itself"""


def model_loss(policy: ModelPolicy, batch: Sequences, u: Tensor, config: WorldModelConfig) -> ModelLoss:
    """Of sequences [L, B, ..] that begin with nothing known, from uniforms [L, B, S] for their posteriors."""
    model = policy.model
    begins = batch.is_first.clone()
    begins[0] = True  # what led here, and what was known, lies before the sequence
    seen = model.senses.look(batch.obs)
    told = (model.senses(seen), policy.actions(batch.action), begins, u)
    states, posterior = model.rssm.observe(*told)
    features, prior = states.features, model.rssm.foresee(states.deter)
    to_posterior, to_prior = balanced(posterior, prior, config.free_nats)
    goes_on, paid, tale = model.goes_on(features).squeeze(-1), model.reward(features), model.senses.tell(features)
    parts = {
        "observation": config.observation_coef * distance(tale, seen).mean(),
        "reward": model.two_hot.loss(paid, batch.reward).mean(),
        "going_on": going_on_loss(goes_on, batch.terminated, config.end_weight).mean(),
        "prior": config.prior_coef * to_posterior.mean(),
        "posterior": config.posterior_coef * to_prior.mean(),
    }
    with torch.no_grad():
        metrics = {"train/model/kl": divergence(posterior, prior).mean()}
        ends = (-goes_on).sigmoid()
    return ModelLoss(states, torch.stack([*parts.values()]).sum(), parts, metrics, ends)


class ModelLosses(Protocol):
    """What answers the loss of an update, and makes its step: the agent itself, or an engine's kernels."""

    @property
    def optimizer(self) -> Optimizer: ...

    def recall_loss(self, batch: Sequences, u: Tensor) -> ModelLoss: ...


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
