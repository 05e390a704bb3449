"""Writes config values as `key=value` text, and lists how a config differs from the defaults or from another config.

Reports, cards, the inspector and `--resume` use it. A resumed run also learns here which changes break its saved state,
and after which changes it may not repeat the original run bit for bit.
"""

import json
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from numbers import Integral, Real
from typing import Any, NamedTuple

from stride.config.loader import from_plain, load_shipped, to_plain
from stride.config.schedule import SCHEDULE_PARTS, SHORT, Schedule, peak_part
from stride.config.schema import ALGORITHMS, Config
from stride.utils.user_error import UserError

LABEL_KEYS = {"project_id", "description", "schema_version"}  # they have no effect on a run
IDENTITY_KEYS = {"env_id", "variant", "algo_id", "spec", *LABEL_KEYS}  # not settings that anybody tunes
UNQUOTED_TEXT = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)  # text that Hydra's grammar reads as text without quotes
MAPPING_KEY = re.compile(r"[A-Za-z_][\w.-]*", re.ASCII)  # names that Hydra's grammar reads as keys of a mapping
RESERVED = {"true", "false", "null", "inf", "nan"}  # words that Hydra's grammar does not read as text
Plain = Mapping[str, Any]  # a config as to_plain returns it

BOLD_NOTE = "; changes for this run are bold"  # above the table of settings_rows
# A resumed run may not change these: its saved state would not fit, or would silently mean something else.
FIXED_KEYS = frozenset((
    "env_id", "algo_id", "seed", "n_envs", "n_steps", "shards", "collectors", "epoch_iterations",
    "env_backend", "env_kwargs", "env_wrappers", "frame_skip", "obs", "grayscale_obs", "resize_obs", "frame_stack",
    "action_mask", "max_episode_steps", "normalize_obs", "normalize_reward", "value_scale",
    "buffer_size", "prioritised", "quantiles", "n_critics", "n_step", "noise_correlation", "stoch",
    "policy", "policy_kwargs", "hidden_dims", "activation", "share_trunk", "optimizer", "policy_targets", "lag",
    "exploration", "actor", "critic", "norm", "blocks", "bins", "bin_range", "noise_hold",
))  # fmt: skip
# Weights do not depend on these (how often a run is evaluated, logged, saved, ...): tests/test_exactness.py proves it.
NEUTRAL_KEYS = frozenset((
    "log_freq_epochs", "eval_freq_epochs", "eval_freq_steps", "eval_warmup_epochs", "eval_episodes",
    "eval_deterministic", "test_episodes", "early_stop_on_train_threshold", "early_stop_on_eval_threshold",
    "early_stop_patience", "checkpoint_freq_epochs", "checkpoint_minutes", "checkpoint_keep_last",
    "checkpoint_keep_best", "video_freq_epochs", "video_max_steps", "description", "project_id", "engine", "device",
    "workers",
))  # fmt: skip
# Of the neutral keys and the budget, those that decide when a plateau is noticed; with `plateau` they change weights.
MEASURING_KEYS = frozenset((
    "log_freq_epochs", "eval_freq_epochs", "eval_freq_steps", "eval_warmup_epochs", "eval_episodes",
    "eval_deterministic", "max_timesteps",
))  # fmt: skip


def written(value: object) -> str:
    """Return a value of to_plain's data as it is typed after `key=`; a schedule as lin_0.001 if possible."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, Mapping):
        return short(value) or f"{{{','.join(f'{key}:{written(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{','.join(written(item) for item in value)}]"
    if not isinstance(value, str) or (UNQUOTED_TEXT.fullmatch(value) and value.lower() not in RESERVED):
        return str(value)
    return _quoted(value)


def short(value: Plain) -> str:
    """Return the short form of a schedule, such as lin_0.001; "" if it has none, or if `value` is no schedule."""
    if value.keys() != {"kind", *SCHEDULE_PARTS}:
        return ""
    schedule_kind = value["kind"]
    peak_value = value[peak_part(schedule_kind)]
    prefix = next(prefix for prefix in SHORT if SHORT[prefix] == schedule_kind)
    return f"{prefix}_{peak_value}" if Schedule(**value) == Schedule.named(schedule_kind, peak_value) else ""


def override_text(key: str, value: object) -> str:
    """Return the override `key=...` that sets this Python value; UserError for a type that no config can hold."""
    return f"{key}={_python_value(key, value)}"


def _python_value(key: str, value: object) -> str:
    """Return a Python value, NumPy's numbers included, as text in Hydra's grammar."""
    if value is None or isinstance(value, bool):
        return written(value)
    if isinstance(value, Integral):  # int, and NumPy's whole numbers
        return str(int(value))
    if isinstance(value, Real):
        return repr(float(value))
    if isinstance(value, str | os.PathLike):
        return _quoted(os.fspath(value))
    if isinstance(value, list | tuple):
        return f"[{','.join(_python_value(key, item) for item in value)}]"
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str) or not MAPPING_KEY.fullmatch(name) or name.lower() in RESERVED:
                raise UserError(f"{key}: {name!r} is not a valid name in a config")
        return f"{{{','.join(f'{name}:{_python_value(key, item)}' for name, item in value.items())}}}"
    accepted = "use text, numbers, booleans, None, lists and dicts of these; name code as 'module:Name'"
    raise UserError(f"{key}: a {type(value).__name__} is not a valid config value; {accepted}")


def _quoted(text: str) -> str:
    """Return a text in quotes. Hydra reads two backslashes as one before a quote, and only there, so these double."""
    escaped = re.sub(r"(\\*)('|$)", lambda match: match[1] * 2 + match[2].replace("'", "\\'"), text)
    return f"'{escaped}'"


def defaults(algo_id: str) -> dict[str, Any]:
    """Return key -> default, as to_plain's data, of each tunable key of an algorithm that has a default."""
    values = {}
    for item in fields(ALGORITHMS[algo_id]):
        value = item.default_factory() if callable(item.default_factory) else item.default
        if value is not MISSING and item.name not in IDENTITY_KEYS:
            value = asdict(value) if isinstance(value, Schedule) else value
            values[item.name] = list(value) if isinstance(value, tuple) else value
    return values


def differing(plain: Plain) -> dict[str, Any]:
    """Return the tunable keys of to_plain's data, with their values, that differ from the algorithm's defaults."""
    algo_id = plain["algo_id"]
    usual = defaults(algo_id)
    tunable = {item.name for item in fields(ALGORITHMS[algo_id])} - IDENTITY_KEYS
    return {key: plain[key] for key in plain if key in tunable and (key not in usual or plain[key] != usual[key])}


def config_of(info: Mapping[str, object]) -> dict[str, Any]:
    """Return the config in a run's facts as to_plain's data, with all keys of today; UserError if it is too old."""
    return to_plain(from_plain(info.get("config") or {}, "config.json"))


def differing_rows(info: Mapping[str, object]) -> list[tuple[str, str, str]]:
    """Return (key, value, default), each as it is typed, for the keys of a run that differ from the defaults."""
    plain = config_of(info)
    usual = defaults(plain["algo_id"])
    differing_keys = []
    for key, value in differing(plain).items():
        differing_keys.append((key, written(value), written(usual[key]) if key in usual else ""))
    return differing_keys


def changes_between(base: Plain, plain: Plain) -> list[str]:
    """Return the overrides that turn the config `base` into `plain`, without the seed: ["policy_lr=0.001"]."""
    return [text for text in _overrides("", base, plain) if not text.startswith("seed=")]


def merged_changes(*lists: Sequence[str]) -> list[str]:
    """Return the overrides of all lists; if two set the same key, the later one."""
    by_key = {text.partition("=")[0]: text for texts in lists for text in texts}
    return [*by_key.values()]


def changed_keys(info: Mapping[str, Any]) -> set[str]:
    """Return the keys that were changed for a run, by the first part of their names: {"gamma", "spec"}."""
    return {re.split("[.=]", text)[0] for text in info.get("changes", [])}


def settings_rows(settings: Plain, changed: Collection[str]) -> list[tuple[str, str]]:
    """Return the rows (key, value) of a Markdown table of settings; rows of changed keys are bold."""
    rows = []
    for key, value in settings.items():
        name, text = f"`{key}`", f"`{written(value)}`"
        rows.append((f"**{name}**", f"**{text}**") if key in changed else (name, text))
    return rows


def command_of(config: Config) -> str:
    """Return the arguments of train.py that give this config from a shipped variant; "" if there are none."""
    plain = to_plain(config)
    try:
        overrides = list(_overrides("", to_plain(load_shipped(config.env_id, config.variant)), plain))
        repeated_plain = to_plain(load_shipped(config.env_id, config.variant, overrides))
    except UserError:
        return ""
    if {**repeated_plain, **dict.fromkeys(LABEL_KEYS)} != {**plain, **dict.fromkeys(LABEL_KEYS)}:
        return ""
    overrides = [override for override in overrides if not override.startswith("seed=")]
    return shlex.join([f"{config.env_id}:{config.variant}", "--seed", str(config.seed), *overrides])


def _overrides(prefix: str, defaults_below: Plain, plain: Plain) -> Iterator[str]:
    """Yield an override for each entry that differs; inner mappings entry by entry, a schedule as a whole.

    `prefix`: the keys of the mappings around these entries, "spec." for example; "" at the top."""
    for key, value in plain.items():
        default_value = defaults_below.get(key)
        is_default = key in defaults_below and value == default_value
        if is_default or (not prefix and key in IDENTITY_KEYS - {"spec"}):
            continue
        if value and isinstance(value, Mapping) and isinstance(default_value, Mapping) and "kind" not in value:
            yield from _overrides(f"{prefix}{key}.", default_value, value)
        else:
            yield f"{prefix}{key}={written(value)}"


class ConfigChange(NamedTuple):
    """A key whose value differs between two configs."""

    key: str
    before: Any
    after: Any

    def __str__(self) -> str:
        return f"{self.key} {_shown(self.before)} -> {_shown(self.after)}"


def changes(before: Config, after: Config, may_differ: Sequence[str] = ()) -> list[ConfigChange]:
    """Return every key that differs, in the order of the schema; UserError names those that break a saved state.

    `may_differ`: keys that may change all the same, such as the seed of a new run that starts from a checkpoint.
    """
    old, new = to_plain(before), to_plain(after)
    # `shards` in this process and as many `collectors` on Ray give the same bits, so that is no difference
    if max(before.shards, before.collectors) == max(after.shards, after.collectors):
        old |= {"shards": after.shards, "collectors": after.collectors}
    differences = [ConfigChange(key, old[key], new[key]) for key in new if old.get(key) != new[key]]
    broken = [str(change) for change in differences if change.key in FIXED_KEYS and change.key not in may_differ]
    if broken:
        broken_names = ", ".join(broken)
        raise UserError(f"{broken_names}: the saved state was made for the old value; start a new run for that")
    return differences


def unproven(differences: Sequence[ConfigChange], config: Config, engine: str) -> list[ConfigChange]:
    """Return the changes after which the rest of the run may differ from the run without them.

    Keys `engine` and `device` count as neutral here: the caller compares the engine and device that were really used.
    """
    neutral = set(NEUTRAL_KEYS)
    if not config.schedules():  # a schedule's bounds may be fractions of the budget
        neutral.add("max_timesteps")
    if config.plateau:
        neutral -= MEASURING_KEYS
    if engine == "fused_cpu":
        neutral.add("threads")
    return [change for change in differences if change.key not in neutral]


def _shown(value: object) -> str:
    shown_text = json.dumps(value) if value is None or isinstance(value, bool) else str(value)
    return shown_text if len(shown_text) <= 40 else f"{shown_text[:37]}..."
