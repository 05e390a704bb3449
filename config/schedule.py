"""A hyperparameter that changes with the clock: `lin_0.001`, `cos_0.001`, `exp_0.001`, `warmup_0.001`, or in parts.

The curve of the value and its parsing; the fields that may have one have it in their type, in algorithms/. And PPO's
learning rate that follows the KL divergence, `kl_0.008`."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

from stride.utils.user_error import UserError, errors_in, nearest

Kind = Literal["linear", "cosine", "exponential", "warmup"]
KINDS: tuple[str, ...] = get_args(Kind)
SHORT = {"lin": "linear", "linear": "linear", "cos": "cosine", "cosine": "cosine", "exp": "exponential",
         "exponential": "exponential", "warmup": "warmup"}  # fmt: skip
EXPONENTIAL_FALL = 0.01  # `exp_x` ends at x/100: an exponential never reaches 0
WARMUP_SHARE = 0.05  # `warmup_x` rises during the first 5 % of the run
SCHEDULE_PARTS = ("start_value", "end_value", "start", "end")
KL_START_RATE, KL_FACTOR, KL_MIN_RATE, KL_MAX_RATE = (
    3e-4,
    1.5,
    1e-6,
    1e-2,
)  # learning rates, and what they are multiplied by
KEY = re.compile(r"(\w+?)_schedule(?:_(" + "|".join(SCHEDULE_PARTS) + "))?")


@dataclass(frozen=True)
class Schedule:
    """Value over env steps: start_value until `start`, along the curve until `end`, end_value from then on.

    Bounds in [0, 1] are fractions of max_timesteps, above 1 env steps. `warmup` rises in a straight line and stays."""

    kind: Kind
    start_value: float
    end_value: float
    start: float = 0.0
    end: float = 1.0

    @classmethod
    def parse(cls, value: str | Mapping[str, object]) -> "Schedule":
        """`lin_0.001` or {kind, start_value, end_value, start, end}; whatever is missing follows from the kind."""
        if isinstance(value, str):
            return cls.named(*_split(value))
        options = ["kind", *SCHEDULE_PARTS]
        for key in value:
            if key not in options:
                raise UserError(f"a schedule has no {key!r} ({', '.join(options)}){nearest(str(key), options)}")
        kind = checked_kind(value.get("kind"))
        given_parts = {part: _number(part, value[part]) for part in SCHEDULE_PARTS if part in value}
        peak_name = peak_part(kind)
        if peak_name not in given_parts:
            raise UserError(f"a {kind} schedule needs {peak_name}")
        values = {**vars(cls.named(kind, given_parts[peak_name])), **given_parts}
        return cls(**values).checked()

    @classmethod
    def named(cls, kind: str, value: float) -> "Schedule":
        """The schedule of this kind over the whole run, with `value` as the number one would write without it."""
        if kind == "warmup":
            return cls("warmup", 0.0, value, 0.0, WARMUP_SHARE)
        if kind == "exponential":
            return cls("exponential", value, value * EXPONENTIAL_FALL).checked()
        return cls("linear" if kind == "linear" else "cosine", value, 0.0)

    def checked(self) -> "Schedule":
        """Itself, or a UserError where the numbers make no curve."""
        if self.start < 0 or self.end < 0:
            raise UserError(f"a schedule's start and end must be 0 or later, not {min(self.start, self.end):g}")
        if self.kind == "exponential" and self.start_value * self.end_value <= 0:
            end_values = f"from {self.start_value:g} to {self.end_value:g}"
            raise UserError(
                f"an exponential schedule cannot go {end_values}: both need the same sign and neither may be 0"
            )
        return self

    def span(self, max_timesteps: int) -> tuple[float, float]:
        """(start, end) in env steps."""
        start = self.start * max_timesteps if self.start <= 1 else self.start
        end = self.end * max_timesteps if self.end <= 1 else self.end
        return start, end

    def at(self, env_steps: int, max_timesteps: int) -> float:
        """The value after `env_steps` of a run of `max_timesteps`."""
        start, end = self.span(max_timesteps)
        if env_steps >= end:
            return self.end_value
        if env_steps <= start:
            return self.start_value
        progress = (env_steps - start) / (end - start)
        if self.kind == "exponential":
            return self.start_value * math.exp(progress * math.log(self.end_value / self.start_value))
        remaining = (1 + math.cos(math.pi * progress)) / 2 if self.kind == "cosine" else 1 - progress
        return self.end_value + (self.start_value - self.end_value) * remaining


class FollowKL(str):
    """A learning rate that follows the KL divergence of the policy, as it is written: `kl_0.008`.

    It begins at START. After the updates on each rollout it is divided by FACTOR where their mean KL divergence from
    the policy before them was more than twice the target, and multiplied by it where that was less than half the
    target; it stays between SLOWEST and FASTEST.
    """

    @classmethod
    def read(cls, name: str, value: object) -> "FollowKL | None":
        """The value of the field `name`, None where it is not meant as one of these."""
        if not isinstance(value, str) or not value.startswith("kl_"):
            return None
        follows = cls(value)
        try:
            is_right = 0 < follows.target < math.inf
        except ValueError:
            is_right = False
        if not is_right:
            raise UserError(f"{name}: after kl_ comes a number above 0, for example kl_0.008, not {value!r}")
        return follows

    @property
    def target(self) -> float:
        """The KL divergence of a rollout's updates that it aims at."""
        return float(self.removeprefix("kl_"))


def parse_schedule_key(key: str) -> tuple[str, str] | None:
    """`policy_lr_schedule_end` -> ("policy_lr", "end"), `policy_lr_schedule` -> ("policy_lr", "kind"), else None."""
    match = KEY.fullmatch(key)
    return (match[1], match[2] or "kind") if match else None


def schedule_key(field: str, part: str) -> str:
    """The key that sets one part of a field's schedule."""
    return f"{field}_schedule" if part == "kind" else f"{field}_schedule_{part}"


def peak_part(kind: str) -> str:
    """The part that is the plain value of the field: where a decay starts, where a warm-up arrives."""
    return "end_value" if kind == "warmup" else "start_value"


def checked_kind(kind: object) -> str:
    if not isinstance(kind, str) or kind not in SHORT:
        raise UserError(f"{kind!r} is not a kind of schedule ({', '.join(KINDS)}){nearest(str(kind), list(KINDS))}")
    return SHORT[kind]


def schedule_in(name: str, value: object) -> "Schedule | None":
    """The schedule in a field's value, None where it is meant as no schedule; UserError names the field."""
    if not is_schedule(value):
        return None
    with errors_in(name):
        schedule = Schedule.parse(value)  # type: ignore[arg-type]  # is_schedule
    return schedule


def is_schedule(value: object) -> bool:
    """Whether a value is meant as a schedule, right or wrong."""
    return isinstance(value, Mapping) or (isinstance(value, str) and is_named(value))


def is_named(value: str) -> bool:
    """Whether the text is meant as a schedule (`lin_0.001`), right or wrong."""
    return value.partition("_")[0] in SHORT and "_" in value


def _split(text: str) -> tuple[str, float]:
    short_name, _, number = text.partition("_")
    try:
        return checked_kind(short_name), _number(text, float(number))
    except ValueError as error:
        raise UserError(f"{text!r} is not a schedule; write lin_0.001, cos_0.001, exp_0.001 or warmup_0.001") from error


def _number(part: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UserError(f"{part} of a schedule takes a number, not {value!r}")
    return float(value)
