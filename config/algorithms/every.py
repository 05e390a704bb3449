"""Keys of every algorithm; the text under a field is the manual, --help and docs/config.md."""

from dataclasses import dataclass, field
from typing import Any, Literal

from stride.config.plateau import Plateau
from stride.config.schedule import Schedule
from stride.config.spec import Spec

SCHEMA_VERSION = 1
CHANGES = {1: "the first version"}


@dataclass(frozen=True)
class Config:
    """The keys of every algorithm."""

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
    env_backend: Literal["auto", "fast", "gym", "ale", "torch"] = "auto"
    """fast = compiled worlds of our own, ale, torch (tensors) = theirs, gym = Gymnasium; auto = what fits."""
    workers: int | Literal["auto"] = "auto"
    """Processes that step Gymnasium's worlds, same bits; 0 = this one; auto = one a core where a step is 0.5 ms."""
    on_worker_death: Literal["stop", "restart"] = "stop"
    """Where such a process dies or hangs: stop the run, or start it again and end what it played as truncated."""
    env_kwargs: dict[str, Any] = field(default_factory=dict)
    """Arguments of the environment's constructor."""
    env_wrappers: tuple[dict[str, Any], ...] = ()
    """Wrappers, innermost first: [{id: Name, ...arguments}], by name (`--help wrappers`) or `module:Name`."""
    frame_skip: int = 1
    """Frames for which each action is repeated, below env_wrappers; an env step is then that many frames."""
    obs: Literal["native", "pixels"] = "native"
    """native = what the environment gives, pixels = a picture of it (CartPole, dm_control); above env_wrappers."""
    grayscale_obs: bool = False
    """Images as one channel of brightness."""
    resize_obs: bool | tuple[int, ...] = False
    """Images as [height, width] by averaging areas; one number is a square, true is 84 x 84."""
    frame_stack: int = 1
    """Observations shown together: the newest ones, joined along the channels of an image or as one longer vector."""
    action_mask: bool = False
    """Adds an entry `action_mask` to the observation, from spec.valid_actions, else from the environment's own info."""
    max_episode_steps: int | None = None
    """Time limit of an episode; null = the environment's own."""
    step_timeout: float | None = None
    """Seconds after which a hanging world of Gymnasium's is named and ends the run; null = never, 60 in workers."""
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
    optimizer_eps: float | Schedule = 1e-5
    """Added to the denominator of adamw, adam, rmsprop and laprop."""
    weight_decay: float | Schedule = 0.0
    """Shrinks weights at each step, decoupled from the gradient with adamw and laprop."""
    max_grad_norm: float | Schedule | None = 0.5
    """Gradients are scaled down to this norm; null = never."""
    adaptive_clip: float | None = 0.3
    """With laprop: each gradient is scaled down to this share of the norm of its own weights; null = never."""
    lr_warmup: int = 0
    """With laprop: updates over which the learning rate rises from 0."""

    # Run
    gamma: float | Schedule = 0.99
    """Discount per environment step."""
    max_timesteps: int = 0
    """Budget in env steps over all environments; there is no default."""
    seed: int = 1
    """Start of every random draw: weights, actions, shuffling and worlds."""
    device: str = "auto"
    """cpu, cuda or cuda:N; auto = cpu, also where there is a GPU: the same seed is the same run everywhere."""
    engine: Literal["auto", "eager", "fused_cpu", "graphed", "fused_gpu"] = "auto"
    """fused_cpu, fused_gpu: kernels; graphed: CUDA graphs; eager: torch; auto = the fastest that knows all of it."""
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
    eval_freq_steps: int | None = None
    """Evaluates at the first iteration at or past every so many env steps, instead of eval_freq_epochs."""
    eval_warmup_epochs: int = 0
    """The first evaluation is the first of the cadence strictly after this epoch."""
    eval_episodes: int = 10
    """Finished episodes per evaluation, spread evenly over its environments."""
    eval_deterministic: bool = True
    """Takes the most likely action instead of sampling."""
    eval_max_steps: int | None = None
    """Gives an evaluation or test up after this many steps of each environment: then it has no score; null = never."""
    eval_timeout_seconds: float | None = None
    """Gives an evaluation or test up after this time: then it has no score, and bits depend on it; null = never."""
    test_episodes: int = 100
    """Fresh episodes of the final weights: once all have ended their mean decides on the goal; 0 = none, not tested."""

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
        return {name: value for name, value in vars(self).items() if isinstance(value, Schedule)}

    def driven(self) -> tuple[str, ...]:
        """The fields whose value may change while it is trained: by the clock, or at a plateau."""
        scaled = self.plateau.scale if self.plateau else {}
        return tuple({**self.schedules(), **scaled})
