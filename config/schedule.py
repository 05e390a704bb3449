"""Schedules: hyperparameters that change with the number of env steps, such as `policy_lr: lin_0.001`.

Here is how a schedule is parsed and which value it has at a step. A key may follow a schedule if its type, in
config/algorithms/, includes Schedule. FollowKL is PPO's learning rate that follows the KL divergence (`kl_0.008`)."""

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
EXPONENTIAL_FALL = 0.01  # `exp_x` ends at x/100, because an exponential never reaches 0
WARMUP_SHARE = 0.05  # `warmup_x` rises during the first 5 % of the run
SCHEDULE_PARTS = ("start_value", "end_value", "start", "end")
KL_START_RATE, KL_MIN_RATE, KL_MAX_RATE = 3e-4, 1e-6, 1e-2  # learning rates of FollowKL
KL_FACTOR = 1.5  # FollowKL multiplies or divides the learning rate by this
KEY = re.compile(r"(\w+?)_schedule(?:_(" + "|".join(SCHEDULE_PARTS) + "))?")


@dataclass(frozen=True)
class Schedule:
    """A value over env steps: start_value until `start`, then along the curve of `kind` until `end`, then end_value.

    `start` and `end` in [0, 1] are fractions of max_timesteps; above 1 they are env steps. `warmup` is a straight line
    up to end_value."""

    kind: Kind
    start_value: float
    end_value: float
    start: float = 0.0
    end: float = 1.0

    @classmethod
    def parse(cls, value: str | Mapping[str, object]) -> "Schedule":
        """Read `lin_0.001` or a mapping {kind, start_value, end_value, start, end}; missing parts get kind's defaults.

        UserError for unknown parts, and where the kind's main value (`peak_part`) is missing."""
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
        """Return the usual schedule of this kind, as `lin_0.001` means it; `value`: its largest value, here 0.001."""
        if kind == "warmup":
            return cls("warmup", 0.0, value, 0.0, WARMUP_SHARE)
        if kind == "exponential":
            return cls("exponential", value, value * EXPONENTIAL_FALL).checked()
        return cls("linear" if kind == "linear" else "cosine", value, 0.0)

    def checked(self) -> "Schedule":
        """Return this schedule; UserError if `start` or `end` is negative, or an exponential crosses or touches 0."""
        if self.start < 0 or self.end < 0:
            raise UserError(f"a schedule's start and end must be 0 or later, not {min(self.start, self.end):g}")
        if self.kind == "exponential" and self.start_value * self.end_value <= 0:
            end_values = f"from {self.start_value:g} to {self.end_value:g}"
            raise UserError(
                f"an exponential schedule cannot go {end_values}: both need the same sign and neither may be 0"
            )
        return self

    def span(self, max_timesteps: int) -> tuple[float, float]:
        """Return (start, end) in env steps, for a budget of `max_timesteps`."""
        start = self.start * max_timesteps if self.start <= 1 else self.start
        end = self.end * max_timesteps if self.end <= 1 else self.end
        return start, end

    def at(self, env_steps: int, max_timesteps: int) -> float:
        """Return the value after `env_steps` of a run with a budget of `max_timesteps`."""
        start, end = self.span(max_timesteps)
        if env_steps >= end:
            return self.end_value
        if env_steps <= start:
            return self.start_value
        progress = (env_steps - start) / (end - start)
        if self.kind == "exponential":
            return self.start_value * math.exp(progress * math.log(self.end_value / self.start_value))
        # share of the way from start_value to end_value that is left: from 1 down to 0
        remaining = (1 + math.cos(math.pi * progress)) / 2 if self.kind == "cosine" else 1 - progress
        return self.end_value + (self.start_value - self.end_value) * remaining


class FollowKL(str):
    """A learning rate that follows the KL divergence of the policy; the text is what the user wrote, `kl_0.008`.

    It begins at KL_START_RATE. After the updates on each rollout, their mean KL divergence from the policy before them
    is compared with the target: above twice the target, the rate is divided by KL_FACTOR; below half the target, it is
    multiplied by KL_FACTOR. It stays between KL_MIN_RATE and KL_MAX_RATE.
    """

    @classmethod
    def read(cls, name: str, value: object) -> "FollowKL | None":
        """Return the value if it begins with `kl_`, else None; UserError names the field if no number follows."""
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
        """The KL divergence (nats) that the updates on a rollout should have, 0.008 in kl_0.008."""
        return float(self.removeprefix("kl_"))


def parse_schedule_key(key: str) -> tuple[str, str] | None:
    """Split a schedule key into field and part; None for any other key.

    `policy_lr_schedule_end` gives ("policy_lr", "end"), `policy_lr_schedule` gives ("policy_lr", "kind")."""
    match = KEY.fullmatch(key)
    return (match[1], match[2] or "kind") if match else None


def schedule_key(field: str, part: str) -> str:
    """Return the key that sets one part of a field's schedule: policy_lr_schedule_end."""
    return f"{field}_schedule" if part == "kind" else f"{field}_schedule_{part}"


def peak_part(kind: str) -> str:
    """Return the part that has the field's own value: a decay starts there, a warm-up ends there."""
    return "end_value" if kind == "warmup" else "start_value"


def checked_kind(kind: object) -> str:
    """Return the full name of a kind of schedule, "linear" for "lin" or "linear"; UserError if there is none."""
    if not isinstance(kind, str) or kind not in SHORT:
        raise UserError(f"{kind!r} is not a kind of schedule ({', '.join(KINDS)}){nearest(str(kind), list(KINDS))}")
    return SHORT[kind]


def schedule_in(name: str, value: object) -> "Schedule | None":
    """Return the schedule in a field's value, None if it does not look like one; UserError names the field."""
    if not is_schedule(value):
        return None
    with errors_in(name):
        schedule = Schedule.parse(value)  # type: ignore[arg-type]  # is_schedule
    return schedule


def is_schedule(value: object) -> bool:
    """Return whether a value looks like a schedule, correct or not: a mapping, or a text such as `lin_0.001`."""
    return isinstance(value, Mapping) or (isinstance(value, str) and is_named(value))


def is_named(value: str) -> bool:
    """Return whether a text begins like a short schedule (`lin_...`), correct or not."""
    return value.partition("_")[0] in SHORT and "_" in value


def _split(text: str) -> tuple[str, float]:
    """Split `lin_0.001` into ("linear", 0.001)."""
    short_name, _, number = text.partition("_")
    try:
        return checked_kind(short_name), _number(text, float(number))
    except ValueError as error:
        raise UserError(f"{text!r} is not a schedule; write lin_0.001, cos_0.001, exp_0.001 or warmup_0.001") from error


def _number(part: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UserError(f"{part} of a schedule takes a number, not {value!r}")
    return float(value)
