"""The common parts of algorithms with a world model: the model's loss, its prediction of ends, its updates."""

from math import log
from types import SimpleNamespace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer

from stride.agents.experience.nouns import Sequences
from stride.agents.networks.dreamer_policy import ModelPolicy
from stride.agents.networks.senses import distance
from stride.agents.networks.world_model import Guess, State, balanced, divergence

MEMORY = 0.99  # fraction of the counts of ends that remains from update to update


class ModelLoss(NamedTuple):
    """The losses of a model on a batch."""

    states: State
    """[L, B, ..] it went through, with their gradients"""
    loss: Tensor
    """which is minimised"""
    parts: dict[str, Tensor]
    """the summands of the loss, to be logged"""
    metrics: dict[str, Tensor]
    ends: Tensor
    """[L, B] the chance given to the end of the episode, of each state itself"""


def model_loss(policy: ModelPolicy, batch: Sequences, u: Tensor, live: SimpleNamespace) -> ModelLoss:
    """The loss of sequences [L, B, ..] that begin with an empty state; uniforms [L, B, S] for their posteriors.

    `live`: the agent's present values of the keys of WorldModelConfig.
    """
    model = policy.model
    is_first = batch.is_first.clone()
    is_first[0] = True  # the action and the state before it are not part of the sequence
    sensed = model.senses.look(batch.obs)
    states, posterior = model.rssm.observe(model.senses(sensed), policy.actions(batch.action), is_first, u)
    features = states.features
    pulls, metrics = ({}, {}) if posterior is None else guess_loss(model.rssm.foresee(states.deter), posterior, live)
    goes_on = model.goes_on(features).squeeze(-1)
    reward = model.reward(features)
    parts = {
        "observation": live.observation_coef * distance(model.senses.decode(features), sensed).mean(),
        "reward": model.two_hot.loss(reward, batch.reward).mean(),
        "going_on": going_on_loss(goes_on, batch.terminated, live.end_weight).mean(),
        **pulls,
    }
    with torch.no_grad():
        ends = (-goes_on).sigmoid()
    return ModelLoss(states, torch.stack([*parts.values()]).sum(), parts, metrics, ends)


def guess_loss(prior: Guess, posterior: Guess, live: SimpleNamespace) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What keeps prior and posterior close, as summands of the loss, and metrics."""
    to_posterior, to_prior = balanced(posterior, prior, live.free_nats)
    parts = {
        "prior": live.prior_coef * to_posterior.mean(),
        "posterior": live.posterior_coef * to_prior.mean(),
    }
    with torch.no_grad():
        return parts, {"train/model/kl": divergence(posterior, prior).mean()}


class ModelLosses(Protocol):
    """What answers the loss of an update, and makes its step: the agent itself, or an engine's kernels."""

    @property
    def optimizer(self) -> Optimizer: ...

    def recall_loss(self, batch: Sequences, u: Tensor) -> ModelLoss: ...


def going_on_loss(logits: Tensor, ended: Tensor, weight: float) -> Tensor:
    """Cross-entropy [...] in which an end counts `weight` times; the chances by the logits remain the true ones.

    Such a weight alone would make the odds of an end `weight` times too high: log(weight) makes up for it, in the loss.
    """
    loss = F.binary_cross_entropy_with_logits(logits - log(weight), (~ended).float(), reduction="none")
    return torch.where(ended, weight * loss, loss)


class Ends(nn.Module):
    """How well ends are predicted: running sums, because there are few ends in a batch, or none."""

    sums: Tensor

    def __init__(self) -> None:
        super().__init__()
        # of the chances given to an end where there was one, of all of them, and of the ends
        self.register_buffer("sums", torch.zeros(3))

    @torch.no_grad()
    def learn(self, chances: Tensor, ended: Tensor) -> dict[str, Tensor]:
        """Metrics with these chances [...] counted in; NaN while there was no end."""
        sums = torch.stack(((chances * ended).sum(), chances.sum(), ended.sum()))
        self.sums.mul_(MEMORY).add_(torch.where(sums.isfinite().all(), sums, 0))
        correct, predicted, ends = torch.where(self.sums[2] > 0, self.sums, torch.nan)
        return {"train/model/end_recall": correct / ends, "train/model/end_ratio": predicted / ends}
