"""Three measures of how new an observation is; each learns from what was seen, so it falls when that is seen again.

RND (Burda et al. 2018): the error of a network that predicts a fixed random network's output for the next observation.
ICM (Pathak et al. 2017): the error of predicting the next observation's features from the present ones and the action;
the features are learnt by predicting the action from two consecutive ones.
Counts: 1 / sqrt(n), with n visits to observations of the same hash (SimHash: Tang et al. 2017).
Letters in shapes: T steps, N environments, B rows.
"""

from typing import NamedTuple

import gymnasium as gym
import torch
from torch import Tensor, nn

from stride.agents.exploration.sight import ClippedNorm, Features, Sight, initialize, pieces
from stride.agents.networks.encoders import FlatEncoder
from stride.agents.networks.heads import head_for
from stride.config.exploration import Exploration
from stride.envs_fast.vec_env import Obs

FORWARD_SHARE = 0.2  # weight of the forward model in ICM's loss (the paper's beta); the rest is the inverse model's
TABLE_BITS = 20  # log2 of the number of counters, which take 4 MiB in every checkpoint
HASH_MULTIPLIER = -7046029254386353131  # 2^64 / golden ratio as int64 (Fibonacci hashing: the upper bits are used)


class Experience(NamedTuple):
    """What novelty and intrinsic critic learn from: a rollout's columns [T, N, ...], or a minibatch's [B, ...]."""

    obs: Obs
    action: Tensor
    next_obs: Obs
    """what the action led to"""
    known: Tensor
    """bool; False for terminated rows: their last observation is not stored, so next_obs is of the next episode"""
    target: Tensor
    """the target of the intrinsic critic; 0 without one"""


class Spaces(NamedTuple):
    """The spaces of observations and actions, and the policy's encoder, which shows how images are to be read."""

    observation: gym.Space
    action: gym.Space
    encoder: FlatEncoder

    def features(self, width: int) -> Features:
        """Make a new network from normalised observations to `width` features."""
        return Features(self.observation, self.encoder, width)


class Novelty(nn.Module):
    """Measures how new the observation is that an action led to."""

    def __init__(self, spaces: Spaces) -> None:
        super().__init__()
        self.sight = Sight(spaces.observation)

    def judge(self, experience: Experience) -> Tensor:
        """Return the novelty of every row, [T, N]; it is meaningless in rows that are not `known`."""
        columns = (experience.obs, experience.action, experience.next_obs)
        errors = [self.error(*piece) for piece in pieces(columns)]
        return torch.cat(errors).view_as(experience.known)

    def error(self, obs: Obs, action: Tensor, next_obs: Obs) -> Tensor:
        """Return the novelty of rows, [B]."""
        raise NotImplementedError

    def loss(self, batch: Experience) -> Tensor:
        """Return the loss on a minibatch, []."""
        raise NotImplementedError

    def describe(self) -> dict[str, Tensor]:
        """Return metrics of this measure; {} if there are none."""
        return {}


class RND(Novelty):
    """Random network distillation: novelty = mean over features of (predictor(o') - target(o'))^2, o' = next_obs."""

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
    """Intrinsic curiosity module: loss = (1 - beta) L_inverse + beta L_forward; novelty = L_forward of each row."""

    def __init__(self, spaces: Spaces, width: int) -> None:
        super().__init__(spaces)
        self.actions = FlatEncoder(spaces.action, normalize=False)  # one-hot, or numbers
        norm = nn.LayerNorm(width, elementwise_affine=False)  # else features shrink: small ones are easy to predict
        self.features = nn.Sequential(spaces.features(width), nn.Linear(width, width), norm)
        inputs = width + self.actions.size
        self.forward_model = nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width))
        self.head = head_for(spaces.action, width)
        self.inverse_model = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), self.head)

    def error(self, obs: Obs, action: Tensor, next_obs: Obs) -> Tensor:
        return self.forward_error(self.features(self.sight(obs)), action, self.features(self.sight(next_obs)))

    def forward_error(self, features: Tensor, action: Tensor, next_features: Tensor) -> Tensor:
        """Return L_forward, half the mean squared error of the predicted next features [B, width]. -> [B]"""
        predicted = self.forward_model(torch.cat([features, self.actions(action)], -1))
        squares: Tensor = (predicted - next_features).square()
        return squares.mean(-1) / 2

    def loss(self, batch: Experience) -> Tensor:
        features = self.features(self.sight(batch.obs))
        next_features = self.features(self.sight(batch.next_obs))
        action_parameters = self.inverse_model(torch.cat([features, next_features], -1))
        inverse_loss = mean_of_known(-self.head.log_prob(action_parameters, batch.action), batch.known)
        forward_loss = mean_of_known(self.forward_error(features, batch.action, next_features), batch.known)
        return (1 - FORWARD_SHARE) * inverse_loss + FORWARD_SHARE * forward_loss


class Counts(Novelty):
    """A table of visit counters; observations with the same hash share a counter. Nothing here has gradients.

    With `bits` > 0 the hash is SimHash: on which side of each of `bits` random planes an observation lies. Observations
    are normalised by the statistics of the first rollout only, since later changes would move them to other counters.
    With `bits` 0 the hash is of all bits of the observation.
    """

    planes: Tensor
    multipliers: Tensor
    visits: Tensor

    def __init__(self, spaces: Spaces, bits: int, generator: torch.Generator) -> None:
        super().__init__(spaces)
        self.bits, size = bits, self.sight.flat.size
        self.first_norm = ClippedNorm(size)
        planes = torch.randn(size + 1, bits, generator=generator)  # the last row: offsets of the planes
        self.register_buffer("planes", planes)
        self.register_buffer("multipliers", 2 * torch.randint(-(2**62), 2**62, (size,), generator=generator) + 1)
        self.register_buffer("visits", torch.zeros(1 << TABLE_BITS, dtype=torch.int32))

    def judge(self, experience: Experience) -> Tensor:
        """Count the visits of a whole rollout first, then return 1 / sqrt(visits) for each row, [T, N]."""
        next_pieces = pieces(experience.next_obs)
        if self.bits and not self.first_norm.count:
            for piece in next_pieces:
                self.first_norm.learn(self.sight.flat(piece))
        cells = torch.cat([self.cells(self.sight.flat(piece)) for piece in next_pieces])
        self.visits.index_add_(0, cells, experience.known.flatten().int())
        return self.visits[cells].clamp(min=1).rsqrt().view_as(experience.known)

    def cells(self, x: Tensor) -> Tensor:
        """Return the indices of the counters of flat observations [B, size], int64 [B]."""
        if self.bits:
            sides = self.first_norm(x) @ self.planes[:-1] + self.planes[-1] > 0
            code = (sides.long() << torch.arange(self.bits, device=x.device)).sum(-1)
        else:
            code = ((x + 0.0).view(torch.int32) * self.multipliers).sum(-1)  # + 0.0 turns -0.0 into 0.0
        return (code * HASH_MULTIPLIER) >> (64 - TABLE_BITS) & ((1 << TABLE_BITS) - 1)

    def loss(self, batch: Experience) -> Tensor:
        return torch.zeros_like(batch.target[0])

    def describe(self) -> dict[str, Tensor]:
        return {"train/explore/counters": (self.visits > 0).sum()}


def mean_of_known(values: Tensor, known: Tensor) -> Tensor:
    """Return the mean [] of values [B] over the rows that are `known`; 0 if there are none."""
    return torch.where(known, values, 0).sum() / known.sum().clamp(min=1)


def make_novelty(config: Exploration, spaces: Spaces, generator: torch.Generator) -> Novelty:
    """Make the measure that the config's `kind` names, with first weights drawn from `generator`."""
    match config.kind:
        case "rnd":
            novelty: Novelty = RND(spaces, config.width)
        case "icm":
            novelty = ICM(spaces, config.width)
        case "counts":
            novelty = Counts(spaces, config.bits, generator)
    initialize(novelty, generator)
    return novelty
