"""Checks the ranges of numbers and the rules between keys of a finished config; loader.py calls `check`.

It runs after file, inheritance and overrides have been put together. Names and types of keys are already right then."""

import re
from bisect import bisect_right
from math import inf, isqrt
from typing import NamedTuple

from stride.config.conflicts import TwoNetworks, conflicts
from stride.config.exploration import Exploration
from stride.config.fields import schedulable
from stride.config.metrics import declared, load_metrics
from stride.config.plateau import EVALUATED, Plateau
from stride.config.plugins import DOTTED
from stride.config.schedule import FollowKL, Schedule
from stride.config.schema import (
    CHANGES,
    SCHEMA_VERSION,
    BoundedConfig,
    Config,
    PPOConfig,
    PQNConfig,
    QLearningConfig,
    REINFORCEConfig,
    ReplayConfig,
    RolloutConfig,
    TQCConfig,
    WorldModelConfig,
)
from stride.config.sizes import check_shards, check_sizes
from stride.config.spec import Quantity, Spec
from stride.config.world_models import check_world_model
from stride.utils.user_error import LARGEST, UserError, errors_in, nearest

MIN_ROWS = 100  # smallest replay memory, in rows per environment
DEVICE = re.compile(r"auto|cpu|cuda(:(0|[1-9]\d{0,8}))?")


class Range(NamedTuple):
    """The values that a number may have, from `low` to `high`; `above` excludes `low` itself."""

    low: float
    high: float = inf
    above: bool = False

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high and not (self.above and value == self.low)

    def __str__(self) -> str:
        lower_bound = f"above {self.low}" if self.above else f"at least {self.low}"
        return lower_bound if self.high == inf else f"{lower_bound} and at most {self.high}"


COUNT, POSITIVE, NOT_NEGATIVE, FRACTION = Range(1), Range(0, above=True), Range(0), Range(0, 1)
RATE = Range(0, 1, above=True)
FACTOR = Range(0.001, 1000)  # of plateau.scale
RANGE_GROUPS = (  # (range, the keys that have it)
    (COUNT, (
        "max_timesteps", "n_envs", "max_episode_steps", "hidden_dims", "epoch_iterations", "log_freq_epochs",
        "eval_freq_epochs", "eval_freq_steps", "eval_episodes", "eval_max_steps", "early_stop_patience",
        "checkpoint_freq_epochs", "n_steps", "n_epochs", "video_freq_epochs", "video_max_steps", "checkpoint_keep_last",
        "accumulate", "shards", "noise_hold",
        "frame_skip", "frame_stack", "resize_obs", "buffer_size", "train_freq", "target_freq", "n_step", "quantiles",
        "deter", "width", "depth", "horizon", "imagined_starts", "rounds", "elites", "n_critics", "actor_every",
    )),
    (POSITIVE, (
        "step_timeout", "eval_timeout_seconds", "policy_lr", "optimizer_eps", "max_grad_norm", "adaptive_clip",
        "clip_range", "clip_range_vf", "bin_range", "target_std", "initial_alpha", "lr_scale",
        "target_kl", "batch_size", "checkpoint_minutes", "updates_per_step", "huber", "train_ratio", "end_weight",
    )),
    (NOT_NEGATIVE, (
        "eval_warmup_epochs", "test_episodes", "weight_decay", "lr_warmup", "ent_coef", "vf_coef",
        "checkpoint_keep_best", "learning_starts", "free_nats", "prior_coef", "posterior_coef", "slow_coef",
        "replay_value_coef", "observation_coef", "stoch", "drop_quantiles", "action_noise", "target_noise",
        "target_noise_clip", "blocks",
    )),
    (FRACTION, (
        "gamma", "gae_lambda", "epsilon", "priority_alpha", "priority_beta", "return_lambda", "visits_power",
    )),
    (RATE, ("tau", "unimix", "return_rate", "value_scale_rate")),
    (Range(2), ("batch_length", "classes", "candidates")),
    (Range(1, 1024), ("threads",)),
    (Range(0, 1024), ("workers", "collectors")),
    (Range(0, 2**63 - 1), ("seed",)),
    (Range(-1), ("gradient_steps",)),
    (Range(0, 0.9999), ("noise_correlation",)),
    (Range(3), ("bins",)),
)  # fmt: skip
RANGES = {name: allowed for allowed, names in RANGE_GROUPS for name in names}  # key -> range
EXPLORATION_RANGES = {  # for the keys of the exploration block
    "coef": NOT_NEGATIVE, "gamma": FRACTION, "lr": POSITIVE, "width": Range(1, 1 << 12), "bits": Range(0, 62),
}  # fmt: skip


def check(config: Config, where: str) -> None:
    """Raise UserError for the first value or combination that cannot be trained; `where` begins the message."""
    with errors_in(where):
        check_version(config.schema_version)
        if config.max_timesteps == 0:
            raise UserError("max_timesteps is missing: give the budget in env steps, for example 1e5")
        for name, allowed in RANGES.items():
            _check_range(name, vars(config).get(name), allowed, config.max_timesteps)
        check_sizes(config)
        _check_device(config)
        _check_worlds(config)
        _check_plateau(config, config.plateau)
        _check_spec(config.spec)
        learns_raw = isinstance(config, ReplayConfig | PQNConfig) and not isinstance(config, BoundedConfig)
        if config.normalize_reward and learns_raw:
            raise UserError(f"normalize_reward: {config.algo_id} learns from raw rewards; scale them in a wrapper")
        _check_value_scale(config)
        if isinstance(config, RolloutConfig):
            _check_rollout(config)
        if config.shards > 1 or config.collectors:
            check_shards(config)
        if isinstance(config, PPOConfig) and isinstance(config.policy_lr, FollowKL):
            _check_followed_rate(config, config.policy_lr)
        if isinstance(config, PPOConfig | PQNConfig):
            _check_exploration(config, config.exploration)
        if isinstance(config, ReplayConfig):
            _check_replay(config)
        if isinstance(config, TwoNetworks):
            _check_networks(config)
        if isinstance(config, TQCConfig):
            _check_quantiles(config)
        if isinstance(config, WorldModelConfig):
            check_world_model(config)


def refuse(*conflicts: tuple[object, str]) -> None:
    """Raise UserError with the message of the first (condition, message) whose condition is true."""
    for is_wrong, message in conflicts:
        if is_wrong:
            raise UserError(message)


def check_version(version: object) -> None:
    """Raise UserError, with the list of changes, unless `version` is that of today's keys."""
    if version == SCHEMA_VERSION and not isinstance(version, bool):
        return
    stored_version = version if isinstance(version, int) else 0
    changes = "; ".join(f"{number}: {change}" for number, change in CHANGES.items() if number > stored_version)
    history = f"changes since: {changes}" if changes else "it was written by a newer version of Stride"
    raise UserError(f"schema_version is {version}, but this Stride reads {SCHEMA_VERSION}; {history}")


def _check_device(config: Config) -> None:
    """Check the rules between device, engine, precision and storage, but not whether the machine has such a GPU."""
    engine, precision, on_cuda = config.engine, config.precision, config.on_cuda
    is_on_disk = isinstance(config, ReplayConfig) and config.replay_storage == "memmap"
    refuse(
        (not DEVICE.fullmatch(config.device), f"device takes auto, cpu, cuda or cuda:N, not {config.device!r}"),
        (engine in ("graphed", "fused_gpu") and not on_cuda, f"engine: {engine} needs device: cuda"),
        (engine == "fused_cpu" and on_cuda, "engine: fused_cpu needs device: cpu"),
        (precision == "tf32" and not on_cuda, "precision: tf32 needs device: cuda"),
        (engine == "fused_cpu" and precision != 32, f"engine: fused_cpu needs precision: 32, not {precision}"),
        (
            isinstance(config, QLearningConfig) and precision != 32,
            f"precision: {precision} applies to networks, and q_learning has none",
        ),
        (is_on_disk and on_cuda, "replay_storage: memmap needs device: cpu"),
    )


def _check_range(name: str, value: object, allowed: Range, max_timesteps: int) -> None:
    """Raise UserError unless the number, each number of a tuple, or both ends of a schedule are in the range.

    None, booleans and texts pass: their field takes them. `max_timesteps` is needed for schedules only."""
    if isinstance(value, Schedule):
        start_step, end_step = value.span(max_timesteps)
        if end_step < start_step:
            raise UserError(f"{name}: the schedule ends at {end_step:g} env steps, before it starts at {start_step:g}")
        closed_range = allowed._replace(above=False)  # a learning rate may fall to 0: the run is over then
        _check_range(f"{name}_schedule_start_value", value.start_value, closed_range, max_timesteps)
        _check_range(f"{name}_schedule_end_value", value.end_value, closed_range, max_timesteps)
        if not allowed.holds(max(value.start_value, value.end_value)):
            raise UserError(f"{name}: the schedule must rise above {allowed.low:g} somewhere")
        return
    for number in value if isinstance(value, tuple) else (value,):
        if number is None or isinstance(number, bool | str):
            continue
        if not allowed.holds(number):
            raise UserError(f"{name} must be {allowed}, not {number}")
        if number > LARGEST and isinstance(number, int):
            raise UserError(f"{name} must be at most {LARGEST}, not {number}")


def _check_worlds(config: Config) -> None:
    """Check env_wrappers, callbacks, resize_obs, and what evaluation needs."""
    for wrapper in config.env_wrappers:
        if not isinstance(wrapper.get("id"), str):
            raise UserError(f"env_wrappers takes [{{id: Name, ...}}]; {wrapper} has no id")
    for callback in config.callbacks:
        callback_name = callback if isinstance(callback, str) else callback.get("id")
        if not isinstance(callback_name, str) or not DOTTED.fullmatch(callback_name):
            raise UserError(f"callbacks takes [module:Name] or [{{id: module:Name, ...}}], not {callback}")
    image_size = config.resize_obs
    if not isinstance(image_size, bool) and len(image_size) not in (1, 2):
        raise UserError(f"resize_obs takes true, a number of pixels or [height, width], not {list(image_size)}")
    if config.eval_freq_steps is not None and config.eval_freq_epochs != "auto":
        raise UserError("eval_freq_epochs and eval_freq_steps both set when to evaluate; give one of them")
    threshold = config.early_stop_on_eval_threshold
    if not isinstance(threshold, bool) and config.eval_freq_epochs is None:
        raise UserError(f"early_stop_on_eval_threshold={threshold:g} needs evaluation, but eval_freq_epochs is null")


def _check_plateau(config: Config, plateau: Plateau | None) -> None:
    if plateau is None:
        return
    metric_name = plateau.metric
    metric = declared(metric_name)
    if not metric.may_steer:
        options = [other_name for other_name, other_metric in load_metrics().items() if other_metric.may_steer]
        reason = "depends on wall time, which no seed repeats" if metric.wall_time else "has no better direction"
        if metric_name.startswith("test/"):
            reason = "is measured only after the training"
        raise UserError(f"plateau.metric: {metric_name} {reason}{nearest(metric_name, options)}")
    if metric_name.startswith(EVALUATED) and config.eval_freq_epochs is None:
        raise UserError(f"plateau.metric: {metric_name} needs evaluation, but eval_freq_epochs is null")
    _check_range("plateau.patience", plateau.patience, COUNT, 0)
    _check_range("plateau.min_delta", plateau.min_delta, NOT_NEGATIVE, 0)
    _check_range("plateau.times", plateau.times, Range(1, 100), 0)
    stops_training = plateau.then == "stop"
    if not plateau.scale and not stops_training:
        raise UserError("plateau has no effect: give it scale, for example {policy_lr: 0.5}, or then: stop")
    if plateau.scale and plateau.times is None and stops_training:
        raise UserError("plateau.then: stop would never happen, because times: null scales at every plateau; set times")
    for key, factor in plateau.scale.items():
        _check_factor(config, key, factor, plateau.times)


def _check_factor(config: Config, name: str, factor: float, times: int | None) -> None:
    """Raise UserError if scaling the key `name` has no effect, or would take it out of its range.

    `times`: the number of plateaus that scale; None means every plateau."""
    full_key, scalable_keys = f"plateau.scale.{name}", schedulable(type(config))
    if name not in scalable_keys:
        possible_keys = f"{nearest(name, scalable_keys)} ({', '.join(scalable_keys)})"
        raise UserError(f"{full_key} cannot change in {config.algo_id}{possible_keys}")
    if not FACTOR.holds(factor) or factor == 1:
        raise UserError(f"{full_key} must be {FACTOR}, and not 1; it is {factor:g}")
    value = vars(config)[name]
    if not value:
        raise UserError(f"{full_key}: {name} is {'null' if value is None else '0'}, so there is nothing to scale")
    if isinstance(value, FollowKL):
        raise UserError(f"{full_key}: {name}={value} follows the KL divergence, which would undo that")
    if factor > 1 and times is None:
        raise UserError(f"{full_key} {factor:g} would grow without limit; limit it, for example with plateau.times=3")
    largest_value = max(value.start_value, value.end_value) if isinstance(value, Schedule) else value
    if name in RANGES:  # keys of a user's own algorithm have no range
        _check_range(f"{name} after {times} plateaus", largest_value * factor ** (times or 0), RANGES[name], 0)


def _check_spec(spec: Spec) -> None:
    for quantity in (*spec.actions, *spec.observations):
        if isinstance(quantity, Quantity):
            _check_bounds(f"spec: {quantity.name}", quantity.low, quantity.high)
    if spec.returns is not None:
        low, high = spec.returns
        _check_bounds("spec.returns", low, high)
        if spec.goal is not None and not low <= spec.goal <= high:
            raise UserError(f"spec.goal {spec.goal:g} is outside spec.returns [{low:g}, {high:g}]")
    valid = spec.valid_actions
    if valid is not None:
        if not valid or len(set(valid)) < len(valid) or min(valid) < 0:
            raise UserError(f"spec.valid_actions must list each action once, as numbers from 0, not {list(valid)}")
        if spec.actions and max(valid) >= len(spec.actions):
            last = len(spec.actions) - 1
            raise UserError(f"spec.valid_actions has {max(valid)}, but the actions of spec.actions are 0 to {last}")
    _check_range("spec.max_episode_steps", spec.max_episode_steps, COUNT, 0)


def _check_bounds(name: str, low: float | None, high: float | None) -> None:
    if low is not None and high is not None and not low <= high:
        raise UserError(f"{name}: low {low:g} is above high {high:g}")


def _check_value_scale(config: Config) -> None:
    """Check the rules of value_scale (PopArt); algorithms without a critic that is a regression lack the key."""
    values = vars(config)
    scale = values.get("value_scale", "raw")
    if scale == "raw":
        if values.get("value_scale_rate") != vars(type(config)()).get("value_scale_rate"):
            raise UserError("value_scale_rate has no effect with value_scale: raw; set value_scale=popart")
        return
    refuse(
        (isinstance(config, PPOConfig) and config.clip_range_vf is not None,
         f"clip_range_vf clips raw values, whose unit value_scale: {scale} moves; set clip_range_vf=null"),
        (isinstance(config, REINFORCEConfig) and config.policy_targets == "returns",
         f"value_scale: {scale} needs a critic; set policy_targets=advantages"),
    )  # fmt: skip


def _check_rollout(config: RolloutConfig) -> None:
    """Check that a rollout fits the budget, and divides evenly into minibatches."""
    rollout, rows, batch_size = config.rollout_size, config.minibatch_size, config.batch_size
    shape = f"{rollout} rows ({config.n_envs} environments x {config.n_steps} steps)"
    if isinstance(batch_size, float) and batch_size > 1:
        raise UserError(f"batch_size takes a fraction in (0, 1] or a whole number of rows, not {batch_size:g}")
    if config.max_timesteps < rollout:
        raise UserError(f"max_timesteps {config.max_timesteps} is less than one rollout of {shape}")
    if rollout % rows:
        near = " or ".join(map(str, nearest_sizes(rollout, rows)))
        resolved = f" ({rows} rows)" if isinstance(batch_size, float) else ""
        raise UserError(f"batch_size {batch_size}{resolved} does not divide the rollout of {shape} evenly; {near} does")
    updates = config.n_epochs * (rollout // rows)
    if updates % config.accumulate:
        raise UserError(f"accumulate {config.accumulate} does not divide the {updates} minibatches of an iteration")
    for name in ("normalize_advantages", "normalize_returns"):
        basis = vars(config).get(name)
        if {"batch": rows, "rollout": rollout}.get(str(basis)) == 1:
            raise UserError(f"{name}: {basis} needs at least 2 rows per {basis}, but has 1; use more, or {name}=off")


def _check_followed_rate(config: PPOConfig, follows: FollowKL) -> None:
    """Check the rules of a learning rate that follows the KL divergence, policy_lr=kl_0.008."""
    steps = config.n_epochs * (config.rollout_size // config.minibatch_size) // config.accumulate
    limit = config.target_kl
    lowest = min(limit.start_value, limit.end_value) if isinstance(limit, Schedule) else limit
    refuse(
        (steps == 1, f"policy_lr={follows} needs at least 2 updates per rollout, as none has moved before the first"),
        (lowest is not None and lowest < follows.target,
         f"policy_lr={follows} needs target_kl={follows.target} or more: {lowest} stops the updates before"),
        (config.optimizer == "laprop" and config.lr_warmup > 0,
         f"policy_lr={follows} would grow during lr_warmup, whose steps are short; use lr_warmup=0"),
    )  # fmt: skip


def _check_exploration(config: PPOConfig | PQNConfig, exploration: Exploration | None) -> None:
    if exploration is None:
        return
    for name, allowed in EXPLORATION_RANGES.items():
        _check_range(f"exploration.{name}", vars(exploration)[name], allowed, 0)
    if isinstance(config, PPOConfig) and config.lag:
        raise UserError("exploration: intrinsic returns are not corrected for the older actor of lag: 1; use lag=0")


def _check_replay(config: ReplayConfig) -> None:
    smallest_buffer = config.n_envs * MIN_ROWS
    too_late = f"learning_starts {config.learning_starts} must be below max_timesteps"
    refuse(
        (config.gradient_steps == 0,
         "gradient_steps must be at least 1, or -1 for one update per collected env step, not 0"),
        (config.learning_starts >= config.max_timesteps, f"{too_late} {config.max_timesteps}"),
        (config.buffer_size < smallest_buffer,
         f"buffer_size {config.buffer_size} is too small for {config.n_envs} environments; use {smallest_buffer}"),
    )  # fmt: skip


def _check_networks(config: TwoNetworks) -> None:
    """Check the ranges in the actor and critic blocks, then the rules between keys in conflicts.py."""
    for part, block in (("actor", config.actor), ("critic", config.critic)):
        for name, value in vars(block).items() if block else ():
            if name in RANGES:
                _check_range(f"{part}.{name}", value, RANGES[name], 0)
    refuse(*conflicts(config))


def _check_quantiles(config: TQCConfig) -> None:
    quantiles, dropped = config.quantiles, config.drop_quantiles
    refuse(
        (quantiles < 2, "quantiles must be at least 2 in tqc, not 1; sac has critics of one value"),
        (dropped >= quantiles,
         f"drop_quantiles {dropped} leaves none of the {quantiles} quantiles; use at most {quantiles - 1}"),
    )  # fmt: skip


def nearest_sizes(rollout: int, rows: int) -> list[int]:
    """Return the divisors of `rollout` next below and next above `rows`: [32, 64] for a rollout of 64 and 50 rows."""
    small_divisors = [divisor for divisor in range(1, isqrt(rollout) + 1) if rollout % divisor == 0]
    divisors = sorted({*small_divisors, *(rollout // divisor for divisor in small_divisors)})
    position = bisect_right(divisors, rows)
    return divisors[max(position - 1, 0) : position + 1]
