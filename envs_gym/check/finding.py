"""The data of check-env's report: findings (their fixed texts are in findings.yaml) and measurements."""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from stride.utils.user_error import one_line

VERSION = 1  # of the format of --json; new keys may be added to it, but no key changes its meaning
REPEATABLE = ("gymnasium-warning", "not-checked")  # findings that may be reported several times, with other texts
FAULT, WARNING, NOTE = LEVELS = ("fault", "warning", "note")
FORM, PLAY, SEED, CONSTANT, MEMORY, COST, END, GYMNASIUM, PICTURES = PARTS = (  # parts of a check, in this order
    "form",
    "random play",
    "one seed, twice",
    "constant actions",
    "memory",
    "cost",
    "copies and the end",
    "Gymnasium's checker",
    "pictures",
)


class EnvFinding(NamedTuple):
    """One problem of an environment."""

    name: str  # a key of CATALOGUE
    level: str  # one of LEVELS
    why: str  # why it matters
    cure: str
    evidence: str = ""  # what was observed, with numbers; its key in JSON is "seen"


CATALOGUE = {  # name -> finding without evidence, at its usual level
    name: EnvFinding(name, **texts)
    for name, texts in yaml.safe_load(Path(__file__).with_name("findings.yaml").read_text()).items()
}
Findings = Iterator[EnvFinding]


def finding(name: str, evidence: str, level: str = "") -> EnvFinding:
    """Return the catalogue's finding with this evidence; `level`: another level than usual, "" for the usual one."""
    usual = CATALOGUE[name]
    return usual._replace(evidence=one_line(evidence), level=level or usual.level)


@dataclass
class Measurements:
    """Everything that was measured; None or "" where it was not. Its key in JSON is "facts"."""

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
    constant_returns: dict[str, float] = field(default_factory=dict)  # mean return by action
    return_steps: int | None = None  # the three entries above are sums over at most this many steps
    step_us: float | None = None  # median microseconds
    reset_us: float | None = None  # mean microseconds
    steps_per_second: float | None = None  # of one world, resets included
    round_trip_us: float | None = None  # microseconds of a call to another process and back
    workers: int | None = None  # the fastest number of processes for 8 worlds on this machine's cores; 0: no workers
    workers_times: float | None = None  # their speed / the speed of one process


@dataclass
class CheckResult:
    """The report on one environment."""

    env: str  # as the user named it
    findings: list[EnvFinding] = field(default_factory=list)
    measurements: Measurements = field(default_factory=Measurements)
    stopped: str = ""  # why later parts were not checked; "" if all parts were
    seconds: float = 0.0

    def add(self, env_finding: EnvFinding) -> bool:
        """Add a finding unless one of the same name is there already; return whether it was added."""
        if env_finding.name in REPEATABLE:
            repeated = env_finding in self.findings
        else:
            repeated = any(finding.name == env_finding.name for finding in self.findings)
        if not repeated:
            self.findings.append(env_finding)
        return not repeated

    def count(self, level: str) -> int:
        """Return how many findings have this level."""
        return sum(finding.level == level for finding in self.findings)

    def sorted(self) -> list[EnvFinding]:
        """Return the findings, the worst first."""
        return sorted(self.findings, key=lambda finding: LEVELS.index(finding.level))

    def data(self) -> dict[str, Any]:
        """Return the object that --json prints; docs/check_env.md describes it."""
        return {
            "version": VERSION,
            "env": self.env,
            "ok": not self.count(FAULT),
            **{f"{level}s": self.count(level) for level in LEVELS},
            "findings": [
                {"name": name, "level": level, "seen": evidence, "why": why, "cure": cure}
                for name, level, why, cure, evidence in self.sorted()
            ],
            "facts": _json_numbers(asdict(self.measurements)),
            "stopped": self.stopped or None,
            "seconds": round(self.seconds, 2),
        }


def _json_numbers(values: dict[str, Any]) -> dict[str, Any]:
    """Return a copy with None in place of inf and nan, which JSON does not have."""
    numbers = {}
    for name, value in values.items():
        if isinstance(value, dict):
            value = _json_numbers(value)
        elif isinstance(value, float) and not math.isfinite(value):
            value = None
        numbers[name] = value
    return numbers
