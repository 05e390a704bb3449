"""Keys of algorithms that learn from whole rollouts and then discard them: PPO, REINFORCE, PQN."""

from dataclasses import dataclass
from typing import Literal

from stride.config.algorithms.every import Config
from stride.config.exploration import Exploration
from stride.config.network import Network, NetworkShape
from stride.config.schedule import FollowKL, Schedule


@dataclass(frozen=True)
class RolloutConfig(Config):
    """The keys of algorithms that learn from complete rollouts."""

    # Rollout
    n_steps: int = 128
    """Steps per environment and rollout; a rollout has n_envs * n_steps rows."""
    batch_size: float | int = 0.25
    """Rows per update: a float in (0, 1] is a fraction of the rollout, an int is rows; must divide the rollout."""
    n_epochs: int = 4
    """Passes over a rollout; the rows are reshuffled for each."""
    accumulate: int = 1
    """Minibatches averaged per optimizer step, as if batch_size were that many times larger."""

    @property
    def rollout_size(self) -> int:
        """Rows of a rollout; one row is one env step of one environment."""
        return self.n_envs * self.n_steps

    @property
    def iteration_steps(self) -> int:
        return self.rollout_size

    @property
    def minibatch_size(self) -> int:
        """Rows per update: batch_size, or for a fraction of the rollout its rows, rounded down, at least 1."""
        if isinstance(self.batch_size, float):
            return max(1, int(self.rollout_size * self.batch_size + 1e-9))  # 0.29 * 100 is 28.999999999999996
        return self.batch_size


@dataclass(frozen=True)
class PolicyGradientConfig(RolloutConfig):
    """The keys of PPO and REINFORCE."""

    # Losses
    ent_coef: float | Schedule = 0.0
    """Weight of the entropy bonus."""
    vf_coef: float | Schedule = 0.5
    """Weight of the value loss."""
    value_scale: Literal["raw", "popart"] = "raw"
    """popart = the critic learns in units of its targets' spread (van Hasselt et al. 2016); values shown stay raw."""
    value_scale_rate: float = 0.1
    """With popart: how far the running moments of targets move per rollout; their start is debiased."""
    actor: Network | None = None
    """What the actor has otherwise than the critic: a block; null = nothing."""
    critic: Network | None = None
    """What the critic has otherwise than the actor: a block; null = nothing."""

    @property
    def has_blocks(self) -> bool:
        """Whether the actor or the critic has a block with its own settings."""
        return self.actor is not None or self.critic is not None

    @property
    def actor_shape(self) -> NetworkShape:
        """Settings of the actor's network."""
        return self._shape.with_block(self.actor)

    @property
    def critic_shape(self) -> NetworkShape:
        """Settings of the critic's network."""
        return self._shape.with_block(self.critic)

    @property
    def _shape(self) -> NetworkShape:
        return NetworkShape(self.hidden_dims, self.activation, init="orthogonal")


@dataclass(frozen=True)
class PPOConfig(PolicyGradientConfig):
    """Proximal policy optimization (Schulman et al. 2017)."""

    # PPO
    policy_lr: float | Schedule | FollowKL = 3e-4  # type: ignore[assignment]  # more than the other algorithms take
    """Learning rate of actor and critic; kl_0.008 = it follows the KL divergence, see below."""
    gae_lambda: float | Schedule = 0.95
    """Generalized advantage estimation: 0 = one-step, 1 = Monte Carlo."""
    clip_range: float | Schedule = 0.2
    """PPO clipping: how far the probability ratio may leave 1 before its gradient stops."""
    clip_range_vf: float | Schedule | None = None
    """How far a value may move from the old one before its gradient stops; null = no clipping."""
    target_kl: float | Schedule | None = None
    """Stop the updates on a rollout when the approximate KL divergence exceeds this; null = never."""
    normalize_advantages: Literal["batch", "rollout", "off"] = "batch"
    """Normalize advantages to mean 0 and standard deviation 1: per minibatch, per rollout, or off."""
    lag: Literal[0, 1] = 0
    """1: the actor of the previous iteration plays a rollout, corrected by V-trace; 0: the current actor plays it."""
    exploration: Exploration | None = None
    """Intrinsic rewards for what is new: a block; null = none."""


@dataclass(frozen=True)
class REINFORCEConfig(PolicyGradientConfig):
    """Monte Carlo policy gradient (Williams 1992)."""

    # REINFORCE
    batch_size: float | int = 1.0
    """Rows per update: a float in (0, 1] is a fraction of the rollout, an int is rows; must divide the rollout."""
    n_epochs: int = 1
    """Passes over a rollout; with more than one, the gradient is off-policy and uncorrected."""
    vf_coef: float | Schedule = 0.5
    """Weight of the value loss; only with policy_targets: advantages."""
    returns_type: Literal["mc:rtg", "mc:episode"] = "mc:rtg"
    """Return that weights a step: the rest of the episode (reward-to-go) or the whole episode."""
    policy_targets: Literal["returns", "advantages"] = "returns"
    """Weight of the log probability: the return, or the return minus the critic's value."""
    normalize_returns: Literal["batch", "rollout", "off"] = "rollout"
    """Normalize these weights to mean 0 and standard deviation 1: per minibatch, per rollout, or off."""


@dataclass(frozen=True)
class PQNConfig(RolloutConfig):
    """Q-learning from rollouts, without replay and without a target network (Gallici et al. 2024)."""

    # PQN
    activation: Literal["tanh", "relu"] = "relu"
    """Nonlinearity after each hidden layer."""
    max_grad_norm: float | Schedule | None = 10.0
    """Clip gradients to this norm; null = never."""
    epsilon: float | Schedule = 0.05
    """Share of random actions during training."""
    return_lambda: float | Schedule = 0.65
    """Lambda of the targets: 0 = one step plus the next value, 1 = the rewards of the whole rollout."""
    value_scale: Literal["raw", "popart"] = "raw"
    """popart = the critic learns in units of its targets' spread (van Hasselt et al. 2016); values shown stay raw."""
    value_scale_rate: float = 0.1
    """With popart: how far the running moments of targets move per rollout; their start is debiased."""
    exploration: Exploration | None = None
    """Intrinsic rewards for what is new: a block; null = none."""
