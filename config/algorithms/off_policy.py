"""Keys of algorithms that remember: DQN and SAC by a replay memory, Q-learning by its table."""

from dataclasses import dataclass
from typing import Literal

from stride.config.algorithms.every import Config
from stride.config.schedule import Schedule


@dataclass(frozen=True)
class ReplayConfig(Config):
    """The keys of algorithms that learn from remembered steps."""

    n_envs: int = 1
    """Environments stepped side by side."""
    hidden_dims: tuple[int, ...] = (256, 256)
    """Width of each hidden layer; one number stands for one layer."""
    activation: Literal["tanh", "relu"] = "relu"
    """Nonlinearity after each hidden layer."""
    optimizer: Literal["adamw", "adam", "rmsprop", "sgd", "laprop"] = "adam"
    """How gradients become steps."""
    optimizer_eps: float | Schedule = 1e-8
    """Added to the denominator of adamw, adam, rmsprop and laprop."""
    epoch_iterations: int = 1000
    """Iterations (collect and learn) per epoch, the unit of the ..._epochs keys."""

    # Replay
    buffer_size: int = 1_000_000
    """Env steps remembered over all environments; the oldest are overwritten."""
    replay_storage: Literal["ram", "memmap"] = "ram"
    """Where they lie: in the memory of the device that learns, or in a file without a name beside the runs."""
    batch_size: int = 256
    """Remembered steps per update."""
    learning_starts: int = 100
    """Env steps over all environments that are played at random before the first update."""
    train_freq: int = 1
    """Steps of each environment between two rounds of updates."""
    gradient_steps: int = 1
    """Updates per round; -1 = as many as env steps were collected."""
    updates_per_step: float | None = None
    """Updates per env step over all environments, what is left of one is carried on; null = gradient_steps says it."""

    @property
    def iteration_steps(self) -> int:
        return self.n_envs * self.train_freq


@dataclass(frozen=True)
class DQNConfig(ReplayConfig):
    """Deep Q-learning (Mnih et al. 2015) and what has been added to it."""

    # DQN
    gamma: float | Schedule = 0.99
    """Discount per environment step; on a schedule a step keeps that of the iteration that collected it."""
    policy_lr: float | Schedule = 1e-4
    """Learning rate of the whole policy."""
    max_grad_norm: float | Schedule | None = 10.0
    """Gradients are scaled down to this norm; null = never."""
    batch_size: int = 32
    """Remembered steps per update."""
    train_freq: int = 4
    """Steps of each environment between two rounds of updates."""
    epsilon: float | Schedule = 0.05
    """Share of the actions that are random while training; 1 until learning starts."""
    target_freq: int = 10_000
    """Env steps between two updates of the target network."""
    tau: float | Schedule = 1.0
    """How far the target network moves towards the network at each of them; 1 = a copy."""
    double_q: bool = True
    """The network chooses the next action and the target network values it (van Hasselt et al. 2016)."""
    dueling: bool = False
    """The network is the value of the state and the advantages of the actions (Wang et al. 2016)."""
    n_step: int = 1
    """Rewards that are added up before the value of what follows counts."""
    quantiles: int | None = None
    """Quantiles of the return learnt for each action (QR-DQN, Dabney et al. 2018); null = its mean."""
    huber: float | Schedule | None = 1.0
    """Error from which on the loss is linear; null = squared everywhere."""
    prioritised: bool = False
    """Steps with a larger error are drawn more often (Schaul et al. 2016)."""
    priority_alpha: float = 0.6
    """How much more often: 0 = equally often, 1 = in proportion to the error."""
    priority_beta: float | Schedule = 0.4
    """How far that is made up for by smaller updates: 0 = not at all, 1 = fully."""


@dataclass(frozen=True)
class SACConfig(ReplayConfig):
    """Soft actor-critic (Haarnoja et al. 2018)."""

    # SAC
    max_grad_norm: float | Schedule | None = None
    """Gradients are scaled down to this norm; null = never."""
    tau: float | Schedule = 0.005
    """How far the target critics move towards the critics with each update; 1 = a copy."""
    ent_coef: float | Schedule | None = None
    """Weight of the entropy; null = learnt, so that the entropy stays at its target."""
    target_entropy: float | None = None
    """That target; null = one nat below zero for each number of an action."""
    noise_correlation: float = 0.0
    """Share of the acting noise that is kept from one step to the next: 0 = none, near 1 pushes last."""


@dataclass(frozen=True)
class QLearningConfig(Config):
    """Tabular Q-learning (Watkins 1989): networks, optimizers and normalization have no meaning here."""

    # Q-learning
    policy_lr: float | Schedule = 0.1
    """How far a value moves towards its target, at first."""
    visits_power: float = 0.0
    """The step size of a pair is policy_lr / visits^this: 0 = it stays, above 0.5 the noise averages out."""
    epsilon: float | Schedule = 0.1
    """Share of the actions that are random while training."""
    initial_q: float = 0.0
    """Value of every pair before it was met; a high one explores what is unknown."""
    n_steps: int = 1
    """Steps of each environment before the values are updated, one after the other."""

    @property
    def iteration_steps(self) -> int:
        return self.n_envs * self.n_steps
