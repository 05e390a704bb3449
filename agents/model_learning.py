"""What Dreamer and PlaNet share: the loss of the world model, and how well it predicts ends of episodes.

Letters in shapes: L steps of a replayed sequence, B sequences, S categorical variables of the model's state.
"""

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

ENDS_DECAY = 0.99  # the sums of `Ends` are multiplied by this in each update


class ModelLoss(NamedTuple):
    """The losses of a world model on a batch of sequences."""

    states: State
    """[L, B, ..] the posterior states of the batch, with gradients"""
    loss: Tensor
    """[] the sum that is minimised"""
    parts: dict[str, Tensor]
    """the summands of the loss by name, to be logged"""
    metrics: dict[str, Tensor]
    ends: Tensor
    """[L, B] the predicted probability that the episode ends at this state"""


def model_loss(policy: ModelPolicy, batch: Sequences, u: Tensor, live: SimpleNamespace) -> ModelLoss:
    """Return the model's losses on sequences [L, B, ..]; every sequence begins with an empty state.

    loss = observation_coef E[distance] + E[-log p(reward)] + E[-log p(goes on)] + the KL terms of `guess_loss`

    `u` [L, B, S]: uniforms that draw the posterior states. `live`: the present values of the keys of WorldModelConfig.
    """
    model = policy.model
    is_first = batch.is_first.clone()
    is_first[0] = True  # the action and the state before it are not part of the sequence
    sensed = model.senses.look(batch.obs)
    states, posterior = model.rssm.observe(model.senses(sensed), policy.actions(batch.action), is_first, u)
    features = states.features
    kl_terms, metrics = ({}, {}) if posterior is None else guess_loss(model.rssm.foresee(states.deter), posterior, live)
    goes_on = model.goes_on(features).squeeze(-1)
    reward = model.reward(features)
    parts = {
        "observation": live.observation_coef * distance(model.senses.decode(features), sensed).mean(),
        "reward": model.two_hot.loss(reward, batch.reward).mean(),
        "going_on": going_on_loss(goes_on, batch.terminated, live.end_weight).mean(),
        **kl_terms,
    }
    with torch.no_grad():
        ends = (-goes_on).sigmoid()
    return ModelLoss(states, torch.stack([*parts.values()]).sum(), parts, metrics, ends)


def guess_loss(prior: Guess, posterior: Guess, live: SimpleNamespace) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the KL terms that keep prior and posterior close, the paper's L_dyn and L_rep, and metrics.

    prior:       prior_coef E[max(free_nats, KL(sg(posterior) || prior))]
    posterior:   posterior_coef E[max(free_nats, KL(posterior || sg(prior)))],  sg: without gradient
    """
    to_posterior, to_prior = balanced(posterior, prior, live.free_nats)
    parts = {
        "prior": live.prior_coef * to_posterior.mean(),
        "posterior": live.posterior_coef * to_prior.mean(),
    }
    with torch.no_grad():
        return parts, {"train/model/kl": divergence(posterior, prior).mean()}


class ModelLosses(Protocol):
    """What computes the loss of an update, and owns its optimizer: the agent itself, or an engine's kernels."""

    @property
    def optimizer(self) -> Optimizer: ...

    def recall_loss(self, batch: Sequences, u: Tensor) -> ModelLoss: ...


def going_on_loss(logits: Tensor, ended: Tensor, weight: float) -> Tensor:
    """Binary cross-entropy of "the episode goes on", in which ends (`ended` bool) count `weight` times. -> [...]

    Such a weight alone would make the predicted odds of an end `weight` times too high. Subtracting log(weight) from
    the logits, inside the loss only, corrects this: sigmoid(logits) [...] stays the true probability.
    """
    loss = F.binary_cross_entropy_with_logits(logits - log(weight), (~ended).float(), reduction="none")
    return torch.where(ended, weight * loss, loss)


class Ends(nn.Module):
    """Measures how well ends of episodes are predicted, by running sums, because a batch has few ends or none."""

    sums: Tensor

    def __init__(self) -> None:
        super().__init__()
        # sums of: predicted probabilities of an end at true ends; all such probabilities; true ends
        self.register_buffer("sums", torch.zeros(3))

    @torch.no_grad()
    def learn(self, chances: Tensor, ended: Tensor) -> dict[str, Tensor]:
        """Add predicted probabilities and true ends (bool), both [...]; -> metrics, NaN before the first end."""
        sums = torch.stack(((chances * ended).sum(), chances.sum(), ended.sum()))
        self.sums.mul_(ENDS_DECAY).add_(torch.where(sums.isfinite().all(), sums, 0))
        correct, predicted, ends = torch.where(self.sums[2] > 0, self.sums, torch.nan)
        return {"train/model/end_recall": correct / ends, "train/model/end_ratio": predicted / ends}
