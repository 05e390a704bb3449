"""How large anything may be that a config asks for: the first size that no machine could hold is refused in a line.

What fits into this machine's memory is another question, told where memory is taken (agents/experience/storage.py).
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise

from stride.config.schema import Config, RolloutConfig
from stride.utils.user_error import UserError

MOST = {  # of each number; what may change with the clock is no size
    "n_envs": 1 << 24, "n_steps": 1 << 24, "train_freq": 1 << 24, "batch_size": 1 << 26, "buffer_size": 1 << 36,
    "hidden_dims": 1 << 20, "quantiles": 1 << 16, "n_step": 1 << 20, "frame_skip": 1 << 20, "frame_stack": 1 << 20,
    "resize_obs": 1 << 14, "eval_episodes": 1 << 24, "test_episodes": 1 << 24,
    "batch_length": 1 << 16, "horizon": 1 << 12, "deter": 1 << 16, "stoch": 1 << 10, "classes": 1 << 10,
    "width": 1 << 16, "depth": 1 << 10, "bins": 1 << 12, "imagined_starts": 1 << 26, "rounds": 1 << 10,
    "candidates": 1 << 16, "elites": 1 << 16,
}  # fmt: skip
LAYERS, WEIGHTS, ROWS = 1000, 1 << 36, 1 << 32  # hidden layers, numbers between them, rows collected before learning
FOREIGN, FOREIGN_BYTES = 1 << 20, 16 << 30  # of a run from elsewhere: each number; what it collects before learning
WHOLE = 1 << 63  # what a whole number in JSON stays below: no seed, no clock is larger


def check_sizes(config: Config) -> None:
    """UserError for the first size, or product of sizes, that cannot be."""
    for name, most in MOST.items():
        value = vars(config).get(name)
        for number in value if isinstance(value, tuple) else (value,):
            if number is not None and number > most:
                raise UserError(f"{name} must be at most {most:,}, not {_shown(number)}")
    widths = config.hidden_dims
    if len(widths) > LAYERS or sum(a * b for a, b in pairwise(widths)) > WEIGHTS:
        raise UserError(f"hidden_dims takes at most {LAYERS:,} layers and {WEIGHTS:,} weights between them")
    steps = config.n_steps if isinstance(config, RolloutConfig) else vars(config).get("train_freq", 1)
    if config.n_envs * steps > ROWS:
        name = "n_steps" if isinstance(config, RolloutConfig) else "train_freq"
        raise UserError(f"n_envs {config.n_envs:,} x {name} {steps:,} are more than {ROWS:,} rows at once")


def check_foreign(config: Config, where: str) -> None:
    """UserError for what no worlds should be made with because a download, or a folder from elsewhere, says so."""
    for name in config.env_kwargs:
        if name.startswith("render"):
            raise UserError(f"{where}: env_kwargs.{name[:40]} is for whoever watches to say, not for a run")
    for place, made_of in (("env_kwargs", config.env_kwargs), ("env_wrappers", config.env_wrappers)):
        if any(abs(number) > FOREIGN for number in whole_numbers(made_of)):
            raise UserError(f"{where}: {place} holds a whole number of more than {FOREIGN:,}")
    for name in ("n_steps", "torch_threads", "n_envs", "frame_skip"):
        if getattr(config, name, 0) > FOREIGN:
            raise UserError(f"{where}: {name.removeprefix('torch_')} of more than {FOREIGN:,} is not loaded")
    size = config.n_envs * vars(config).get("n_steps", 1) * _seen(config)
    if size > FOREIGN_BYTES:
        raise UserError(f"{where}: a rollout takes {size:,} bytes at least, more than {FOREIGN_BYTES:,}")


def _seen(config: Config) -> int:
    """Bytes of an observation at the least, as far as a config tells."""
    size = config.resize_obs
    pixels = size[0] * size[-1] if isinstance(size, tuple) else 4
    return config.frame_stack * pixels


def check_whole_numbers(values: Mapping[str, object], where: str) -> None:
    """UserError for a whole number in plain data that is larger than any a config can mean."""
    for number in whole_numbers(values):
        if abs(number) >= WHOLE:
            raise UserError(f"{where} holds a number of {_digits(number)} digits")


def whole_numbers(value: object) -> Iterator[int]:
    """Every whole number inside plain data."""
    if isinstance(value, int):
        yield value
    for item in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        yield from whole_numbers(item)


def _shown(number: float) -> str:
    return f"{number:,}" if number < WHOLE else f"a number of {_digits(int(number))} digits"


def _digits(number: int) -> int:
    """About as many as it has: Python refuses to write numbers of more than 4,300."""
    return int(number.bit_length() * 0.30103) + 1
