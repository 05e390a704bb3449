"""Keys of algorithms that reuse old steps: DQN, SAC, TQC and TD3 with a replay memory; and of tabular Q-learning."""

from dataclasses import dataclass
from typing import Literal

from stride.config.algorithms.every import Config
from stride.config.network import Init, Network, NetworkShape, Norm
from stride.config.schedule import Schedule


@dataclass(frozen=True)
class ReplayConfig(Config):
    """The keys of algorithms that learn from remembered steps."""

    n_envs: int = 1
    """Number of parallel environments."""
    hidden_dims: tuple[int, ...] = (256, 256)
    """Width of each hidden layer; one number = one layer."""
    activation: Literal["tanh", "relu"] = "relu"
    """Nonlinearity after each hidden layer."""
    optimizer: Literal["adamw", "adam", "radam", "rmsprop", "sgd", "laprop"] = "adam"
    """Optimizer."""
    optimizer_eps: float | Schedule = 1e-8
    """Added to the denominator of adamw, adam, radam, rmsprop and laprop."""
    epoch_iterations: int = 1000
    """Iterations (collect and learn) per epoch, the unit of the ..._epochs keys."""

    # Replay
    buffer_size: int = 1_000_000
    """Size of the replay memory in env steps over all environments; the oldest are overwritten."""
    replay_storage: Literal["ram", "memmap"] = "ram"
    """Where the replay memory is: ram = memory of the learning device, memmap = an unnamed file beside the runs."""
    batch_size: int = 256
    """Transitions per update."""
    learning_starts: int = 100
    """Env steps over all environments with random actions before the first update."""
    train_freq: int = 1
    """Steps per environment between two rounds of updates."""
    gradient_steps: int = 1
    """Updates per round; -1 = one per collected env step."""
    updates_per_step: float | None = None
    """Updates per env step over all environments; fractions are carried over; null = use gradient_steps."""

    @property
    def iteration_steps(self) -> int:
        return self.n_envs * self.train_freq


@dataclass(frozen=True)
class TransitionConfig(ReplayConfig):
    """The keys of algorithms that learn from single transitions of their memory, not from sequences."""

    # Transitions
    n_step: int = 1
    """n-step returns: number of rewards summed before the next value is added."""
    prioritised: bool = False
    """Prioritized replay: draw transitions with a larger error more often (Schaul et al. 2016)."""
    priority_alpha: float = 0.6
    """Strength of the priorities: 0 = uniform, 1 = proportional to the error."""
    priority_beta: float | Schedule = 0.4
    """Importance correction of prioritized updates: 0 = none, 1 = full."""
    value_scale: Literal["raw", "popart"] = "raw"
    """popart = the critic learns in units of its targets' spread (van Hasselt et al. 2016); values shown stay raw."""
    value_scale_rate: float = 0.001
    """With popart: how far the running moments of targets move per update; their start is debiased."""


@dataclass(frozen=True)
class DQNConfig(TransitionConfig):
    """Deep Q-learning (Mnih et al. 2015) and what has been added to it."""

    # DQN
    gamma: float | Schedule = 0.99
    """Discount per environment step; on a schedule a step keeps that of the iteration that collected it."""
    policy_lr: float | Schedule = 1e-4
    """Learning rate of the whole policy."""
    max_grad_norm: float | Schedule | None = 10.0
    """Clip gradients to this norm; null = never."""
    batch_size: int = 32
    """Transitions per update."""
    train_freq: int = 4
    """Steps per environment between two rounds of updates."""
    epsilon: float | Schedule = 0.05
    """Share of random actions during training; 1 until learning starts."""
    target_freq: int = 10_000
    """Env steps between two updates of the target network."""
    tau: float | Schedule = 1.0
    """How far the target network moves towards the network at each of these updates; 1 = a copy."""
    double_q: bool = True
    """Double Q: the network chooses the next action, the target network values it (van Hasselt et al. 2016)."""
    dueling: bool = False
    """Dueling network: a value of the state plus advantages of the actions (Wang et al. 2016)."""
    quantiles: int | None = None
    """Quantiles of the return learnt for each action (QR-DQN, Dabney et al. 2018); null = only the mean."""
    huber: float | Schedule | None = 1.0
    """Error above which the loss is linear; null = always squared."""


@dataclass(frozen=True)
class BoundedConfig(TransitionConfig):
    """The keys of actor-critics whose actions are numbers with bounds."""

    # Actor and critics
    max_grad_norm: float | Schedule | None = None
    """Clip gradients to this norm; null = never."""
    tau: float | Schedule = 0.005
    """How far the target networks move towards the networks per update of theirs; 1 = a copy."""
    noise_correlation: float = 0.0
    """Correlation of the acting noise between steps: 0 = none; near 1, a push lasts for many steps."""
    noise_hold: int = 1
    """Most steps that a draw of acting noise is held; how many is drawn, n with a chance of 1 / n^2; 1 = none."""

    actor_every: int = 1
    """Updates of the critics per update of the actor, and of the entropy weight with it."""

    # Networks
    norm: Norm = "none"
    """Norm of each hidden layer before its nonlinearity; batch also norms the inputs, and plays by running moments."""
    blocks: int = 0
    """Residual blocks, in between 4 times as wide as hidden_dims, which is one number, then an RMS norm; 0 = layers."""
    init: Init = "uniform"
    """First weights: uniform within +-1 / sqrt(inputs), or orthogonal matrices with biases of 0."""
    weight_projection: bool = False
    """Scale each row of weights to length 1 after each update, and the factors of norms to their first length."""
    joint_batch: bool = False
    """Critics see (s, a) and (s', a') as one batch, whose moments norm: batch takes (CrossQ, Bhatt et al. 2024)."""
    bins: int | None = None
    """Bins of a critic that learns the distribution of returns (C51, Bellemare et al. 2017); null = only the mean."""
    bin_range: float = 5.0
    """The outermost bins are +-this; returns beyond count as these. With normalize_reward they are scaled to fit."""
    actor: Network | None = None
    """What the actor has otherwise than the critics: a block; null = nothing."""
    critic: Network | None = None
    """What the critics have otherwise than the actor: a block; null = nothing."""

    @property
    def actor_shape(self) -> NetworkShape:
        """Settings of the actor's network."""
        return self._shape.with_block(self.actor)

    @property
    def critic_shape(self) -> NetworkShape:
        """Settings of each critic's network."""
        return self._shape.with_block(self.critic)

    @property
    def _shape(self) -> NetworkShape:
        return NetworkShape(self.hidden_dims, self.activation, self.norm, self.blocks, self.init)


@dataclass(frozen=True)
class SACConfig(BoundedConfig):
    """Soft actor-critic (Haarnoja et al. 2018)."""

    # SAC
    recipe: Literal["flash", "crossq"] | None = None
    """Published values of other keys at once: flash (FlashSAC, 2026), crossq; keys beside it win; null = none."""
    ent_coef: float | Schedule | None = None
    """Weight of the entropy; null = learnt, to keep the entropy at target_entropy."""
    target_entropy: float | None = None
    """Target of the entropy; null = minus one nat per action dimension."""
    target_std: float | None = None
    """Target of the entropy as the deviation of a Gaussian in each action dimension; null = target_entropy."""
    initial_alpha: float = 1.0
    """Weight of the entropy at the start, where it is learnt."""


@dataclass(frozen=True)
class TQCConfig(SACConfig):
    """SAC with quantiles of the return, the largest of which are left out of targets (Kuznetsov et al. 2020)."""

    # TQC
    n_critics: int = 2
    """Critics side by side."""
    quantiles: int = 25
    """Quantiles of the return learnt by each critic."""
    drop_quantiles: int = 2
    """Largest quantiles per critic that are left out of a target: more = lower values; 0 = none."""


@dataclass(frozen=True)
class TD3Config(BoundedConfig):
    """TD3 (Fujimoto et al. 2018); with actor_every 1, n_critics 1 and target_noise 0 it is DDPG."""

    # TD3
    n_critics: int = 2
    """Critics side by side; the least of their values is a target's."""
    actor_every: int = 2
    """Updates of the critics per update of actor and targets."""
    action_noise: float | Schedule = 0.1
    """Deviation of the acting noise, where actions lie within +-1."""
    target_noise: float = 0.2
    """Deviation of the noise on the target actor's actions, which smooths the critics; 0 = none."""
    target_noise_clip: float = 0.5
    """Largest noise on the target actor's actions."""


@dataclass(frozen=True)
class QLearningConfig(Config):
    """Tabular Q-learning (Watkins 1989): networks, optimizers and normalization have no meaning here."""

    # Q-learning
    policy_lr: float | Schedule = 0.1
    """Initial step size: how far a value moves towards its target."""
    visits_power: float = 0.0
    """Step size of a state-action pair: policy_lr / visits^this; 0 = constant; above 0.5, noise averages out."""
    epsilon: float | Schedule = 0.1
    """Share of random actions during training."""
    initial_q: float = 0.0
    """Initial value of every state-action pair; a high value encourages exploration."""
    n_steps: int = 1
    """Steps per environment before the values are updated, one after the other."""

    @property
    def iteration_steps(self) -> int:
        return self.n_envs * self.n_steps
