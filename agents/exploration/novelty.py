"""What is new: three answers, each a network or a table that learns from what was seen, and pays less for it next time.

RND (Burda et al. 2018): the error of predicting what a fixed random network makes of the next observation. ICM (Pathak
et al. 2017): the error of predicting the next features from these and the action; features are learnt by telling the
action from two of them. Counts: 1 / sqrt(n) with n visits to observations of the same hash (SimHash: Tang et al. 2017).
"""

from typing import NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn

from stride.agents.exploration.sight import Features, Sight, Whitened, initialize, pieces
from stride.agents.networks.encoders import FlatEncoder
from stride.agents.networks.heads import head_for
from stride.config.exploration import Exploration
from stride.envs_fast.vec_env import Obs

FORWARD_SHARE = 0.2  # of the forward model in ICM's loss; the rest is the inverse model's
TABLE_BITS = 20  # there are 2^20 counters: 4 MiB, in every checkpoint
MIXER = -7046029254386353131  # 2^64 / golden ratio as int64, odd: its products spread over the upper bits


class Experience(NamedTuple):
    """What is learnt from: columns [T, N, ...], or [B, ...] of a minibatch."""

    obs: Obs
    action: Tensor
    next_obs: Obs
    """that the action led to"""
    known: Tensor
    """bool; not after a termination, whose last observation nobody keeps: next_obs is then of the next episode"""
    target: Tensor
    """of the intrinsic value"""


class Spaces(NamedTuple):
    """What is seen and done, and the policy's encoder, by example of which pictures are read."""

    observation: gym.Space
    action: gym.Space
    encoder: FlatEncoder

    def features(self, width: int) -> Features:
        return Features(self.observation, self.encoder, width)


class Novelty(nn.Module):
    """How new what an action led to is."""

    def __init__(self, spaces: Spaces) -> None:
        super().__init__()
        self.sight = Sight(spaces.observation)

    def judge(self, experience: Experience) -> Tensor:
        """The novelty of every row, [T, N]; of rows that are not `known` it means nothing."""
        columns = (experience.obs, experience.action, experience.next_obs)
        errors = [self.error(*piece) for piece in pieces(columns)]
        return torch.cat(errors).view_as(experience.known)

    def error(self, obs: Obs, action: Tensor, next_obs: Obs) -> Tensor:
        """The novelty of rows [B]."""
        raise NotImplementedError

    def loss(self, batch: Experience) -> Tensor:
        """What is minimised, []."""
        raise NotImplementedError

    def describe(self) -> dict[str, Tensor]:
        """Metrics of its own."""
        return {}


class RND(Novelty):
    """Random network distillation."""

    def __init__(self, spaces: Spaces, width: int) -> None:
        super().__init__(spaces)
        self.target = nn.Sequential(spaces.features(width), nn.Linear(width, width)).requires_grad_(False)
        hidden_layers = (nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.predictor = nn.Sequential(spaces.features(width), *hidden_layers, nn.Linear(width, width))

    def error(self, obs: Obs, action: Tensor, next_obs: Obs) -> Tensor:
        x = self.sight(next_obs)
        squares: Tensor = (self.predictor(x) - self.target(x)).square()
        return squares.mean(-1)

    def loss(self, batch: Experience) -> Tensor:
        return mean_of_known(self.error(batch.obs, batch.action, batch.next_obs), batch.known)


class ICM(Novelty):
    """Intrinsic curiosity module."""

    def __init__(self, spaces: Spaces, width: int) -> None:
        super().__init__(spaces)
        self.actions = FlatEncoder(spaces.action, normalize=False)  # one-hot, or numbers
        norm = nn.LayerNorm(width, elementwise_affine=False)  # else features shrink: small ones are predicted best
        self.features = nn.Sequential(spaces.features(width), nn.Linear(width, width), norm)
        inputs = width + self.actions.size
        self.forward_model = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width))
        self.head = head_for(spaces.action, width)
        self.inverse_model = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), self.head)

    def error(self, obs: Obs, action: Tensor, next_obs: Obs) -> Tensor:
        return self.forward_error(self.features(self.sight(obs)), action, self.features(self.sight(next_obs)))

    def forward_error(self, features: Tensor, action: Tensor, next_features: Tensor) -> Tensor:
        """Half the mean square between the predicted features [B, width] and the next ones, [B]."""
        predicted = self.forward_model(torch.cat([features, self.actions(action)], -1))
        squares: Tensor = (predicted - next_features).square()
        return squares.mean(-1) / 2

    def loss(self, batch: Experience) -> Tensor:
        features = self.features(self.sight(batch.obs))
        next_features = self.features(self.sight(batch.next_obs))
        told_action = self.inverse_model(torch.cat([features, next_features], -1))
        inverse_loss = mean_of_known(-self.head.log_prob(told_action, batch.action), batch.known)
        forward_loss = mean_of_known(self.forward_error(features, batch.action, next_features), batch.known)
        return (1 - FORWARD_SHARE) * inverse_loss + FORWARD_SHARE * forward_loss


class Counts(Novelty):
    """A table of counters; observations with the same hash share one.

    SimHash says on which side of each of `bits` random planes an observation lies, normalised by the statistics of the
    first rollout alone: later ones would move what was counted. Without it the hash is of every bit there is.
    """

    planes: Tensor
    multipliers: Tensor
    visits: Tensor

    def __init__(self, spaces: Spaces, bits: int, generator: torch.Generator) -> None:
        super().__init__(spaces)
        self.bits, size = bits, self.sight.flat.size
        self.first_norm = Whitened(size)
        planes = torch.randn(size + 1, bits, generator=generator)  # the last row: how far they are from the middle
        self.register_buffer("planes", planes)
        self.register_buffer("multipliers", 2 * torch.randint(-(2**62), 2**62, (size,), generator=generator) + 1)
        self.register_buffer("visits", torch.zeros(1 << TABLE_BITS, dtype=torch.int32))

    def judge(self, experience: Experience) -> Tensor:
        """Count these visits, then pay each by all of them."""
        next_pieces = pieces(experience.next_obs)
        if self.bits and not self.first_norm.count:
            for piece in next_pieces:
                self.first_norm.learn(self.sight.flat(piece))
        cells = torch.cat([self.cells(self.sight.flat(piece)) for piece in next_pieces])
        self.visits.index_add_(0, cells, experience.known.flatten().int())
        return self.visits[cells].clamp(min=1).rsqrt().view_as(experience.known)

    def cells(self, x: Tensor) -> Tensor:
        """The counters of flat observations [B, size], int64 [B]."""
        if self.bits:
            sides = self.first_norm(x) @ self.planes[:-1] + self.planes[-1] > 0
            code = (sides.long() << torch.arange(self.bits, device=x.device)).sum(-1)
        else:
            code = ((x + 0.0).view(torch.int32) * self.multipliers).sum(-1)  # -0.0 + 0.0 is 0.0
        return (code * MIXER) >> (64 - TABLE_BITS) & ((1 << TABLE_BITS) - 1)

    def loss(self, batch: Experience) -> Tensor:
        return torch.zeros_like(batch.target[0])

    def describe(self) -> dict[str, Tensor]:
        return {"train/explore/counters": (self.visits > 0).sum()}


def mean_of_known(values: Tensor, known: Tensor) -> Tensor:
    """The mean of values [B] over the rows that are known; 0 where none is."""
    return torch.where(known, values, 0).sum() / known.sum().clamp(min=1)


def make_novelty(config: Exploration, spaces: Spaces, generator: torch.Generator) -> Novelty:
    """What the config's `kind` names, with its first weights."""
    match config.kind:
        case "rnd":
            novelty: Novelty = RND(spaces, config.width)
        case "icm":
            novelty = ICM(spaces, config.width)
        case "counts":
            novelty = Counts(spaces, config.bits, generator)
    initialize(novelty, generator)
    return novelty
