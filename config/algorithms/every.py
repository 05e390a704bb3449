"""Keys that every algorithm has. The text under a field is what --help and docs/config.md say about the key."""

from dataclasses import dataclass, field
from typing import Any, Literal

from stride.config.plateau import Plateau
from stride.config.schedule import FollowKL, Schedule
from stride.config.spec import Spec

SCHEMA_VERSION = 1
CHANGES = {1: "the first version"}


@dataclass(frozen=True)
class Config:
    """The keys of every algorithm."""

    # Identity
    env_id: str = ""
    """Environment id; default: the name of the YAML file."""
    variant: str = ""
    """Block of the YAML file that this config comes from; set by ENV:VARIANT."""
    algo_id: str = ""
    """Algorithm, or your own as `module:Agent`; default: the variant's name, if it is an algorithm."""
    project_id: str = ""
    """Project of the run in trackers; default: the name of the YAML file."""
    description: str = ""
    """One line for --list-envs."""
    schema_version: int = SCHEMA_VERSION
    """Version of these keys; a config of another version is refused, with the list of changes."""
    spec: Spec = field(default_factory=Spec)
    """Description of the environment: goal, names and bounds."""

    # Environment
    n_envs: int = 8
    """Number of parallel environments."""
    env_backend: Literal["auto", "fast", "gym", "ale", "torch"] = "auto"
    """fast = Stride's compiled ones, ale = ALE's vector, torch = tensors, gym = Gymnasium; auto = what fits."""
    workers: int | Literal["auto"] = "auto"
    """Worker processes for Gymnasium; same results; 0 = none; auto = one per core if a step takes 0.5 ms or more."""
    on_worker_death: Literal["stop", "restart"] = "stop"
    """When a worker dies or hangs: stop the run, or restart the worker and end its episodes as truncated."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Constructor arguments of the environment."""
    env_wrappers: tuple[dict[str, Any], ...] = ()
    """Wrappers, innermost first: [{id: Name, ...arguments}], by name (`--help wrappers`) or `module:Name`."""
    frame_skip: int = 1
    """Each action is repeated for this many frames, below env_wrappers; one env step is then that many frames."""
    obs: Literal["native", "pixels"] = "native"
    """native = the environment's observations, pixels = its image (CartPole, dm_control); above env_wrappers."""
    grayscale_obs: bool = False
    """Convert images to one grey channel."""
    resize_obs: bool | tuple[int, ...] = False
    """Resize images to [height, width] by averaging areas; one number = a square, true = 84 x 84."""
    frame_stack: int = 1
    """Number of recent observations joined into one: along the channels of an image, or as one longer vector."""
    action_mask: bool = False
    """Add `action_mask` to the observation, from spec.valid_actions or else from the environment's info."""
    max_episode_steps: int | None = None
    """Time limit of an episode; null = the environment's own."""
    step_timeout: float | None = None
    """Seconds after which a hanging Gymnasium environment is reported and ends the run; null = never (workers: 60)."""
    normalize_obs: Literal[False, "rolling", "static"] = False
    """true or rolling = by running mean and variance, stored in the policy; static = by the bounds of the space."""
    normalize_reward: bool = False
    """Divide rewards by the running standard deviation of the discounted return; reported returns stay raw."""

    # Policy
    policy: str = "mlp"
    """Network: mlp, cnn (images), lstm, gru, mingru or transformer (memory), or your own `module:Name`."""
    policy_kwargs: dict[str, Any] = field(default_factory=dict)
    """log_std_init; cnn (nature, residual, small), features, channels, kernel; hidden_size, layers, heads, window."""
    hidden_dims: tuple[int, ...] = (64, 64)
    """Width of each hidden layer; one number = one layer. The last width is that of the memory, if any."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Nonlinearity after each hidden layer."""
    share_trunk: bool = False
    """Actor and critic share their hidden layers."""

    # Optimizer
    optimizer: Literal["adamw", "adam", "radam", "rmsprop", "sgd", "laprop"] = "adamw"
    """Optimizer."""
    policy_lr: float | Schedule = 3e-4
    """Learning rate of actor and critic."""
    optimizer_eps: float | Schedule = 1e-5
    """Added to the denominator of adamw, adam, radam, rmsprop and laprop."""
    weight_decay: float | Schedule = 0.0
    """Weight decay per step; decoupled from the gradient with adamw and laprop."""
    max_grad_norm: float | Schedule | None = 0.5
    """Clip gradients to this norm; null = never."""
    adaptive_clip: float | None = 0.3
    """With laprop: clip each gradient to this share of the norm of its weights; null = never."""
    lr_warmup: int = 0
    """With laprop: number of updates over which the learning rate rises from 0."""

    # Run
    gamma: float | Schedule = 0.99
    """Discount per environment step."""
    max_timesteps: int = 0
    """Budget in env steps over all environments; required."""
    seed: int = 1
    """Seed of all random numbers: weights, actions, shuffling and environments."""
    device: str = "auto"
    """cpu, cuda or cuda:N; auto = cpu, even with a GPU, so that a seed gives the same run on every machine."""
    engine: Literal["auto", "eager", "fused_cpu", "graphed", "fused_gpu"] = "auto"
    """fused_cpu, fused_gpu: kernels; graphed: CUDA graphs; eager: torch; auto = the fastest that fits the config."""
    precision: Literal[32, "tf32", "bf16"] = 32
    """Precision of matrix products: 32, tf32 (cuda) or bf16; weights, losses, returns and optimizer stay float32."""
    threads: int | Literal["auto"] = "auto"
    """CPU threads; auto = the fastest number with fused_cpu, else 1: results of eager may depend on the number."""
    shards: int = 1
    """Parts of the worlds and of each minibatch, which processes can share (ppo, reinforce, pqn); docs/scale.md."""
    collectors: int = 0
    """Ray actors that play whole rollouts of slow environments, with the bits of shards (--on ray); docs/scale.md."""
    epoch_iterations: int = 1
    """Iterations (collect and learn) per epoch, the unit of the ..._epochs keys."""
    log_freq_epochs: int | None = None
    """Epochs between rows of metrics.csv and the console; null = about 200 rows per run, the first ones early."""

    # Evaluation
    eval_freq_epochs: int | Literal["auto"] | None = "auto"
    """Epochs between evaluations; auto = 10 to 40 per run, by the length of episodes; null or 0 = off."""
    eval_freq_steps: int | None = None
    """Env steps between evaluations, instead of eval_freq_epochs; at the first iteration that reaches the number."""
    eval_warmup_epochs: int = 0
    """No evaluation up to and including this epoch."""
    eval_episodes: int = 10
    """Episodes per evaluation, spread evenly over its environments."""
    eval_deterministic: bool = True
    """In evaluations, take the most likely action instead of sampling."""
    eval_max_steps: int | None = None
    """Abort an evaluation or test after this many steps per environment; it then has no score; null = never."""
    eval_timeout_seconds: float | None = None
    """Abort an evaluation or test after this time; it then has no score, so results depend on speed; null = never."""
    test_episodes: int = 100
    """Fresh episodes in the closing test; if all end, their mean return decides on the goal; 0 = no test."""

    # Stopping and checkpoints
    early_stop_on_train_threshold: bool | float = False
    """Stop when the mean training return reaches the goal (true) or this number."""
    early_stop_on_eval_threshold: bool | float = True
    """Stop when the mean evaluation return reaches the goal (true) or this number, and the closing test confirms it."""
    early_stop_patience: int = 1
    """How many times in a row the threshold must be reached."""
    plateau: Plateau | None = None
    """What to do when a metric stops improving; the only way evaluations may steer training; null = nothing."""
    checkpoint_freq_epochs: int | None = None
    """Epochs between checkpoints; null = at every best evaluation, at others while saving takes under 1 % of time."""

    checkpoint_minutes: float | None = 10.0
    """Save a checkpoint after this many minutes without one; null = never."""
    checkpoint_keep_last: int | None = 10
    """Number of newest epoch checkpoints to keep; null = all. best and last are always kept."""
    checkpoint_keep_best: int = 1
    """Number of checkpoints with the best evaluations to keep."""

    # Guards
    nan_guard: Literal["stop", "skip", "off"] = "stop"
    """At a NaN or infinity: stop = end the run and report it, skip = skip the affected updates, off = do not check."""

    # Videos
    video_freq_epochs: int | None = None
    """Epochs between videos of one evaluation episode, videos/epoch=NN.mp4; null or 0 = none."""
    video_max_steps: int = 1000
    """Longest video, in steps."""

    # Trackers
    logger: tuple[Literal["csv", "tensorboard", "wandb", "trackio"], ...] = ("csv",)
    """Trackers that receive metrics, in addition to metrics.csv; see docs/trackers.md."""
    tags: tuple[str, ...] = ()
    """Tags of the run in trackers."""
    notes: str = ""
    """Notes shown beside the run in trackers."""

    # Your own code
    callbacks: tuple[str | dict[str, Any], ...] = ()
    """Lightning callbacks: `module:Name` or {id: module:Name, ...arguments}; checkpoints store their state_dict."""

    @property
    def iteration_steps(self) -> int:
        """Env steps of one iteration, over all environments."""
        return self.n_envs

    @property
    def on_cuda(self) -> bool:
        """Whether the config asks for a GPU."""
        return self.device.startswith("cuda")

    @property
    def torch_threads(self) -> int:
        """CPU threads of torch; 1 for auto, because the rounding of large sums depends on the number."""
        return 1 if self.threads == "auto" else self.threads

    def schedules(self) -> dict[str, Schedule]:
        """Return field -> schedule, of the fields that follow one."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Schedule)}

    def driven(self) -> tuple[str, ...]:
        """Return the fields whose value may change during training: by a schedule, at a plateau or by FollowKL."""
        scaled = self.plateau.scale if self.plateau else {}
        following = {name: value for name, value in vars(self).items() if isinstance(value, FollowKL)}
        return tuple({**self.schedules(), **scaled, **following})
