"""Reads and checks the YAML file of a sweep (`stride sweep`), and decides which paused trial continues. No torch.

The format is W&B's with a few more keys; this example has all of them:

method: bayes                                      or random, grid
metric: {name: val/roll/ep_rew/mean, goal: maximize}
run_cap: 27                                        number of trials
parameters: {policy_lr: {distribution: log_uniform_values, min: 1e-5, max: 1e-2}}
variant: CartPole-v1:ppo                           this key and those below are Stride's own
seeds: [100]                                       each trial trains on all of them
rungs: {first: 8192, factor: 3}                    trials pause after 8192, 3 x 8192, ... env steps; 1 in 3 continues
confirm: 5                                         fresh seeds for the best three trials
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

from stride.config.checks import refuse
from stride.config.diff import override_text
from stride.config.metrics import declared
from stride.config.schema import Config
from stride.config.yaml_file import read_yaml
from stride.runstore.run_facts import finite
from stride.runstore.run_names import GROUP
from stride.utils.user_error import UserError, errors_in, nearest

METHODS = ("bayes", "random", "grid")
REQUIRED_KEYS = ("method", "metric", "parameters", "variant")
SWEEP_KEYS = ("method", "metric", "parameters", "run_cap", "variant", "seeds", "rungs", "confirm")
WANDB_KEYS = (
    "program",
    "command",
    "project",
    "entity",
    "name",
    "description",
)  # only W&B reads them, so we ignore them
PARAM_KEYS = ("value", "values", "distribution", "min", "max", "q")  # keys of one parameter
GOALS = ("maximize", "minimize")
LIST_DISTRIBUTIONS = ("constant", "categorical")  # they need `values`
DISTRIBUTIONS = (*LIST_DISTRIBUTIONS, "int_uniform", "uniform", "q_uniform", "log_uniform_values")
CONFIRMED_TRIALS = 3  # this many of the best trials are trained again on fresh seeds
MAX_TRIALS = 10_000  # of random and bayes; a grid has as many as combinations of values
Load = Callable[[Sequence[str]], Config]  # the config of ENV:VARIANT and overrides
Raw = Mapping[str, Any]  # the content of a sweep's file, or of a part of it


class Space(NamedTuple):
    """The values that a search may try for one key: the `choices`, or numbers from `low` to `high`."""

    key: str
    choices: tuple[str, ...] = ()  # as they are typed in overrides; empty for a range
    low: float = 0.0
    high: float = 0.0
    whole: bool = False  # whole numbers only
    log: bool = False  # the logarithm is drawn uniformly
    step: float | None = None  # values are low, low + step, ...; None = any


@dataclass(frozen=True)
class Search:
    """A sweep, read from its file and checked completely."""

    name: str  # of the file, without .yaml
    variant: str  # ENV:VARIANT
    method: str
    metric: str
    maximize: bool
    spaces: tuple[Space, ...]
    fixed: tuple[str, ...]  # overrides of every trial
    seeds: tuple[int, ...]  # each trial trains on all of them
    trials: int
    factor: int  # at a pause, one of this many trials continues
    targets: tuple[int, ...]  # env steps at which trials pause, and the budget as the last one
    confirm: int  # number of fresh seeds for the best trials
    threads: int = 1  # of one run
    gpus: int = 0  # of one run

    @property
    def budget(self) -> int:
        """Env steps of a trial that never stays paused."""
        return self.targets[-1]

    @property
    def group(self) -> str:
        """The name of the group that all runs of the sweep belong to."""
        return f"sweep-{self.name}"

    def plain(self) -> dict[str, Any]:
        """Return, for JSON, the entries that must not change when a sweep continues; trials, for example, may grow."""
        entries = asdict(self)
        for key in ("trials", "confirm", "threads", "gpus"):
            del entries[key]
        return entries

    def signed(self, value: float) -> float:
        """Return the metric's value, negated if it is minimized, so that higher is always better."""
        return value if self.maximize else -value

    def words(self, params: Mapping[str, Any]) -> list[str]:
        """Return the overrides of a trial with these parameters."""
        listed = {space.key for space in self.spaces if space.choices}  # choices are already text of overrides
        return [f"{key}={value}" if key in listed else override_text(key, value) for key, value in params.items()]


def read_search(path: Path, trials: int | None, load: Load) -> Search:
    """Return the search that a file describes; UserError names the file.

    `trials`: the number that the user typed, instead of run_cap. `load`: loads a config, to try the searched values."""
    raw = read_yaml(path)
    with errors_in(path.name):
        search = _search(path.stem, raw, trials, load)
    return search


def _search(name: str, raw: Raw, trials: int | None, load: Load) -> Search:
    _check_keys(name, raw)
    method, variant = raw["method"], raw["variant"]
    seeds = _seeds(raw.get("seeds", [100]))
    spaces, fixed = _parameters(raw["parameters"])
    config = load([variant, *fixed])
    for space in spaces:
        limits = [int(limit) if space.whole else limit for limit in (space.low, space.high)]
        values = [f"{space.key}={choice}" for choice in space.choices]
        for override in values or [override_text(space.key, limit) for limit in limits]:
            load([variant, *fixed, override])  # UserError if it is invalid; if both ends of a range are valid, all is
    combinations = MAX_TRIALS
    if method == "grid":
        ranges = [space.key for space in spaces if not space.choices]
        if ranges:
            raise UserError(f"parameters: {ranges[0]} is a range; method: grid needs values")
        combinations = math.prod(len(space.choices) for space in spaces)
    elif trials is None and "run_cap" not in raw:
        raise UserError("the number of trials is missing: give run_cap: N, or --trials N")
    metric = _metric(raw["metric"])
    pauses, factor = _pauses(raw.get("rungs"), config.max_timesteps)
    targets = (*pauses, config.max_timesteps)
    _check_measured(metric, config, targets)
    if trials is None:
        trials = _whole("run_cap", raw.get("run_cap", combinations), 1)
    min_trials = factor ** len(pauses)  # with fewer, no trial would be trained to the end
    if trials < min_trials:
        raise UserError(f"{trials} trials are too few for {len(pauses)} rungs: one in {min_trials} reaches the budget")
    return Search(
        name=name,
        variant=variant,
        method=method,
        metric=metric,
        maximize=raw["metric"]["goal"] == "maximize",
        spaces=spaces,
        fixed=fixed,
        seeds=seeds,
        trials=min(trials, combinations),
        factor=factor,
        targets=targets,
        confirm=_whole("confirm", raw.get("confirm", 5), 0),
        threads=config.torch_threads,
        gpus=int(config.on_cuda),
    )


def _check_keys(name: str, raw: Raw) -> None:
    method, variant = raw.get("method"), raw.get("variant")
    if not GROUP.fullmatch(f"sweep-{name}"):
        raise UserError("a sweep file's name may have at most 58 letters, digits, '.', '_' and '-'")
    refuse(
        (method == "pbt", "method: pbt was removed; use method: bayes with rungs: {first: STEPS, factor: 3}"),
        ("early_terminate" in raw, "early_terminate is for W&B only; use rungs: {first: STEPS, factor: 3}"),
    )
    for key in raw:
        if key not in (*SWEEP_KEYS, *WANDB_KEYS):
            raise UserError(f"unknown key {key!r}{nearest(key, SWEEP_KEYS)} ({', '.join(SWEEP_KEYS)})")
    for key in REQUIRED_KEYS:
        if key not in raw:
            raise UserError(f"{key} is missing")
    _check_option("method", method, METHODS)
    if not isinstance(variant, str) or "=" in variant or variant.startswith("-"):
        raise UserError(f"variant must be ENV:VARIANT, not {variant!r}")


def _check_option(name: str, value: object, options: Sequence[str]) -> None:
    if value not in options:
        raise UserError(f"{name} takes {', '.join(options)}, not {value!r}{nearest(str(value), options)}")


def _metric(entry: object) -> str:
    if not isinstance(entry, Mapping) or entry.keys() != {"name", "goal"}:
        raise UserError("metric takes {name: .., goal: maximize}")
    _check_option("metric: goal", entry["goal"], GOALS)
    return declared(str(entry["name"])).name


def _check_measured(metric: str, config: Config, targets: Sequence[int]) -> None:
    """Raise UserError if a trial would pause or end before the metric is measured for the first time."""
    interval, stage = config.eval_freq_epochs, metric.partition("/")[0]
    complaint = f"metric {metric} is never evaluated"
    if stage == "test" and (len(targets) > 1 or not config.test_episodes):
        reason = "a trial that pauses is not tested" if config.test_episodes else "test_episodes is 0"
        raise UserError(f"{complaint}: {reason}; use a metric of val/ or train/")
    if stage == "val" and interval is None:
        raise UserError(f"{complaint}: eval_freq_epochs is null")
    if stage == "val" and config.eval_freq_steps:
        warmup_steps = config.eval_warmup_epochs * config.epoch_iterations * config.iteration_steps
        steps = (warmup_steps // config.eval_freq_steps + 1) * config.eval_freq_steps
        if steps > targets[0]:
            keys = "(eval_freq_steps, eval_warmup_epochs)"
            raise UserError(f"{complaint} in the first {targets[0]:,} env steps, only from {steps:,} {keys}")
    if stage == "val" and isinstance(interval, int):
        epoch = (config.eval_warmup_epochs // interval + 1) * interval
        steps = epoch * config.epoch_iterations * config.iteration_steps
        if steps > targets[0]:
            keys = "(eval_freq_epochs, eval_warmup_epochs)"
            raise UserError(f"{complaint} in the first {targets[0]:,} env steps, only from {steps:,} {keys}")


def _pauses(entry: object, budget: int) -> tuple[tuple[int, ...], int]:
    """Return the env steps at which trials pause, below the budget, and the factor: one of this many continues."""
    if entry is None:
        return (), 1
    if not isinstance(entry, Mapping) or not entry.keys() <= {"first", "factor"} or "first" not in entry:
        raise UserError("rungs takes {first: STEPS, factor: 3}")
    first = _whole("rungs.first", entry["first"], 1)
    factor = _whole("rungs.factor", entry.get("factor", 3), 2)
    if first >= budget:
        raise UserError(f"rungs.first {first:,} must be below the budget of {budget:,} env steps (max_timesteps)")
    return rungs_below(budget, first, factor), factor


def _seeds(entry: object) -> tuple[int, ...]:
    seeds = entry if isinstance(entry, list) else [entry]
    if not seeds or any(type(seed) is not int or seed < 0 for seed in seeds) or len(set(seeds)) < len(seeds):
        raise UserError(f"seeds takes different whole numbers, 0 or more, for example [100, 101], not {entry}")
    return tuple(seeds)


def _whole(name: str, value: object, least: int) -> int:
    if type(value) is not int and not (isinstance(value, float) and value.is_integer()):
        raise UserError(f"{name} takes a whole number, not {value!r}")
    assert isinstance(value, int | float)
    if not least <= value <= 2**62:
        raise UserError(f"{name} must be at least {least}, not {value}")
    return int(value)


def _parameters(entry: object) -> tuple[tuple[Space, ...], tuple[str, ...]]:
    """Return the spaces that are searched, and the overrides of keys with only one value."""
    if not isinstance(entry, Mapping) or not entry:
        raise UserError("parameters takes key: {min: .., max: ..}, {values: [..]} or {value: ..}")
    spaces, fixed = [], []
    for key, parts in entry.items():
        location = f"parameters: {key}"
        if not isinstance(key, str):
            raise UserError(f"{location} is not text")
        if key == "seed":
            raise UserError("parameters: seed cannot be searched; seeds: [100, 101] sets the seeds of each trial")
        if not isinstance(parts, Mapping):
            raise UserError(f"{location} takes {{min: .., max: ..}}, {{values: [..]}} or {{value: ..}}, not {parts!r}")
        for part in parts:
            if part not in PARAM_KEYS:
                raise UserError(f"{location} has no {part!r}{nearest(str(part), PARAM_KEYS)} ({', '.join(PARAM_KEYS)})")
        if "value" in parts:
            fixed.append(override_text(key, parts["value"]))
        elif key == "max_timesteps":
            raise UserError(f"{location} is the budget of all trials; give {{value: 1e5}}")
        else:
            spaces.append(_space(location, key, parts))
    if not spaces:
        raise UserError("parameters: there is nothing to search; give at least one of them values, or min and max")
    return tuple(spaces), tuple(fixed)


def _space(where: str, key: str, parts: Raw) -> Space:
    is_whole = type(parts.get("min")) is int and type(parts.get("max")) is int
    inferred = "categorical" if "values" in parts else "int_uniform" if is_whole else "uniform"  # as W&B infers it
    distribution = parts.get("distribution", inferred)
    if distribution not in DISTRIBUTIONS:
        advice = f"{', '.join(DISTRIBUTIONS)}{nearest(str(distribution), DISTRIBUTIONS)}"
        raise UserError(f"{where}: unknown distribution {distribution!r}: use {advice}")
    if distribution in LIST_DISTRIBUTIONS:
        values = parts.get("values")
        if not isinstance(values, list) or not values:
            raise UserError(f"{where}: values takes a list with at least one value, not {values!r}")
        choices = tuple(override_text(key, value).partition("=")[2] for value in values)
        if len(set(choices)) < len(choices):
            raise UserError(f"{where}: a value is given twice")
        return Space(key, choices)
    low, high = _number(where, "min", parts), _number(where, "max", parts)
    step = _number(where, "q", parts) if distribution == "q_uniform" else None
    is_log, is_whole = distribution == "log_uniform_values", distribution == "int_uniform"
    fractional = not (low.is_integer() and high.is_integer())
    refuse(
        (low >= high, f"{where}: min {low:g} must be below max {high:g}"),
        (is_log and low <= 0, f"{where}: a logarithmic range must start above 0, not at {low:g}"),
        (is_whole and fractional, f"{where}: int_uniform takes whole numbers, not {low:g} and {high:g}"),
        (step is not None and not 0 < step <= high - low, f"{where}: q must be above 0 and in the range, not {step}"),
    )
    return Space(key, (), low, high, is_whole, is_log, step)


def _number(where: str, name: str, parts: Raw) -> float:
    number = finite(parts.get(name))
    if number is None:
        raise UserError(f"{where}: {name} takes a number, not {parts.get(name)!r}")
    return number


# Below: which trials continue after a pause, by asynchronous successive halving (ASHA; Li et al., "A system for
# massively parallel hyperparameter tuning", 2020). In these functions a higher value is always better.


def rungs_below(budget: int, first: int, factor: int) -> tuple[int, ...]:
    """Return the env steps at which trials pause: `first`, `factor` times as many, and so on, below the budget."""
    rungs = []
    while first < budget:
        rungs.append(first)
        first *= factor
    return tuple(rungs)


def ranked(values: Mapping[int, float]) -> list[int]:
    """Return the trials of {trial: value}, the best first; the older one if equal, those with NaN last."""
    return sorted(values, key=lambda number: (math.inf if math.isnan(values[number]) else -values[number], number))


def promoted(values: Mapping[int, float], gone: Collection[int], factor: int) -> int | None:
    """Return the trial that continues next, None if there is none.

    `values`: the trials that reached this rung and their values. The best 1 / `factor` of them may continue; `gone`
    are those that have done so already."""
    best = ranked(values)[: len(values) // factor]
    return next((number for number in best if number not in gone), None)
