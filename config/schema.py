"""Every key a config may have, its type and default; the text under a field is the manual, --help and docs/config.md.

Ranges and rules between fields live in checks.py, reading files and overrides in loader.py."""

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from config.plateau import Plateau
from config.schedule import Schedule
from config.spec import Spec

SCHEMA_VERSION = 1
CHANGES = {1: "the first version"}


@dataclass(frozen=True)
class Config:
    """What every algorithm has."""

    # Identity
    env_id: str = ""
    """Environment; the name of the YAML file where it is not given."""
    variant: str = ""
    """Block of the YAML file this config comes from; set by ENV:VARIANT."""
    algo_id: str = ""
    """Algorithm, one's own as `module:Agent`; the variant's name where that is one."""
    project_id: str = ""
    """Groups runs in trackers; the name of the YAML file where it is not given."""
    description: str = ""
    """One line for --list-envs."""
    schema_version: int = SCHEMA_VERSION
    """Version of these keys; an old run's config is refused with the list of changes."""
    spec: Spec = field(default_factory=Spec)
    """The environment described: goal, names and bounds."""

    # Environment
    n_envs: int = 8
    """Environments stepped side by side."""
    env_backend: Literal["auto", "fast", "gym"] = "auto"
    """fast = compiled environments of our own, gym = Gymnasium, auto = fast where there is one."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment's constructor."""
    env_wrappers: tuple[dict[str, Any], ...] = ()
    """Wrappers, innermost first: [{id: Name, ...arguments}], of the registry or `module:Name`."""
    frame_skip: int = 1
    """Frames for which each action is repeated, below env_wrappers; an env step is then that many frames."""
    obs: Literal["native", "pixels"] = "native"
    """native = what the environment gives, pixels = a picture of it drawn by us; above env_wrappers."""
    grayscale_obs: bool = False
    """Images as one channel of brightness."""
    resize_obs: bool | tuple[int, ...] = False
    """Images as [height, width] by averaging areas; one number is a square, true is 84 x 84."""
    frame_stack: int = 1
    """Observations shown together: the newest ones, joined along the channels of an image or as one longer vector."""
    action_mask: bool = False
    """Adds a leaf `action_mask` to the observation, from spec.valid_actions, else from the environment's own info."""
    max_episode_steps: int | None = None
    """Time limit of an episode; null = the environment's own."""
    step_timeout: float | None = None
    """Seconds after which one of Gymnasium's worlds that does not answer is named and ends the run; null = never."""
    normalize_obs: Literal[False, "rolling", "static"] = False
    """true = rolling: running mean and variance, kept inside the policy; static: from the space's bounds."""
    normalize_reward: bool = False
    """Divides rewards by the running deviation of the discounted return; returns are always reported raw."""

    # Policy
    policy: str = "mlp"
    """Network of the policy: mlp, cnn (images), lstm or gru (memory), or `module:Name` of one's own."""
    policy_kwargs: dict[str, Any] = field(default_factory=dict)
    """Its options: log_std_init; cnn, lstm, gru: cnn: nature | residual, features: 512; lstm, gru: hidden_size."""
    hidden_dims: tuple[int, ...] = (64, 64)
    """Width of each hidden layer; one number stands for one layer. With lstm and gru the last one is the memory."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Nonlinearity after each hidden layer."""
    share_trunk: bool = False
    """Actor and critic share their hidden layers."""

    # Optimizer
    optimizer: Literal["adamw", "adam", "rmsprop", "sgd", "laprop"] = "adamw"
    """How gradients become steps."""
    policy_lr: float | Schedule = 3e-4
    """Learning rate of the whole policy, critic included."""
    optimizer_eps: float = 1e-5
    """Added to the denominator of adamw, adam, rmsprop and laprop."""
    weight_decay: float = 0.0
    """Shrinks weights at each step, decoupled from the gradient with adamw and laprop."""
    max_grad_norm: float | Schedule | None = 0.5
    """Gradients are scaled down to this norm; null = never."""
    adaptive_clip: float | None = 0.3
    """With laprop: each gradient is scaled down to this share of the norm of its own weights; null = never."""
    lr_warmup: int = 0
    """With laprop: updates over which the learning rate rises from 0."""

    # Run
    gamma: float = 0.99
    """Discount per environment step."""
    max_timesteps: int = 0
    """Budget in env steps over all environments; there is no default."""
    seed: int = 1
    """Start of every random draw: weights, actions, shuffling and worlds."""
    device: str = "auto"
    """cpu, cuda or cuda:N; auto = cpu, also where there is a GPU: the same seed is the same run everywhere."""
    engine: Literal["auto", "eager", "fused_cpu", "graphed"] = "auto"
    """fused_cpu: kernels, on cpu; graphed: CUDA graphs, on cuda; eager: torch; auto = the fastest that knows it all."""
    precision: Literal[32, "tf32", "bf16"] = 32
    """Of the networks' products: 32, tf32 on cuda, or bf16; weights, losses, returns and optimizer stay float32."""
    threads: int | Literal["auto"] = "auto"
    """CPU threads; auto = what pays with fused_cpu, whose results do not depend on it, else 1: sums of eager may."""
    epoch_iterations: int = 1
    """Iterations (collect and learn) per epoch, the unit of the ..._epochs keys."""
    log_freq_epochs: int | None = None
    """Epochs between rows of metrics.csv and the console; null = about 200 rows a run, the first of them early."""

    # Evaluation
    eval_freq_epochs: int | Literal["auto"] | None = "auto"
    """Epochs between evaluations; auto = 10 to 40 a run, by how long their episodes may be; null or 0 = off."""
    eval_warmup_epochs: int = 0
    """The first evaluation is the first of the cadence strictly after this epoch."""
    eval_episodes: int = 10
    """Finished episodes per evaluation, spread evenly over its environments."""
    eval_deterministic: bool = True
    """Takes the most likely action instead of sampling."""
    eval_max_steps: int | None = None
    """Gives an evaluation up after this many steps of each environment; null = never."""
    test_episodes: int = 100
    """Fresh episodes of the final weights that decide whether the goal is reached; 0 = none, then it is not tested."""

    # Stopping and checkpoints
    early_stop_on_train_threshold: bool | float = False
    """Stops when the mean training return reaches the goal (true) or this number."""
    early_stop_on_eval_threshold: bool | float = True
    """Stops when the mean evaluation return reaches the goal (true) or this number, and test_episodes confirm it."""
    early_stop_patience: int = 1
    """How many times in a row the threshold has to be reached."""
    plateau: Plateau | None = None
    """What to do where a metric gets no better: the one way for an evaluation to steer training; null = nothing."""
    checkpoint_freq_epochs: int | None = None
    """Epochs between checkpoints; null = with every best evaluation, with others while that takes 1 % of the time."""

    checkpoint_minutes: float | None = 10.0
    """Minutes without a checkpoint after which one is written between two iterations; null = never."""
    checkpoint_keep_last: int | None = 10
    """Checkpoints of ended epochs that are kept, the newest ones; null = all. best and last always are."""
    checkpoint_keep_best: int = 1
    """Checkpoints that are kept for their evaluation, the best ones."""

    # Guards
    nan_guard: Literal["stop", "skip", "off"] = "stop"
    """At the first NaN or infinity: stop and name it, skip the updates that would have learnt from it, or not look."""

    # Videos
    video_freq_epochs: int | None = None
    """Epochs between videos of an evaluation episode, videos/epoch=NN.mp4; null or 0 = none."""
    video_max_steps: int = 1000
    """Steps after which a video ends, whether or not the episode has."""

    # Trackers
    logger: tuple[Literal["csv", "tensorboard", "wandb", "trackio"], ...] = ("csv",)
    """Where numbers go beside metrics.csv, which is always written; docs/trackers.md says what each wants."""
    tags: tuple[str, ...] = ()
    """Words to find the run by in trackers."""
    notes: str = ""
    """What a tracker shows beside the run."""

    # Code of one's own
    callbacks: tuple[str | dict[str, Any], ...] = ()
    """Lightning callbacks, `module:Name` or {id: module:Name, ...arguments}; a checkpoint keeps their state_dict."""

    @property
    def iteration_steps(self) -> int:
        """Env steps of an iteration, over all environments."""
        return self.n_envs

    @property
    def on_cuda(self) -> bool:
        """Whether it is trained on a GPU, as far as the config says."""
        return self.device.startswith("cuda")

    @property
    def torch_threads(self) -> int:
        """Threads of torch, by which large sums are rounded: one, where it is left to us."""
        return 1 if self.threads == "auto" else self.threads

    def schedules(self) -> dict[str, Schedule]:
        """The fields that change with the clock."""
        values = ((item.name, getattr(self, item.name)) for item in fields(self))
        return {name: value for name, value in values if isinstance(value, Schedule)}

    def driven(self) -> tuple[str, ...]:
        """The fields whose value may change while it is trained: by the clock, or at a plateau."""
        return (*dict.fromkeys((*self.schedules(), *(self.plateau.scale if self.plateau else ()))),)


@dataclass(frozen=True)
class RolloutConfig(Config):
    """What every algorithm has that learns from whole rollouts."""

    # Rollout
    n_steps: int = 128
    """Steps of each environment per rollout; a rollout has n_envs * n_steps rows."""
    batch_size: float | int = 0.25
    """Rows per update: a float in (0, 1] is a fraction of the rollout, an int is rows; must divide it evenly."""
    n_epochs: int = 4
    """Passes over a rollout, reshuffled each time."""
    accumulate: int = 1
    """Minibatches whose gradients are averaged before a step is made: as if batch_size were that many times larger."""

    @property
    def rollout_size(self) -> int:
        """Rows of a rollout, which is also the env steps of an iteration."""
        return self.n_envs * self.n_steps

    @property
    def iteration_steps(self) -> int:
        return self.rollout_size

    @property
    def minibatch_size(self) -> int:
        """Rows per update: batch_size with a fraction resolved (floor, at least 1)."""
        if isinstance(self.batch_size, float):
            return max(1, int(self.rollout_size * self.batch_size + 1e-9))  # 0.29 * 100 is 28.999999999999996
        return self.batch_size


@dataclass(frozen=True)
class PolicyGradientConfig(RolloutConfig):
    """What PPO and REINFORCE have."""

    # Losses
    ent_coef: float | Schedule = 0.0
    """Weight of the entropy bonus."""
    vf_coef: float | Schedule = 0.5
    """Weight of the value loss."""


@dataclass(frozen=True)
class PPOConfig(PolicyGradientConfig):
    """Proximal policy optimization (Schulman et al. 2017)."""

    # PPO
    gae_lambda: float = 0.95
    """Generalized advantage estimation: 0 = one-step, 1 = Monte Carlo."""
    clip_range: float | Schedule = 0.2
    """How far the probability ratio may leave 1 before its gradient stops."""
    clip_range_vf: float | Schedule | None = None
    """How far a value may move from the old one before its gradient stops; null = no clipping."""
    target_kl: float | Schedule | None = None
    """Ends this rollout's updates once the approximate KL divergence exceeds it; null = never."""
    normalize_advantages: Literal["batch", "rollout", "off"] = "batch"
    """Mean 0 and deviation 1 over each minibatch, over the rollout, or not at all."""


@dataclass(frozen=True)
class REINFORCEConfig(PolicyGradientConfig):
    """Monte Carlo policy gradient (Williams 1992)."""

    # REINFORCE
    batch_size: float | int = 1.0
    """Rows per update: a float in (0, 1] is a fraction of the rollout, an int is rows; must divide it evenly."""
    n_epochs: int = 1
    """Passes over a rollout; more than one leaves the gradient off-policy and uncorrected."""
    vf_coef: float | Schedule = 0.5
    """Weight of the value loss; only with policy_targets: advantages."""
    returns_type: Literal["mc:rtg", "mc:episode"] = "mc:rtg"
    """Return that weighs a step: from there on (reward-to-go) or of the whole episode."""
    policy_targets: Literal["returns", "advantages"] = "returns"
    """Weight of the log probability: the return, or the return less the critic's value."""
    normalize_returns: Literal["batch", "rollout", "off"] = "rollout"
    """Mean 0 and deviation 1 of those weights over each minibatch, over the rollout, or not at all."""


@dataclass(frozen=True)
class ReplayConfig(Config):
    """What every algorithm has that learns from remembered steps."""

    n_envs: int = 1
    """Environments stepped side by side."""
    hidden_dims: tuple[int, ...] = (256, 256)
    """Width of each hidden layer; one number stands for one layer."""
    activation: Literal["tanh", "relu"] = "relu"
    """Nonlinearity after each hidden layer."""
    optimizer: Literal["adamw", "adam", "rmsprop", "sgd", "laprop"] = "adam"
    """How gradients become steps."""
    optimizer_eps: float = 1e-8
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
    tau: float = 1.0
    """How far the target network moves towards the network at each of them; 1 = a copy."""
    double_q: bool = True
    """The network chooses the next action and the target network values it (van Hasselt et al. 2016)."""
    dueling: bool = False
    """The network is the value of the state and the advantages of the actions (Wang et al. 2016)."""
    n_step: int = 1
    """Rewards that are added up before the value of what follows counts."""
    quantiles: int | None = None
    """Quantiles of the return learnt for each action (QR-DQN, Dabney et al. 2018); null = its mean."""
    huber: float | None = 1.0
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
    tau: float = 0.005
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


@dataclass(frozen=True)
class PQNConfig(RolloutConfig):
    """Q-learning from rollouts, without replay and without a target network (Gallici et al. 2024)."""

    # PQN
    activation: Literal["tanh", "relu"] = "relu"
    """Nonlinearity after each hidden layer."""
    max_grad_norm: float | Schedule | None = 10.0
    """Gradients are scaled down to this norm; null = never."""
    epsilon: float | Schedule = 0.05
    """Share of the actions that are random while training."""
    return_lambda: float = 0.65
    """Targets: 0 = one step and the value after it, 1 = the rewards of the whole rollout."""


@dataclass(frozen=True)
class WorldModelConfig(ReplayConfig):
    """What every algorithm has that learns a world model from remembered sequences; its network has keys of its own."""

    # World model
    n_envs: int = 8
    """Environments stepped side by side."""
    optimizer: Literal["adamw", "adam", "rmsprop", "sgd", "laprop"] = "laprop"
    """How gradients become steps."""
    policy_lr: float | Schedule = 4e-4
    """Learning rate of everything that is learnt."""
    optimizer_eps: float = 1e-20
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
    free_nats: float = 1.0
    """Divergence of prior and posterior below which neither is pulled."""
    prior_coef: float = 1.0
    """Weight of pulling the prior to the posterior."""
    posterior_coef: float = 0.1
    """Weight of pulling the posterior to the prior."""
    observation_coef: float = 1.0
    """Weight of telling what is seen: more where what matters are few pixels, or small numbers."""
    end_weight: float = 1.0
    """How many times as much an end counts as a step that goes on; the chances given to ends stay true."""
    horizon: int = 15
    """Steps imagined."""


@dataclass(frozen=True)
class DreamerConfig(WorldModelConfig):
    """Dreamer, third version (Hafner et al. 2023)."""

    # Dreamer
    gamma: float = 0.997
    """Discount per environment step."""
    imagined_starts: int = 128
    """States per update from which to imagine, of the batch_size * batch_length there are."""
    return_lambda: float = 0.95
    """Targets: 0 = one step and the value after it, 1 = everything imagined."""
    return_rate: float = 0.01
    """How fast the range of returns follows those imagined; above 1, advantages are divided by it."""
    ent_coef: float | Schedule = 3e-4
    """Weight of the entropy bonus."""
    tau: float = 0.02
    """How far the slow critic moves towards the critic with each update; 1 = a copy."""
    slow_coef: float = 1.0
    """Weight of the critic's staying near the slow one."""
    replay_value_coef: float = 0.3
    """Weight of learning values from remembered rewards, too, not from imagined ones alone."""


@dataclass(frozen=True)
class PlaNetConfig(WorldModelConfig):
    """Planning by the cross-entropy method in the states of a world model (Hafner et al. 2019)."""

    # PlaNet
    gamma: float = 1.0
    """Discount per environment step, of what a plan promises."""
    free_nats: float = 0.2
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


ALGORITHMS: dict[str, type[Config]] = {
    "ppo": PPOConfig,
    "reinforce": REINFORCEConfig,
    "dqn": DQNConfig,
    "sac": SACConfig,
    "q_learning": QLearningConfig,
    "pqn": PQNConfig,
    "dreamer": DreamerConfig,
    "planet": PlaNetConfig,
}


def register_algorithm(algo_id: str, config: type[Config]) -> None:
    """Makes the keys of an algorithm known; agents/algorithms.py says it of each of its rows.

    A class written above is known without it, also to programs that never load torch."""
    if ALGORITHMS.setdefault(algo_id, config) is not config:
        raise ValueError(f"{algo_id} has the keys of {ALGORITHMS[algo_id].__name__}, not of {config.__name__}")
