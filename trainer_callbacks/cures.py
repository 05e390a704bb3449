"""Cures of a run that does not learn: what to change, in words and as overrides that can be typed.

A key whose value is far from what the variant says comes first, whatever the alert is. No torch.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from stride.config.diff import IDENTITY_KEYS, NEUTRAL_KEYS, written
from stride.config.loader import from_plain, to_plain
from stride.config.metrics import KEY, Rule
from stride.utils.user_error import UserError

MOST_CURES = 2  # that the end of a run shows
TRIES = 3  # things to try that an alert lists
FAR = 0.7  # decades: a fifth, or five times as much
MOST_FAR = 2  # keys that an alert names because they are far
SWITCHED = FAR  # how far what is no number is from any other value
LEAST, LEAST_WHOLE = 0.01, 1.0  # what 0 is compared as
RAISED = {"ent_coef": 0.01, "initial_q": 1.0}  # what 0 is raised to
DISCOUNTS = {"gamma", "gae_lambda", "return_lambda"}  # compared by how soon they forget: by 1 - x
SHORTEST = 0.005  # the least of these 1 - x
STEPWISE = {"policy_lr", "ent_coef"}  # changed threefold, others twofold
PHRASE = re.compile(r"(lower|raise|set|change) \{(\w+)\}(?: to (\S+)$)?")
UNLEARNT = NEUTRAL_KEYS | IDENTITY_KEYS | {
    "seed", "threads", "precision", "env_backend", "replay_storage", "step_timeout", "on_worker_death", "nan_guard",
    "logger", "tags", "notes", "callbacks",
}  # fmt: skip  # keys that no failure to learn is blamed on

Plain = Mapping[str, Any]


class Cure(NamedTuple):
    """One thing to change."""

    key: str
    """"" where it is no key of the config"""
    words: str
    """as it follows `Try to`"""
    override: str
    """as it is typed; "" where that does not say it"""


class Cures:
    """What may be changed in to_plain's data; `shipped`: the overrides that take back the changes of its variant."""

    def __init__(self, plain: Plain, shipped: Sequence[str] = ()) -> None:
        self.plain = plain
        self.usual = usual_values(plain, shipped)
        self.far = [self._back(key) for key in far_keys(self.plain, self.usual)]

    def of(self, rule: Rule, blames: bool = True) -> list[Cure]:
        """What helps against an alert of this rule, likeliest first; `blames`: whether any key may have caused it."""
        mentioned = {key for line in rule.tries for key in KEY.findall(line)}
        far = sorted(self.far if blames else (), key=lambda cure: cure.key not in mentioned)
        cures = {cure.key: cure for cure in far[:MOST_FAR]}
        for line in rule.tries:
            keys = KEY.findall(line)
            if all(key in self.plain for key in keys) and not self._is_so(line):
                cure = self._try(line, keys[0] if keys else "")
                cures.setdefault(cure.key or cure.words, cure)
        return [*cures.values()]

    def checked(self, cures: Iterable[Cure], most: int) -> tuple[str, ...]:
        """Overrides of these cures, one for each key, that leave a config which keeps every rule."""
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

    def _back(self, key: str) -> Cure:
        usual = written(self.usual[key])
        return Cure(key, f"set {key} back to {usual} (now {setting(self.plain[key])})", f"{key}={usual}")

    def _is_so(self, line: str) -> bool:
        """Whether it says to set a key to the value that it has."""
        phrase = PHRASE.match(line)
        return phrase is not None and phrase[1] == "set" and written(self.plain[phrase[2]]) == phrase[3]

    def _try(self, line: str, key: str) -> Cure:
        words = KEY.sub(lambda match: f"{match[1]} (now {setting(self.plain[match[1]])})", line)
        phrase = PHRASE.match(line)
        if not key:
            return Cure("", words, "")
        value = self.plain[key]
        if "fall more slowly" in line:
            return Cure(key, words, slower(key, value))
        if not phrase:
            return Cure(key, words, "")
        direction, _, target = phrase.groups()
        if direction == "set":
            return Cure(key, words, f"{key}={target}" if target else "")
        way_back = way_to(self.usual[key], value)
        if way_back and direction in ("change", way_back):
            return self._back(key)
        new_value = scaled(key, value, is_raised=direction == "raise")
        return Cure(key, words, "" if new_value is None else f"{key}={written(new_value)}")


def advice(cures: Sequence[Cure]) -> str:
    """What to try, in a sentence; "" where nothing is known."""
    return f"Try to {', or '.join(cure.words for cure in cures[:TRIES])}." if cures else ""


def usual_values(plain: Plain, shipped: Sequence[str]) -> Plain:
    """A config with the values that its variant says of the changed keys; anybody may have written `shipped`."""
    texts = [text for text in shipped if re.split("[.=]", text)[0] in plain.keys() - IDENTITY_KEYS]
    try:
        return to_plain(from_plain(plain, overrides=texts)) if texts else plain
    except UserError:
        return plain


def far_keys(plain: Plain, usual: Plain) -> list[str]:
    """The keys whose values are far from the usual ones, farthest first."""
    distances = {}
    for key in plain.keys() - UNLEARNT:
        if plain[key] != usual[key] and not (key == "max_timesteps" and plain[key] > usual[key]):
            distances[key] = distance(key, usual[key], plain[key])
    return sorted((key for key in distances if distances[key] >= FAR), key=lambda key: (-distances[key], key))


def distance(key: str, usual: object, value: object) -> float:
    """How far a value is from the usual one, in decades."""
    sizes = [size_of(usual), size_of(value)]
    before, now = sizes
    if before is None or now is None or min(before, now) < 0:
        return SWITCHED
    if key in DISCOUNTS:
        before, now = (max(SHORTEST, 1 - size) for size in (before, now))
    elif min(before, now) == 0:
        floor = LEAST_WHOLE if isinstance(value, int) else LEAST
        before, now = max(floor, before), max(floor, now)
    return abs(math.log10(now / before))


def size_of(value: object) -> float | None:
    """A number, or the largest of a schedule; None of anything else."""
    if isinstance(value, Mapping) and "start_value" in value:
        return max(float(value["start_value"]), float(value["end_value"]))
    return None if isinstance(value, bool) or not isinstance(value, int | float) else float(value)


def way_to(usual: object, value: object) -> str:
    """How to come back to the usual value: lower, raise; "" where it is the value, or one of them is no number."""
    before, now = size_of(usual), size_of(value)
    if before is None or now is None or before == now:
        return ""
    return "lower" if now > before else "raise"


def scaled(key: str, value: Any, is_raised: bool) -> Any:
    """A value two or three times as large, or as small; None where there is none."""
    if isinstance(value, Mapping) and "start_value" in value:
        parts = {name: scaled(key, value[name], is_raised) for name in ("start_value", "end_value")}
        return {**value, **{name: part or value[name] for name, part in parts.items()}}
    size = size_of(value)
    if size is None or size < 0 or (size == 0 and not is_raised):
        return None
    if size == 0:
        return RAISED.get(key)
    factor = 3 if key in STEPWISE else 2
    if isinstance(value, int):
        return value * factor if is_raised else max(1, value // factor)
    return float(f"{value * factor if is_raised else value / factor:.1g}")


def slower(key: str, value: Any) -> str:
    """The override with which a share falls to its end over twice the time, or stays twice as large."""
    if isinstance(value, Mapping):
        end = float(value["end"])
        return f"{key}_schedule_end={2 * end if end > 1 else min(1.0, 2 * end):g}"
    return f"{key}={max(0.1, min(1.0, 2 * value)):g}"


def setting(value: object) -> str:
    """A value of a config, as people read it."""
    if isinstance(value, Mapping) and "start_value" in value:
        return f"{value['start_value']} to {value['end_value']}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return written(value)
