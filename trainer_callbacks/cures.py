"""Suggest what to change in a run that does not learn: as a sentence, and as overrides that can be typed.

The suggestions come from the `tries` of the rules in metrics.yaml ("lower {policy_lr}"). Before them come keys whose
values are far from those of the variant, whatever the alert is. No torch.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from stride.config.diff import IDENTITY_KEYS, NEUTRAL_KEYS, written
from stride.config.loader import from_plain, to_plain
from stride.config.metrics import KEY, Rule
from stride.utils.user_error import UserError

MAX_CURES = 2  # overrides shown at the end of a run
MAX_TRIES = 3  # suggestions in the sentence of an alert
FAR_DECADES = 0.7  # powers of ten: a value is far from another if it is 5 times as large, or a fifth
MAX_FAR_KEYS = 2  # keys that an alert names because their values are far from the variant's
SWITCH_DISTANCE = FAR_DECADES  # distance between two different values that are not numbers
ZERO_AS, WHOLE_ZERO_AS = 0.01, 1.0  # 0 has no logarithm: it is compared as 0.01, or as 1 where values are integers
RAISED_ZEROS = {"ent_coef": 0.01, "initial_q": 1.0}  # doubling 0 gives 0: these keys are raised to this instead
DISCOUNTS = {"gamma", "gae_lambda", "return_lambda"}  # compared by 1 - x: 0.9 and 0.99 are a decade apart
MIN_COMPLEMENT = 0.005  # a smaller 1 - x is compared as this
THREEFOLD = {"policy_lr", "ent_coef"}  # raised or lowered by a factor of 3, others by 2
PHRASE = re.compile(r"(lower|raise|set|change) \{(\w+)\}(?: to (\S+)$)?")
UNBLAMED = NEUTRAL_KEYS | IDENTITY_KEYS | {
    "seed", "threads", "precision", "env_backend", "replay_storage", "step_timeout", "on_worker_death", "nan_guard",
    "logger", "tags", "notes", "callbacks",
}  # fmt: skip  # keys that no failure to learn is blamed on

Plain = Mapping[str, Any]


class Cure(NamedTuple):
    """One thing to change: Cure("policy_lr", "lower policy_lr (now 0.01)", "policy_lr=0.003")."""

    key: str
    """key of the config, "" if the advice is about something else"""
    text: str
    """the advice, as it continues `Try to`"""
    override: str
    """the argument to type, "" if no single argument does it"""


class Cures:
    """The suggestions for one config."""

    def __init__(self, plain: Plain, shipped: Sequence[str] = ()) -> None:
        """`plain`: the config as `to_plain` gives it. `shipped`: overrides that restore the variant's own values."""
        self.plain = plain
        self.usual = usual_values(plain, shipped)
        self.far = [self._restore(key) for key in far_keys(self.plain, self.usual)]

    def of(self, rule: Rule, blames: bool = True) -> list[Cure]:
        """Return what helps against an alert of this rule, likeliest first.

        `blames`: also suggest to restore keys that are far from the variant's values, even if the rule does not
        mention them.
        """
        mentioned = {key for line in rule.tries for key in KEY.findall(line)}
        far = sorted(self.far if blames else (), key=lambda cure: cure.key not in mentioned)
        cures = {cure.key: cure for cure in far[:MAX_FAR_KEYS]}
        for line in rule.tries:
            keys = KEY.findall(line)
            if all(key in self.plain for key in keys) and not self._is_set(line):
                cure = self._cure_for(line, keys[0] if keys else "")
                cures.setdefault(cure.key or cure.text, cure)
        return [*cures.values()]

    def checked(self, cures: Iterable[Cure], most: int) -> tuple[str, ...]:
        """Return at most `most` overrides of these cures, one for each key, that leave the config valid."""
        overrides: dict[str, str] = {}
        for cure in cures:
            if len(overrides) < most and cure.override and cure.key not in overrides and self._keeps_rules(cure):
                overrides[cure.key] = cure.override
        return tuple(overrides.values())

    def _keeps_rules(self, cure: Cure) -> bool:
        try:
            from_plain(self.plain, overrides=(cure.override,))
        except UserError:
            return False
        return True

    def _restore(self, key: str) -> Cure:
        """Suggest the variant's own value of the key."""
        usual = written(self.usual[key])
        return Cure(key, f"set {key} back to {usual} (now {setting(self.plain[key])})", f"{key}={usual}")

    def _is_set(self, line: str) -> bool:
        """Return whether the line says to set a key to the value that it has already."""
        phrase = PHRASE.match(line)
        return phrase is not None and phrase[1] == "set" and written(self.plain[phrase[2]]) == phrase[3]

    def _cure_for(self, line: str, key: str) -> Cure:
        """Make a cure of a line of `tries`, "lower {policy_lr}"; `key`: the first key in it, "" if it has none."""
        text = KEY.sub(lambda match: f"{match[1]} (now {setting(self.plain[match[1]])})", line)
        phrase = PHRASE.match(line)
        if not key:
            return Cure("", text, "")
        value = self.plain[key]
        if "fall more slowly" in line:
            return Cure(key, text, slower(key, value))
        if not phrase:
            return Cure(key, text, "")
        direction, _, target = phrase.groups()
        if direction == "set":
            return Cure(key, text, f"{key}={target}" if target else "")
        way_back = way_to(self.usual[key], value)
        if way_back and direction in ("change", way_back):
            return self._restore(key)
        new_value = scaled(key, value, is_raised=direction == "raise")
        return Cure(key, text, "" if new_value is None else f"{key}={written(new_value)}")


def advice(cures: Sequence[Cure]) -> str:
    """Return one sentence, "Try to lower policy_lr (now 0.01), or raise n_steps (now 128)."; "" without cures."""
    return f"Try to {', or '.join(cure.text for cure in cures[:MAX_TRIES])}." if cures else ""


def usual_values(plain: Plain, shipped: Sequence[str]) -> Plain:
    """Return the config with the variant's own values for all changed keys; if `shipped` is not valid, as it is.

    `shipped` comes from config.json, which anybody may have written.
    """
    texts = [text for text in shipped if re.split("[.=]", text)[0] in plain.keys() - IDENTITY_KEYS]
    try:
        return to_plain(from_plain(plain, overrides=texts)) if texts else plain
    except UserError:
        return plain


def far_keys(plain: Plain, usual: Plain) -> list[str]:
    """Return the keys whose values are far from the usual ones, farthest first."""
    distances = {}
    for key in plain.keys() - UNBLAMED:
        # more steps than usual never hinder learning
        if plain[key] != usual[key] and not (key == "max_timesteps" and plain[key] > usual[key]):
            distances[key] = distance(key, usual[key], plain[key])
    return sorted((key for key in distances if distances[key] >= FAR_DECADES), key=lambda key: (-distances[key], key))


def distance(key: str, usual: object, value: object) -> float:
    """Return how far a value is from the usual one, in powers of ten: 0.01 and 0.1 are 1 apart."""
    sizes = [size_of(usual), size_of(value)]
    before, now = sizes
    if before is None or now is None or min(before, now) < 0:
        return SWITCH_DISTANCE
    if key in DISCOUNTS:
        before, now = (max(MIN_COMPLEMENT, 1 - size) for size in (before, now))
    elif min(before, now) == 0:
        floor = WHOLE_ZERO_AS if isinstance(value, int) else ZERO_AS
        before, now = max(floor, before), max(floor, now)
    return abs(math.log10(now / before))


def size_of(value: object) -> float | None:
    """Return the number, or the larger end of a schedule; None for anything else."""
    if isinstance(value, Mapping) and "start_value" in value:
        return max(float(value["start_value"]), float(value["end_value"]))
    return None if isinstance(value, bool) or not isinstance(value, int | float) else float(value)


def way_to(usual: object, value: object) -> str:
    """Return "lower" or "raise", whichever leads back to the usual value; "" if equal or not both are numbers."""
    before, now = size_of(usual), size_of(value)
    if before is None or now is None or before == now:
        return ""
    return "lower" if now > before else "raise"


def scaled(key: str, value: Any, is_raised: bool) -> Any:
    """Return a value two or three times as large (or as small); None if the value cannot be scaled."""
    if isinstance(value, Mapping) and "start_value" in value:
        ends = {name: scaled(key, value[name], is_raised) for name in ("start_value", "end_value")}
        return {**value, **{name: end or value[name] for name, end in ends.items()}}
    size = size_of(value)
    if size is None or size < 0 or (size == 0 and not is_raised):
        return None
    if size == 0:
        return RAISED_ZEROS.get(key)
    factor = 3 if key in THREEFOLD else 2
    if isinstance(value, int):
        return value * factor if is_raised else max(1, value // factor)
    return float(f"{value * factor if is_raised else value / factor:.1g}")


def slower(key: str, value: Any) -> str:
    """Return the override that makes a schedule twice as long, or a constant share twice as large (0.1 to 1)."""
    if isinstance(value, Mapping):
        end = float(value["end"])
        return f"{key}_schedule_end={2 * end if end > 1 else min(1.0, 2 * end):g}"
    return f"{key}={max(0.1, min(1.0, 2 * value)):g}"


def setting(value: object) -> str:
    """Format a value of a config for a sentence: 1,000,000; a schedule as "0.001 to 0"."""
    if isinstance(value, Mapping) and "start_value" in value:
        return f"{value['start_value']} to {value['end_value']}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return written(value)
