"""Checks sizes: limits that no machine can exceed, stricter limits for configs from elsewhere, and rules of shards.

Whether a size fits into this machine's memory is checked where memory is allocated (agents/experience/storage.py).
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise

from stride.config.schema import Config, RolloutConfig
from stride.utils.user_error import UserError

MAX_SIZES = {  # key -> its largest value
    "n_envs": 1 << 24, "n_steps": 1 << 24, "train_freq": 1 << 24, "batch_size": 1 << 26, "buffer_size": 1 << 36,
    "hidden_dims": 1 << 20, "quantiles": 1 << 16, "n_step": 1 << 20, "frame_skip": 1 << 20, "frame_stack": 1 << 20,
    "n_critics": 1 << 10, "resize_obs": 1 << 14, "eval_episodes": 1 << 24, "test_episodes": 1 << 24,
    "batch_length": 1 << 16, "horizon": 1 << 12, "deter": 1 << 16, "stoch": 1 << 10, "classes": 1 << 10,
    "width": 1 << 16, "depth": 1 << 10, "bins": 1 << 12, "imagined_starts": 1 << 26, "rounds": 1 << 10,
    "candidates": 1 << 16, "elites": 1 << 16, "blocks": 1 << 10, "noise_hold": 1 << 20,
}  # fmt: skip
SHARDED = ("ppo", "reinforce", "pqn")  # algorithms that can be trained in shards
MAX_LAYERS = 1000  # hidden layers
MAX_WEIGHTS = 1 << 36  # weights between the hidden layers of one network
MAX_ROWS = 1 << 32  # env steps over all environments that are collected before learning
MAX_FOREIGN_NUMBER = 1 << 20  # each size in a config from elsewhere
MAX_FOREIGN_BYTES = 16 << 30  # 16 GiB of observations collected before learning, by a config from elsewhere
WHOLE_NUMBER_LIMIT = 1 << 63  # whole numbers in a config.json, seeds included, are smaller than this


def check_sizes(config: Config) -> None:
    """Raise UserError for the first size, or product of sizes, that is too large for any machine."""
    values = vars(config)
    for name, largest in MAX_SIZES.items():
        for number in _numbers(values.get(name)):
            if number > largest:
                raise UserError(f"{name} must be at most {largest:,}, not {_shown(number)}")
    widths = config.hidden_dims
    if len(widths) > MAX_LAYERS or sum(a * b for a, b in pairwise(widths)) > MAX_WEIGHTS:
        raise UserError(f"hidden_dims takes at most {MAX_LAYERS:,} layers and {MAX_WEIGHTS:,} weights between them")
    name = "n_steps" if isinstance(config, RolloutConfig) else "train_freq"
    steps = values.get(name, 1)
    if config.n_envs * steps > MAX_ROWS:
        raise UserError(f"n_envs {config.n_envs:,} x {name} {steps:,} is more than the limit of {MAX_ROWS:,} rows")


def check_shards(config: Config) -> None:
    """Raise UserError unless the config can be trained with its number of shards, or of collectors on Ray."""
    name, values = ("collectors" if config.collectors else "shards"), vars(config)
    shards, off = (config.collectors, 0) if config.collectors else (config.shards, 1)
    conflicts = (
        (config.collectors and config.shards > 1,
         f"collectors={config.collectors} are the shards of a training; leave out shards={config.shards}"),
        (config.algo_id not in SHARDED,
         f"{name}: {config.algo_id} cannot be trained in shards, only {', '.join(SHARDED)}; use {name}={off}"),
        (shards & (shards - 1),
         f"{name} must be a power of two, not {shards}; {1 << (shards.bit_length() - 1)} is one"),
        (config.engine not in ("auto", "eager", "fused_cpu"),
         f"{name}: engine {config.engine} has only one; use engine=auto"),
        (config.collectors and config.engine == "fused_cpu",
         "collectors play and are learnt from by engine eager; use engine=auto"),
        (config.on_cuda, f"{name} are trained on processors only; use device=cpu"),
        (values.get("exploration"), f"{name} do not support intrinsic rewards; use exploration=null"),
    )  # fmt: skip
    for is_wrong, message in conflicts:
        if is_wrong:
            raise UserError(message)
    assert isinstance(config, RolloutConfig)
    rows, unit = config.minibatch_size, " rows"
    if config.policy in ("lstm", "gru", "mingru", "transformer"):  # minibatches are whole sequences of n_steps rows
        rows, unit = rows // config.n_steps, " worlds"
    for size, number, counted in (("n_envs", config.n_envs, ""), ("batch_size", rows, unit)):
        if number % shards:
            raise UserError(f"{name} {shards} does not divide {size} {number}{counted}; {name}={number & -number} does")


def check_foreign(config: Config, where: str) -> None:
    """Raise UserError for sizes in a config from elsewhere (a download) that could exhaust this machine.

    Environments are made by such a config only after this check; `where` begins the message."""
    values = vars(config)
    for name in config.env_kwargs:
        if name.startswith("render"):
            raise UserError(f"{where}: env_kwargs.{name[:40]} is set by the viewer, not by a run")
    for name in ("env_kwargs", "env_wrappers"):
        if any(abs(number) > MAX_FOREIGN_NUMBER for number in _numbers(values[name])):
            raise UserError(f"{where}: {name} has a whole number above {MAX_FOREIGN_NUMBER:,}")
    sizes = {name: values.get(name, 0) for name in ("n_steps", "n_envs", "frame_skip")}
    for name, number in {**sizes, "threads": config.torch_threads}.items():
        if number > MAX_FOREIGN_NUMBER:
            raise UserError(f"{where}: {name} above {MAX_FOREIGN_NUMBER:,} is not loaded")
    resized = config.resize_obs
    # an observation has at least one byte per pixel, or one float of 4 bytes
    observation_bytes = resized[0] * resized[-1] if isinstance(resized, tuple) else 4
    size = config.n_envs * values.get("n_steps", 1) * config.frame_stack * observation_bytes
    if size > MAX_FOREIGN_BYTES:
        raise UserError(
            f"{where}: a rollout needs at least {size:,} bytes, more than the limit of {MAX_FOREIGN_BYTES:,}"
        )


def check_whole_numbers(values: Mapping[str, object], where: str) -> None:
    """Raise UserError for a whole number in plain data that is outside 64 bits, at any depth."""
    for number in _numbers(values):
        if abs(number) >= WHOLE_NUMBER_LIMIT:
            raise UserError(f"{where} holds {_shown(number)}")


def _numbers(value: object) -> Iterator[int]:
    """Yield every whole number inside plain data, in lists and mappings, too."""
    if isinstance(value, int):
        yield value
    elements = value.values() if isinstance(value, Mapping) else value
    for element in elements if isinstance(elements, Iterable) and not isinstance(elements, str) else ():
        yield from _numbers(element)


def _shown(number: int) -> str:
    """Return the number as text, or only how many digits it has: Python refuses to print more than 4,300."""
    digit_count = int(number.bit_length() * 0.30103) + 1  # log10(2) digits per bit
    return f"{number:,}" if -WHOLE_NUMBER_LIMIT < number < WHOLE_NUMBER_LIMIT else f"a number of {digit_count} digits"
