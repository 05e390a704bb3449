"""Keys of algorithms that learn a world model: Dreamer, PlaNet."""

from dataclasses import dataclass
from typing import Literal

from stride.config.algorithms.off_policy import ReplayConfig
from stride.config.schedule import Schedule


@dataclass(frozen=True)
class WorldModelConfig(ReplayConfig):
    """The keys of algorithms that learn a world model from remembered sequences, with their networks."""

    # World model
    n_envs: int = 8
    """Environments stepped side by side."""
    optimizer: Literal["adamw", "adam", "rmsprop", "sgd", "laprop"] = "laprop"
    """How gradients become steps."""
    policy_lr: float | Schedule = 4e-4
    """Learning rate of everything that is learnt."""
    optimizer_eps: float | Schedule = 1e-20
    """Added to the denominator of adamw, adam, rmsprop and laprop."""
    max_grad_norm: float | Schedule | None = None
    """Gradients are scaled down to this norm; null = never."""
    lr_warmup: int = 200
    """With laprop: updates over which the learning rate rises from 0."""
    epoch_iterations: int = 125
    """Iterations (collect and learn) per epoch, the unit of the ..._epochs keys."""
    batch_size: int = 16
    """Sequences per update."""
    batch_length: int = 32
    """Steps of each sequence, final observations counted."""
    learning_starts: int = 512
    """Env steps over all environments that are played at random before the first update."""
    train_ratio: float | None = None
    """updates_per_step * batch_size * batch_length, of which one may be given; null = 128, unless the other is."""
    size: Literal["small", "1m", "12m"] = "small"
    """How large everything is where the next keys do not say it: 0.2 million weights, or DreamerV3's own sizes."""
    deter: int | None = None
    """Numbers the model remembers by; null = as in its size: 128, 512, 2048."""
    stoch: int | None = None
    """Choices it guesses at each step; null = as in its size: 8, 32, 32."""
    classes: int | None = None
    """Options of each of them; null = as in its size: 8, 4, 16."""
    width: int | None = None
    """Units of every hidden layer; null = as in its size: 64, 64, 256."""
    depth: int | None = None
    """Channels of the first convolution, where images are seen; null = as in its size: 16, 4, 16."""
    bins: int | None = None
    """Bins that rewards and values are classes of, an odd number; null = as in its size: 63, 255, 255."""
    unimix: float = 0.01
    """Share of uniform chances in every guess."""
    free_nats: float | Schedule = 1.0
    """Divergence of prior and posterior below which neither is pulled."""
    prior_coef: float | Schedule = 1.0
    """Weight of pulling the prior to the posterior."""
    posterior_coef: float | Schedule = 0.1
    """Weight of pulling the posterior to the prior."""
    observation_coef: float | Schedule = 1.0
    """Weight of telling what is seen: more where what matters are few pixels, or small numbers."""
    end_weight: float | Schedule = 1.0
    """How many times as much an end counts as a step that goes on; the chances given to ends stay true."""
    horizon: int = 15
    """Steps imagined."""


@dataclass(frozen=True)
class DreamerConfig(WorldModelConfig):
    """Dreamer, third version (Hafner et al. 2023)."""

    # Dreamer
    gamma: float | Schedule = 0.997
    """Discount per environment step."""
    imagined_starts: int = 128
    """States per update from which to imagine, of the batch_size * batch_length there are."""
    return_lambda: float | Schedule = 0.95
    """Targets: 0 = one step and the value after it, 1 = everything imagined."""
    return_rate: float | Schedule = 0.01
    """How fast the range of returns follows those imagined; above 1, advantages are divided by it."""
    ent_coef: float | Schedule = 3e-4
    """Weight of the entropy bonus."""
    tau: float | Schedule = 0.02
    """How far the slow critic moves towards the critic with each update; 1 = a copy."""
    slow_coef: float | Schedule = 1.0
    """Weight of the critic's staying near the slow one."""
    replay_value_coef: float | Schedule = 0.3
    """Weight of learning values from remembered rewards, too, not from imagined ones alone."""


@dataclass(frozen=True)
class PlaNetConfig(WorldModelConfig):
    """Planning by the cross-entropy method in the states of a world model (Hafner et al. 2019)."""

    # PlaNet
    gamma: float = 1.0
    """Discount per environment step, of what a plan promises; it stays, as what was learnt plans by it, too."""
    free_nats: float | Schedule = 0.2
    """Divergence of prior and posterior below which neither is pulled."""
    horizon: int = 12
    """Steps imagined."""
    rounds: int = 2
    """Times that sequences of actions are drawn, each time more like the best of those before."""
    candidates: int = 48
    """Sequences of each round."""
    elites: int = 8
    """The best of them, which the next ones are drawn like."""
    epsilon: float | Schedule = 0.1
    """Share of the actions that are random while training."""
