"""What a check finds of an environment: how bad it is, what was seen, why that matters, and what cures it."""

import math
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

VERSION = 1  # of what --json holds; keys may be added to it, none changes its meaning
SEVERAL = ("gymnasium-warning", "not-checked")  # whose words differ each time
FAULT, WARNING, NOTE = LEVELS = ("fault", "warning", "note")


class Finding(NamedTuple):
    """`name` is for programs and for the page that lists them all."""

    name: str
    level: str
    seen: str  # in numbers
    why: str
    cure: str


@dataclass
class Facts:
    """What was measured, whether or not anything is wrong with it; None and "" where it was not."""

    made_by: str = ""
    observation_space: str = ""
    action_space: str = ""
    time_limit: int | None = None
    reward_threshold: float | None = None
    steps: int = 0
    episodes: int = 0
    terminated: int = 0
    truncated: int = 0
    length_min: int | None = None
    length_mean: float | None = None
    length_max: int | None = None
    reward_min: float | None = None
    reward_max: float | None = None
    random_return: float | None = None
    random_return_std: float | None = None
    constant_returns: dict[str, float] = field(default_factory=dict)  # by action
    return_steps: int | None = None  # over how many steps at most these three are sums
    step_us: float | None = None  # median
    reset_us: float | None = None  # mean
    steps_per_second: float | None = None  # of one world, resets included
    round_trip_us: float | None = None  # to another process and back
    workers: int | None = None  # processes for 8 worlds on this machine's cores that are the fastest
    workers_times: float | None = None  # as fast as one process


@dataclass
class Result:
    """Everything that is said about one environment."""

    env: str  # as it was named
    findings: list[Finding] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)
    stopped: str = ""  # why later parts were not checked, "" where all were
    seconds: float = 0.0

    def add(self, finding: Finding) -> None:
        """Of one name only the first: later ones are its echoes."""
        several = finding.name in SEVERAL
        if not any(each == finding if several else each.name == finding.name for each in self.findings):
            self.findings.append(finding)

    def count(self, level: str) -> int:
        return sum(each.level == level for each in self.findings)

    def sorted(self) -> list[Finding]:
        """The worst first."""
        return sorted(self.findings, key=lambda each: LEVELS.index(each.level))

    def data(self) -> dict[str, object]:
        """What --json prints; docs/check_env.md says what it holds."""
        counts = {f"{level}s": self.count(level) for level in LEVELS}
        return {
            "version": VERSION,
            "env": self.env,
            "ok": not self.count(FAULT),
            **counts,
            "findings": [each._asdict() for each in self.sorted()],
            "facts": {name: _plain(value) for name, value in asdict(self.facts).items()},
            "stopped": self.stopped or None,
            "seconds": round(self.seconds, 2),
        }


def _plain(value: object) -> object:
    """JSON knows no infinity."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
