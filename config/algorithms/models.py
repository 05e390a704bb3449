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
    """Number of parallel environments."""
    optimizer: Literal["adamw", "adam", "radam", "rmsprop", "sgd", "laprop"] = "laprop"
    """Optimizer."""
    policy_lr: float | Schedule = 4e-4
    """Learning rate of model, actor and critic."""
    optimizer_eps: float | Schedule = 1e-20
    """Added to the denominator of adamw, adam, radam, rmsprop and laprop."""
    max_grad_norm: float | Schedule | None = None
    """Clip gradients to this norm; null = never."""
    lr_warmup: int = 200
    """With laprop: number of updates over which the learning rate rises from 0."""
    epoch_iterations: int = 125
    """Iterations (collect and learn) per epoch, the unit of the ..._epochs keys."""
    batch_size: int = 16
    """Sequences per update."""
    batch_length: int = 32
    """Steps per sequence, final observations included."""
    learning_starts: int = 512
    """Env steps over all environments with random actions before the first update."""
    train_ratio: float | None = None
    """updates_per_step * batch_size * batch_length; give this or updates_per_step; null = 128 if neither is given."""
    size: Literal["small", "1m", "12m"] = "small"
    """Default of the next six keys: 0.2 million weights, or a size of DreamerV3."""
    deter: int | None = None
    """Width of the model's recurrent state; null = by model size: 128, 512, 2048."""
    stoch: int | None = None
    """Categorical variables of the model's state; 0 = none, it is deterministic; null = by model size: 8, 32, 32."""
    classes: int | None = None
    """Classes of each categorical variable; null = by model size: 8, 4, 16."""
    width: int | None = None
    """Units of every hidden layer; null = by model size: 64, 64, 256."""
    depth: int | None = None
    """Channels of the first convolution, for images; null = by model size: 16, 4, 16."""
    bins: int | None = None
    """Bins for rewards and values, an odd number; null = by model size: 63, 255, 255."""
    unimix: float = 0.01
    """Share of the uniform distribution mixed into every categorical variable."""
    free_nats: float | Schedule = 1.0
    """Free nats: no gradient while the divergence of prior and posterior is below this."""
    prior_coef: float | Schedule = 1.0
    """Weight of the loss that moves the prior to the posterior."""
    posterior_coef: float | Schedule = 0.1
    """Weight of the loss that moves the posterior to the prior."""
    observation_coef: float | Schedule = 1.0
    """Weight of the observation loss; raise it if few pixels or small numbers matter."""
    end_weight: float | Schedule = 1.0
    """Weight of an episode's end in the loss, relative to other steps; predicted probabilities stay calibrated."""
    horizon: int = 15
    """Imagined steps."""


@dataclass(frozen=True)
class DreamerConfig(WorldModelConfig):
    """Dreamer, third version (Hafner et al. 2023)."""

    # Dreamer
    gamma: float | Schedule = 0.997
    """Discount per environment step."""
    imagined_starts: int = 128
    """Start states of imagination per update, out of batch_size * batch_length."""
    return_lambda: float | Schedule = 0.95
    """Lambda of the return targets: 0 = one step plus the next value, 1 = the whole imagined rollout."""
    return_rate: float | Schedule = 0.01
    """How fast the range of returns follows the imagined returns; if above 1, it divides advantages."""
    ent_coef: float | Schedule = 3e-4
    """Weight of the entropy bonus."""
    tau: float | Schedule = 0.02
    """How far the slow critic moves towards the critic per update; 1 = a copy."""
    slow_coef: float | Schedule = 1.0
    """Weight of the loss that keeps the critic near the slow critic."""
    replay_value_coef: float | Schedule = 0.3
    """Weight of the value loss on replayed rewards, in addition to imagined ones."""


@dataclass(frozen=True)
class PlaNetConfig(WorldModelConfig):
    """Planning by the cross-entropy method in the states of a world model (Hafner et al. 2019)."""

    # PlaNet
    gamma: float = 1.0
    """Discount per environment step, in the value of a plan; constant, because a trained policy plans with it, too."""
    free_nats: float | Schedule = 0.2
    """Free nats: no gradient while the divergence of prior and posterior is below this."""
    horizon: int = 12
    """Imagined steps."""
    rounds: int = 2
    """Rounds of drawing action sequences; each round draws near the best of the previous one."""
    candidates: int = 48
    """Sequences per round."""
    elites: int = 8
    """Number of best sequences that the next round is drawn from."""
    epsilon: float | Schedule = 0.1
    """Share of random actions during training."""
