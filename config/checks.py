"""Ranges of numbers and rules between fields, checked after everything has been said: file, inheritance and overrides.

Types and names are already right when a config arrives here."""

import re
from math import inf, isqrt
from typing import NamedTuple

from stride.config.fields import schedulable
from stride.config.metrics import declared, load_metrics
from stride.config.plateau import EVALUATED, Plateau
from stride.config.plugins import DOTTED
from stride.config.schedule import Schedule
from stride.config.schema import (
    CHANGES,
    SCHEMA_VERSION,
    Config,
    DreamerConfig,
    PlaNetConfig,
    PPOConfig,
    QLearningConfig,
    REINFORCEConfig,
    ReplayConfig,
    RolloutConfig,
    WorldModelConfig,
)
from stride.config.sizes import check_sizes
from stride.config.spec import Quantity, Spec
from stride.utils.user_error import UserError, nearest
from stride.utils.user_input import LARGEST

LEAST_ROWS = 100  # of each environment, that a replay memory is worth its name
DEVICE = re.compile(r"auto|cpu|cuda(:(0|[1-9]\d{0,8}))?")


class Range(NamedTuple):
    """Where a number may lie; `above` leaves `low` itself out."""

    low: float
    high: float = inf
    above: bool = False

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high and not (self.above and value == self.low)

    def __str__(self) -> str:
        low = f"above {self.low}" if self.above else f"at least {self.low}"
        return low if self.high == inf else f"{low} and at most {self.high}"


COUNT, POSITIVE, NOT_NEGATIVE, SHARE = Range(1), Range(0, above=True), Range(0), Range(0, 1)
FACTOR = Range(0.001, 1000)  # at a plateau
RANGES = {
    "max_timesteps": COUNT,
    "n_envs": COUNT, "max_episode_steps": COUNT, "hidden_dims": COUNT, "epoch_iterations": COUNT,
    "threads": Range(1, 1024), "step_timeout": POSITIVE, "workers": Range(0, 1024),
    "log_freq_epochs": COUNT, "eval_freq_epochs": COUNT, "eval_warmup_epochs": NOT_NEGATIVE, "eval_episodes": COUNT,
    "test_episodes": NOT_NEGATIVE,
    "eval_max_steps": COUNT, "early_stop_patience": COUNT, "checkpoint_freq_epochs": COUNT, "n_steps": COUNT,
    "n_epochs": COUNT, "seed": Range(0, 2**63 - 1), "gamma": SHARE, "gae_lambda": SHARE,
    "policy_lr": POSITIVE, "optimizer_eps": POSITIVE, "weight_decay": NOT_NEGATIVE, "max_grad_norm": POSITIVE,
    "adaptive_clip": POSITIVE, "lr_warmup": NOT_NEGATIVE,
    "ent_coef": NOT_NEGATIVE, "vf_coef": NOT_NEGATIVE, "clip_range": POSITIVE, "clip_range_vf": POSITIVE,
    "target_kl": POSITIVE, "batch_size": POSITIVE, "video_freq_epochs": COUNT, "video_max_steps": COUNT,
    "checkpoint_minutes": POSITIVE, "checkpoint_keep_last": COUNT, "checkpoint_keep_best": NOT_NEGATIVE,
    "accumulate": COUNT,
    "frame_skip": COUNT, "frame_stack": COUNT, "resize_obs": COUNT,
    "buffer_size": COUNT, "learning_starts": NOT_NEGATIVE, "train_freq": COUNT, "gradient_steps": Range(-1),
    "updates_per_step": POSITIVE, "epsilon": SHARE, "target_freq": COUNT, "tau": Range(0, 1, above=True),
    "n_step": COUNT, "quantiles": COUNT, "huber": POSITIVE, "priority_alpha": SHARE, "priority_beta": SHARE,
    "return_lambda": SHARE, "visits_power": SHARE, "noise_correlation": Range(0, 0.9999),
    "batch_length": Range(2), "train_ratio": POSITIVE, "deter": COUNT, "stoch": COUNT, "classes": Range(2),
    "width": COUNT, "depth": COUNT, "bins": Range(3), "unimix": Range(0, 1, above=True), "free_nats": NOT_NEGATIVE,
    "prior_coef": NOT_NEGATIVE, "posterior_coef": NOT_NEGATIVE, "horizon": COUNT, "imagined_starts": COUNT,
    "return_rate": Range(0, 1, above=True), "slow_coef": NOT_NEGATIVE, "replay_value_coef": NOT_NEGATIVE,
    "observation_coef": NOT_NEGATIVE, "end_weight": POSITIVE, "rounds": COUNT, "candidates": Range(2), "elites": COUNT,
}  # fmt: skip
# keys of every algorithm that an algorithm with a world model would not look at, and what says it there
ELSEWHERE = {
    "policy": "it has a network of its own", "policy_kwargs": "it has a network of its own",
    "hidden_dims": "width says it", "activation": "it is SiLU", "share_trunk": "actor and critic share the model",
    "normalize_obs": "numbers are seen on the scale of symlog", "action_mask": "it takes no masks",
    "gradient_steps": "train_ratio says it",
}  # fmt: skip


def check(config: Config, where: str) -> None:
    """UserError for the first thing that cannot be trained."""
    try:
        check_version(config.schema_version)
        _check_budget(config)
        for name, allowed in RANGES.items():
            _check_range(name, vars(config).get(name), allowed, config.max_timesteps)
        check_sizes(config)
        _check_device(config)
        _check_wrappers(config.env_wrappers)
        _check_callbacks(config.callbacks)
        _check_resize(config.resize_obs)
        _check_thresholds(config)
        if config.plateau:
            _check_plateau(config, config.plateau)
        _check_spec(config.spec)
        if isinstance(config, RolloutConfig):
            _check_rollout(config)
        if isinstance(config, ReplayConfig):
            _check_replay(config)
        if isinstance(config, WorldModelConfig):
            _check_world_model(config)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def check_version(version: object) -> None:
    """UserError with the list of changes unless these are the keys of today."""
    if version == SCHEMA_VERSION and not isinstance(version, bool):
        return
    known = version if isinstance(version, int) else 0
    changes = "; ".join(f"{number}: {change}" for number, change in CHANGES.items() if number > known)
    history = f"changes since: {changes}" if changes else "it comes from a newer program"
    raise UserError(f"schema_version is {version}, this program reads {SCHEMA_VERSION}; {history}")


def _check_budget(config: Config) -> None:
    if config.max_timesteps == 0:
        raise UserError("max_timesteps is missing: say how many env steps the run may take, for example 1e5")


def _check_device(config: Config) -> None:
    """What device, engine, precision and storage ask of one another; whether there is such a GPU is not known here."""
    if not DEVICE.fullmatch(config.device):
        raise UserError(f"device takes auto, cpu, cuda or cuda:N, not {config.device!r}")
    if config.engine in ("graphed", "fused_gpu") and not config.on_cuda:
        raise UserError(f"engine: {config.engine} needs device: cuda")
    if config.engine == "fused_cpu" and config.on_cuda:
        raise UserError("engine: fused_cpu needs device: cpu")
    if config.precision == "tf32" and not config.on_cuda:
        raise UserError("precision: tf32 needs device: cuda")
    if config.engine == "fused_cpu" and config.precision != 32:
        raise UserError(f"engine: fused_cpu needs precision: 32, not {config.precision}")
    if isinstance(config, QLearningConfig) and config.precision != 32:
        raise UserError(f"precision: {config.precision} is of networks, and q_learning has none")
    if isinstance(config, ReplayConfig) and config.replay_storage == "memmap" and config.on_cuda:
        raise UserError("replay_storage: memmap needs device: cpu")


def _check_range(name: str, value: object, allowed: Range, max_timesteps: int) -> None:
    if isinstance(value, Schedule):
        start, end = value.span(max_timesteps)
        if end < start:
            raise UserError(f"{name}: the schedule ends at {end:g} env steps, before it starts at {start:g}")
        closed = allowed._replace(above=False)  # it may run down to 0, learning is over then
        _check_range(f"{name}_schedule_start_value", value.start_value, closed, max_timesteps)
        _check_range(f"{name}_schedule_end_value", value.end_value, closed, max_timesteps)
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


def _check_wrappers(wrappers: tuple[dict[str, object], ...]) -> None:
    for wrapper in wrappers:
        if not isinstance(wrapper.get("id"), str):
            raise UserError(f"env_wrappers takes [{{id: Name, ...}}]; {wrapper} has no id")


def _check_callbacks(callbacks: tuple[str | dict[str, object], ...]) -> None:
    for callback in callbacks:
        name = callback if isinstance(callback, str) else callback.get("id")
        if not isinstance(name, str) or not DOTTED.fullmatch(name):
            raise UserError(f"callbacks takes [module:Name] or [{{id: module:Name, ...}}], not {callback}")


def _check_resize(size: bool | tuple[int, ...]) -> None:
    if not isinstance(size, bool) and len(size) not in (1, 2):
        raise UserError(f"resize_obs takes true, a number of pixels or [height, width], not {list(size)}")


def _check_thresholds(config: Config) -> None:
    number = config.early_stop_on_eval_threshold
    if not isinstance(number, bool) and config.eval_freq_epochs is None:
        raise UserError(f"early_stop_on_eval_threshold={number:g} needs evaluation, but eval_freq_epochs is null")


def _check_plateau(config: Config, plateau: Plateau) -> None:
    metric = plateau.metric
    if not declared(metric).may_steer:
        meant = nearest(metric, [name for name, each in load_metrics().items() if each.may_steer])
        timed = "is of wall time, which no seed repeats" if declared(metric).wall_time else "has no better and no worse"
        why = "comes after the training" if metric.startswith("test/") else timed
        raise UserError(f"plateau.metric: {metric} {why}{meant}")
    if metric.startswith(EVALUATED) and config.eval_freq_epochs is None:
        raise UserError(f"plateau.metric: {metric} needs evaluation, but eval_freq_epochs is null")
    _check_range("plateau.patience", plateau.patience, COUNT, 0)
    _check_range("plateau.min_delta", plateau.min_delta, NOT_NEGATIVE, 0)
    _check_range("plateau.times", plateau.times, Range(1, 100), 0)
    if not plateau.scale and plateau.then == "nothing":
        raise UserError("plateau does nothing: give it scale, for example {policy_lr: 0.5}, or then: stop")
    if plateau.scale and plateau.times is None and plateau.then == "stop":
        raise UserError("plateau.then: stop never comes, as times: null scales at every plateau; say how many do")
    for key, factor in plateau.scale.items():
        _check_factor(config, key, factor, plateau.times)


def _check_factor(config: Config, key: str, factor: float, times: int | None) -> None:
    """UserError where scaling does nothing, or takes a key out of its range sooner or later."""
    name, keys = f"plateau.scale.{key}", schedulable(type(config))
    if key not in keys:
        raise UserError(
            f"{name} is not among what may change in {config.algo_id}{nearest(key, keys)} ({', '.join(keys)})"
        )
    if not FACTOR.holds(factor) or factor == 1:
        raise UserError(f"{name} is a factor of {FACTOR} other than 1, not {factor:g}")
    value = vars(config)[key]
    if not value:
        raise UserError(f"{name}: {key} is {'null' if value is None else '0'}, and so there is nothing to scale")
    if factor > 1 and times is None:
        raise UserError(f"{name} {factor:g} grows without end; say how often: plateau.times=3")
    most = max(value.start_value, value.end_value) if isinstance(value, Schedule) else value
    if key in RANGES:  # one's own keys have none
        _check_range(f"{key} after {times} plateaus", most * factor ** (times or 0), RANGES[key], 0)


def _check_spec(spec: Spec) -> None:
    for low, high, name in _bounds(spec):
        if low is not None and high is not None and not low <= high:
            raise UserError(f"{name}: low {low:g} lies above high {high:g}")
    if spec.goal is not None and spec.returns is not None and not spec.returns[0] <= spec.goal <= spec.returns[1]:
        raise UserError(f"spec.goal {spec.goal:g} lies outside spec.returns [{spec.returns[0]:g}, {spec.returns[1]:g}]")
    valid = spec.valid_actions
    if valid is not None and (not valid or len(set(valid)) < len(valid) or min(valid) < 0):
        raise UserError(f"spec.valid_actions lists each action once, from 0 on, not {list(valid)}")
    if valid is not None and spec.actions and max(valid) >= len(spec.actions):
        last = len(spec.actions) - 1
        raise UserError(f"spec.valid_actions has {max(valid)}, but the actions of spec.actions are 0 to {last}")
    _check_range("spec.max_episode_steps", spec.max_episode_steps, COUNT, 0)


def _bounds(spec: Spec) -> list[tuple[float | None, float | None, str]]:
    returns = [Quantity("spec.returns", *spec.returns)] if spec.returns else []
    named = [item for item in (*spec.actions, *spec.observations) if isinstance(item, Quantity)]
    return [(item.low, item.high, item.name if item in returns else f"spec: {item.name}") for item in returns + named]


def _check_rollout(config: RolloutConfig) -> None:
    rollout, rows, given = config.rollout_size, config.minibatch_size, config.batch_size
    shape = f"{rollout} rows ({config.n_envs} environments x {config.n_steps} steps)"
    if isinstance(given, float) and given > 1:
        raise UserError(f"batch_size takes a fraction in (0, 1] or a whole number of rows, not {given:g}")
    if config.max_timesteps < rollout:
        raise UserError(f"max_timesteps {config.max_timesteps} is less than one rollout of {shape}")
    if rollout % rows:
        near = " or ".join(str(size) for size in nearest_sizes(rollout, rows))
        resolved = f" ({rows} rows)" if isinstance(given, float) else ""
        raise UserError(f"batch_size {given}{resolved} does not divide the rollout of {shape} evenly; {near} does")
    updates = config.n_epochs * (rollout // rows)
    if updates % config.accumulate:
        raise UserError(f"accumulate {config.accumulate} does not divide the {updates} minibatches of an iteration")
    if isinstance(config, PPOConfig):
        _check_deviation("normalize_advantages", config.normalize_advantages, rows, rollout)
    if isinstance(config, REINFORCEConfig):
        _check_deviation("normalize_returns", config.normalize_returns, rows, rollout)


def _check_replay(config: ReplayConfig) -> None:
    if config.gradient_steps == 0:
        raise UserError("gradient_steps must be at least 1, or -1 for as many as env steps were collected, not 0")
    if config.normalize_reward:
        raise UserError(f"normalize_reward: {config.algo_id} learns from raw rewards; scale them in a wrapper")
    if config.learning_starts >= config.max_timesteps:
        started, budget = f"learning_starts {config.learning_starts}", f"max_timesteps {config.max_timesteps}"
        raise UserError(f"{started} leaves nothing to learn in of {budget}")
    if config.buffer_size < config.n_envs * LEAST_ROWS:
        least = config.n_envs * LEAST_ROWS
        raise UserError(f"buffer_size {config.buffer_size} is too small for {config.n_envs} environments: take {least}")


def _check_world_model(config: WorldModelConfig) -> None:
    values, usual = vars(config), vars(type(config)())
    for key, instead in ELSEWHERE.items():
        if values[key] != usual[key]:
            raise UserError(f"{key} says nothing to {config.algo_id}: {instead}")
    if config.bins is not None and config.bins % 2 == 0:
        raise UserError(f"bins must be odd, one of them is 0, not {config.bins}; {config.bins + 1} is")
    if config.train_ratio is not None and config.updates_per_step is not None:
        raise UserError("train_ratio and updates_per_step say the same; give one of them, the other follows")
    rows = -(-config.buffer_size // config.n_envs)
    if config.batch_length + 1 > rows:
        raise UserError(
            f"batch_length {config.batch_length} needs {config.batch_length + 1} rows of each environment, and "
            f"buffer_size {config.buffer_size} is {rows}; batch_length={rows - 1} fits"
        )
    states = config.batch_size * config.batch_length
    if isinstance(config, DreamerConfig) and config.imagined_starts > states:
        raise UserError(f"imagined_starts {config.imagined_starts} is more than the {states} states of a batch")
    if isinstance(config, PlaNetConfig) and config.elites > config.candidates:
        raise UserError(f"elites {config.elites} are more than the {config.candidates} candidates of a round")


def _check_deviation(name: str, over: str, rows: int, rollout: int) -> None:
    if (over == "batch" and rows == 1) or (over == "rollout" and rollout == 1):
        raise UserError(f"{name}: {over} needs at least 2 rows per {over}, here it has 1; use more or {name}=off")


def nearest_sizes(rollout: int, rows: int) -> list[int]:
    """The divisors of the rollout next below and next above."""
    small = [size for size in range(1, isqrt(rollout) + 1) if rollout % size == 0]
    divisors = sorted({*small, *(rollout // size for size in small)})
    below = [size for size in divisors if size <= rows][-1:]
    above = [size for size in divisors if size > rows][:1]
    return below + above
