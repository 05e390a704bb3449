"""What a sweep's YAML says, checked to the last word: W&B's format, and what is ours in it. No torch.

method: bayes                                      or random, grid
metric: {name: val/roll/ep_rew/mean, goal: maximize}
run_cap: 27                                        trials
parameters: {policy_lr: {distribution: log_uniform_values, min: 1e-5, max: 1e-2}}
variant: CartPole-v1:ppo                           ours, as are those below
seeds: [100]                                       each trial trains on all of them
rungs: {first: 8192, factor: 3}                    where trials pause, and one of how many goes on
confirm: 5                                         fresh seeds for the best three
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from stride.config.diff import override_text
from stride.config.metrics import declared
from stride.config.schema import Config
from stride.config.search_rules import Space, rungs_below
from stride.config.yaml_file import read_yaml
from stride.runstore.run_names import GROUP
from stride.utils.user_error import UserError, nearest

METHODS = ("bayes", "random", "grid")
KEYS = ("method", "metric", "parameters", "run_cap", "variant", "seeds", "rungs", "confirm")
OF_AGENTS = ("program", "command", "project", "entity", "name", "description")  # what W&B alone reads
PARTS = ("value", "values", "distribution", "min", "max", "q")  # of a parameter
LISTS = ("constant", "categorical")
RANGES = ("int_uniform", "uniform", "q_uniform", "log_uniform_values")
BEST = 3  # trials that are confirmed
MOST = 10_000
Load = Callable[[Sequence[str]], Config]  # the config of ENV:VARIANT and overrides


@dataclass(frozen=True)
class Search:
    """A sweep, every word of it known to be sound."""

    name: str
    variant: str
    method: str
    metric: str
    maximize: bool
    spaces: tuple[Space, ...]
    fixed: tuple[str, ...]
    """overrides that hold for every trial"""
    seeds: tuple[int, ...]
    trials: int
    factor: int
    """one of how many goes on"""
    targets: tuple[int, ...]
    """env steps: where trials pause, and the budget at the end"""
    confirm: int
    threads: int = 1
    gpus: int = 0

    @property
    def budget(self) -> int:
        return self.targets[-1]

    @property
    def group(self) -> str:
        """Of all its runs."""
        return f"sweep-{self.name}"

    def plain(self) -> dict[str, Any]:
        """What makes the search what it is, as JSON has it; more trials and seeds to confirm may follow."""
        return {
            key: value for key, value in asdict(self).items() if key not in ("trials", "confirm", "threads", "gpus")
        }

    def signed(self, value: float) -> float:
        """The higher the better."""
        return value if self.maximize else -value

    def words(self, params: Mapping[str, Any]) -> list[str]:
        """The overrides of a trial."""
        spelled = {space.key: bool(space.choices) for space in self.spaces}
        return [f"{key}={value}" if spelled[key] else override_text(key, value) for key, value in params.items()]


def read_search(path: Path, trials: int | None, load: Load) -> Search:
    """The file's; `trials`: as typed."""
    raw = read_yaml(path)
    try:
        search = _search(path.stem, raw, trials, load)
    except UserError as error:
        raise UserError(f"{path.name}: {error}") from error
    return search


def _search(name: str, raw: Mapping[str, Any], trials: int | None, load: Load) -> Search:
    _check_names(name, raw)
    method, variant = raw["method"], raw["variant"]
    seeds = _seeds(raw.get("seeds", [100]))
    spaces, fixed = _parameters(raw["parameters"])
    base = [variant, *fixed]
    config = load(base)
    for space in spaces:
        for word in ends(space):
            load([*base, word])
    _check_method(method, raw, spaces, trials)
    metric, maximize = _metric(raw["metric"])
    pauses, factor = _pauses(raw, config.max_timesteps)
    _check_measured(metric, config, (*pauses, config.max_timesteps))
    product = math.prod(len(space.choices) for space in spaces) if method == "grid" else MOST
    number = _trials(raw, trials, product)
    if number < factor ** len(pauses):
        least = factor ** len(pauses)
        raise UserError(f"{number} trials are too few for {len(pauses)} rungs: one in {least} reaches the budget")
    confirm = _whole("confirm", raw.get("confirm", 5), 0)
    return Search(
        name, variant, method, metric, maximize, spaces, fixed, seeds, min(number, product), factor,
        (*pauses, config.max_timesteps), confirm, config.torch_threads, int(config.on_cuda),
    )  # fmt: skip


def ends(space: Space) -> list[str]:
    """Overrides whose soundness is that of the whole space."""
    numbers = [int(each) if space.whole else each for each in (space.low, space.high)]
    return [f"{space.key}={each}" for each in space.choices] or [override_text(space.key, each) for each in numbers]


def _check_names(name: str, raw: Mapping[str, Any]) -> None:
    if not GROUP.fullmatch(f"sweep-{name}"):
        raise UserError("a sweep's file is named by at most 58 letters, digits, '.', '_' and '-'")
    if raw.get("method") == "pbt":
        raise UserError("method: pbt was removed; use method: bayes with rungs: {first: STEPS, factor: 3}")
    if "early_terminate" in raw:
        raise UserError("early_terminate is W&B's own; here rungs: {first: STEPS, factor: 3} says it")
    for key in raw:
        if key not in (*KEYS, *OF_AGENTS):
            raise UserError(f"unknown key {key!r}{nearest(key, KEYS)} ({', '.join(KEYS)})")
    for key in ("method", "metric", "parameters", "variant"):
        if key not in raw:
            raise UserError(f"{key} is missing")
    if raw["method"] not in METHODS:
        meant = nearest(str(raw["method"]), METHODS)
        raise UserError(f"method takes {', '.join(METHODS)}, not {raw['method']!r}{meant}")
    if not isinstance(raw["variant"], str) or "=" in raw["variant"] or raw["variant"].startswith("-"):
        raise UserError(f"variant is ENV:VARIANT, not {raw['variant']!r}")


def _check_method(method: str, raw: Mapping[str, Any], spaces: Sequence[Space], trials: int | None) -> None:
    """What a method takes, and what it has no use for."""
    if method == "grid" and (ranged := [space.key for space in spaces if not space.choices]):
        raise UserError(f"parameters: {ranged[0]} is a range; grid takes values")
    if method != "grid" and trials is None and "run_cap" not in raw:
        raise UserError("how many trials? run_cap: N, or --trials N")


def _trials(raw: Mapping[str, Any], typed: int | None, product: int) -> int:
    return typed if typed is not None else _whole("run_cap", raw.get("run_cap", product), 1)


def _metric(told: object) -> tuple[str, bool]:
    if not isinstance(told, Mapping) or {*told} != {"name", "goal"}:
        raise UserError("metric takes {name: .., goal: maximize}")
    if told["goal"] not in ("maximize", "minimize"):
        meant = nearest(str(told["goal"]), ("maximize", "minimize"))
        raise UserError(f"metric: goal takes maximize or minimize, not {told['goal']!r}{meant}")
    return declared(str(told["name"])).name, told["goal"] == "maximize"


def _check_measured(metric: str, config: Config, targets: Sequence[int]) -> None:
    """UserError where a trial would pause, or end, before the metric was measured."""
    every, stage = config.eval_freq_epochs, metric.partition("/")[0]
    if stage == "test" and (len(targets) > 1 or not config.test_episodes):
        why = "test_episodes is 0" if not config.test_episodes else "a trial that pauses is not tested"
        raise UserError(f"metric {metric} is never evaluated: {why}; val/ and train/ are measured on the way")
    if stage == "val" and every is None:
        raise UserError(f"metric {metric} is never evaluated: eval_freq_epochs is null")
    if stage == "val" and isinstance(every, int):
        epoch = (config.eval_warmup_epochs // every + 1) * every
        steps = epoch * config.epoch_iterations * config.iteration_steps
        if steps > targets[0]:
            raise UserError(
                f"metric {metric} is never evaluated in the first {targets[0]:,} env steps, but from {steps:,} on "
                "(eval_freq_epochs, eval_warmup_epochs)"
            )


def _pauses(raw: Mapping[str, Any], budget: int) -> tuple[tuple[int, ...], int]:
    """Env steps below the budget at which trials pause, and one of how many goes on."""
    told = raw.get("rungs")
    if told is None:
        return (), 1
    if not isinstance(told, Mapping) or not {*told} <= {"first", "factor"} or "first" not in told:
        raise UserError("rungs takes {first: STEPS, factor: 3}")
    first, factor = _whole("rungs.first", told["first"], 1), _whole("rungs.factor", told.get("factor", 3), 2)
    if first >= budget:
        raise UserError(f"rungs.first {first:,} is not below the budget of {budget:,} env steps (max_timesteps)")
    return rungs_below(budget, first, factor), factor


def _seeds(told: object) -> tuple[int, ...]:
    seeds = told if isinstance(told, list) else [told]
    if not seeds or any(type(seed) is not int or seed < 0 for seed in seeds) or len({*seeds}) < len(seeds):
        raise UserError(f"seeds takes whole numbers from 0, each once: [100, 101], not {told}")
    return tuple(seeds)


def _whole(name: str, told: object, least: int) -> int:
    if type(told) is not int and not (isinstance(told, float) and told.is_integer()):
        raise UserError(f"{name} takes a whole number, not {told!r}")
    assert isinstance(told, int | float)
    if not least <= told <= 2**62:
        raise UserError(f"{name} is {told}, and {least} at least")
    return int(told)


def _parameters(told: object) -> tuple[tuple[Space, ...], tuple[str, ...]]:
    """What is searched, and the overrides of what is not."""
    if not isinstance(told, Mapping) or not told:
        raise UserError("parameters takes key: {min: .., max: ..}, {values: [..]} or {value: ..}")
    spaces, fixed = [], []
    for key, parts in told.items():
        where = f"parameters: {key}"
        if not isinstance(key, str):
            raise UserError(f"{where} is not text")
        if key == "seed":
            raise UserError("parameters: seeds: [100, 101] says which seeds each trial has")
        if not isinstance(parts, Mapping):
            raise UserError(f"{where} takes {{min: .., max: ..}}, {{values: [..]}} or {{value: ..}}, not {parts!r}")
        for part in parts:
            if part not in PARTS:
                raise UserError(f"{where} has no {part!r}{nearest(str(part), PARTS)} ({', '.join(PARTS)})")
        if "value" in parts:
            fixed.append(override_text(key, parts["value"]))
        elif key == "max_timesteps":
            raise UserError(f"{where} is the budget, which all trials share: {{value: 1e5}}")
        else:
            spaces.append(_space(where, key, parts))
    if not spaces:
        raise UserError("parameters: nothing is searched: give one of them values, or min and max")
    return tuple(spaces), tuple(fixed)


def _space(where: str, key: str, parts: Mapping[str, Any]) -> Space:
    kind = parts.get("distribution", _kind(parts))
    if kind not in (*LISTS, *RANGES):
        known = ", ".join((*LISTS, *RANGES))
        raise UserError(f"{where}: distribution {kind!r} is none of {known}{nearest(str(kind), (*LISTS, *RANGES))}")
    if kind in LISTS:
        values = parts.get("values")
        if not isinstance(values, list) or not values:
            raise UserError(f"{where}: values takes a list, not {values!r}: an empty range")
        choices = tuple(override_text(key, value).partition("=")[2] for value in values)
        if len({*choices}) < len(choices):
            raise UserError(f"{where}: a value is given twice")
        return Space(key, choices)
    low, high = (_number(where, name, parts) for name in ("min", "max"))
    if low >= high:
        raise UserError(f"{where}: from {low:g} to {high:g} is an empty range")
    if kind == "log_uniform_values" and low <= 0:
        raise UserError(f"{where}: a range of orders of magnitude begins above 0, not at {low:g}")
    whole = kind == "int_uniform"
    if whole and not (low.is_integer() and high.is_integer()):
        raise UserError(f"{where}: int_uniform takes whole numbers, not {low:g} and {high:g}")
    step = _number(where, "q", parts) if kind == "q_uniform" else None
    if step is not None and not 0 < step <= high - low:
        raise UserError(f"{where}: q is {step:g}, and lies above 0 and within the range")
    return Space(key, (), low, high, whole, kind == "log_uniform_values", step)


def _kind(parts: Mapping[str, Any]) -> str:
    """As W&B infers it."""
    if "values" in parts:
        return "categorical"
    return "int_uniform" if all(type(parts.get(end)) is int for end in ("min", "max")) else "uniform"


def _number(where: str, name: str, parts: Mapping[str, Any]) -> float:
    told = parts.get(name)
    if isinstance(told, bool) or not isinstance(told, int | float) or not math.isfinite(told):
        raise UserError(f"{where}: {name} takes a number, not {told!r}")
    return float(told)
