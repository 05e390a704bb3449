"""docs/results/<env>-<variant>.json: what was measured of one variant, seed by seed, and the numbers that sum it up.

A record comes from seed.py; tables and plots are made in report.py. No torch.
"""

import hashlib
import json
import math
import os
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stride.commands.usage import called
from stride.config.general import is_general, load_general
from stride.config.loader import load_config, load_file, parse_config_id, to_plain
from stride.config.schema import Config
from stride.envs_gym.task import task_of
from stride.utils.durable_file import read_json, write_json
from stride.utils.provenance import PROJECT, processor
from stride.utils.statistics import FEWEST, interval, iqm
from stride.utils.user_error import UserError

VERSION = 1
OWN_FILES = {"PixelCatch-v0:dreamer": PROJECT / "tests" / "config" / "PixelCatch-v0.yaml"}  # of worlds of the tests
# these change no number of a run; the goal of `spec` does
WORDS = ("seed", "description", "variant", "project_id", "spec", "threads")

Record = Mapping[str, Any]


@dataclass
class Evidence:
    variant: str  # ENV:VARIANT
    algorithm: str
    config_hash: str
    overrides: list[str] = field(default_factory=list)  # not empty: this says nothing about the shipped variant
    config: dict[str, Any] = field(default_factory=dict)
    goal: float | None = None
    machine: dict[str, Any] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    seeds: dict[int, Record] = field(default_factory=dict)

    @classmethod
    def begin(cls, path: Path, variant: str, config: Config, overrides: Sequence[str]) -> "Evidence":
        """The file as it stands where it measured the same config, else a new one without a seed; with this command."""
        goal, plain = config.spec.goal, to_plain(config)
        evidence = cls(variant, config.algo_id, config_hash(config), [*overrides], plain, goal, machine())
        if path.is_file():
            before = cls.read(path)
            if (before.config_hash, before.overrides) == (evidence.config_hash, evidence.overrides):
                evidence = before
        evidence.commands += [] if called() in evidence.commands else [called()]
        return evidence

    @classmethod
    def read(cls, path: Path) -> "Evidence":
        data = read_json(path)
        if not isinstance(data, dict) or data.get("version") != VERSION:
            raise UserError(f"{path} is no evidence of version {VERSION}; move it away and measure again")
        kept = {key: value for key, value in data.items() if key not in ("version", "summary")}
        return cls(**{**kept, "seeds": {int(seed): record for seed, record in data["seeds"].items()}})

    def write(self, path: Path) -> None:
        """Seeds in order, what sums them up on top."""
        path.parent.mkdir(parents=True, exist_ok=True)
        data = {"version": VERSION, **vars(self), "seeds": {str(seed): self.seeds[seed] for seed in sorted(self.seeds)}}
        finished = self.finished()
        head = {"summary": summary(finished) | {"failed": len(self.seeds) - len(finished)}}
        write_json(path, {**head, **data})

    def finished(self) -> list[Record]:
        return [self.seeds[seed] for seed in sorted(self.seeds) if self.seeds[seed]["status"] == "finished"]

    def codes(self) -> list[str]:
        return [short_hash(code) for code in dict.fromkeys(str(record["git_hash"]) for record in self.finished())]

    def engines(self) -> list[str]:
        """The engines of its seeds; records have them since November 24, 2026."""
        return [*dict.fromkeys(record.get("engine") or "not recorded" for record in self.finished())]

    @property
    def where(self) -> str:
        return f"{self.machine['cpu']}, {self.machine['cores']} cores"

    def typed(self) -> list[str]:
        """The commands; until November 2026 what is now lab/evidence/ was scripts/evidence/."""
        return [f"`{command.replace('-m scripts.evidence', '-m lab.evidence')}`" for command in self.commands]

    def failed(self) -> list[Record]:
        return [self.seeds[seed] for seed in sorted(self.seeds) if self.seeds[seed]["status"] != "finished"]


def configured(variant: str, overrides: Sequence[str] = ()) -> Config:
    """The config of ENV:VARIANT, which is shipped or of a world of the tests, or that of ENV:ALGORITHM, general."""
    if variant in OWN_FILES:
        return load_file(OWN_FILES[variant], variant.rpartition(":")[2], overrides)
    if is_general(variant):
        return load_general(variant, overrides, task_of)
    return load_config(*parse_config_id(variant), overrides)


def is_solved(reached: Mapping[str, float], goal: float | None) -> bool:
    """By the policy's true value where that is known, else by its 100 fresh episodes."""
    return goal is not None and reached.get("exact", reached.get("mean", -math.inf)) >= goal


def summary(finished: Sequence[Record]) -> dict[str, Any]:
    """IQM with its 95 % interval, mean and worst of the seeds: of the final weights, the best, and exactly."""
    solved = sum(is_solved(record["final"], record["goal"]) for record in finished)
    found: dict[str, Any] = {"finished": len(finished), "solved": solved}
    for which in ("final", "best"):
        for name, key in ((which, "mean"), (f"{which}_exact", "exact")):
            values = [record[which][key] for record in finished if key in record[which]]
            found |= {name: spread(values)} if values else {}
    return found


def spread(values: Sequence[float]) -> dict[str, Any]:
    """The interval of fewer than FEWEST values says nothing, and is not given."""
    low, high = interval(values) if len(values) >= FEWEST else (None, None)
    return {"iqm": iqm(values), "low": low, "high": high, "mean": sum(values) / len(values), "worst": min(values)}


def config_hash(config: Config) -> str:
    plain = {key: value for key, value in to_plain(config).items() if key not in WORDS}
    text = json.dumps({**plain, "goal": config.spec.goal}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def named(pattern: str, names: Sequence[str]) -> list[str]:
    folded = pattern.casefold()
    same = [name for name in names if name.casefold() == folded]
    return same or [name for name in names if folded in name.casefold()]


def file_stem(variant: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", variant)


def read_all(folder: Path) -> list[tuple[Path, Evidence]]:
    found = [(path, Evidence.read(path)) for path in sorted(folder.glob("*.json"))]
    return sorted(found, key=lambda item: item[1].variant)


def short_hash(code: str) -> str:
    """Ten digits of a commit; `+changes` stays, as that code is in no repository."""
    return code[:10] + ("+changes" if "+" in code else "")


def this_machine() -> str:
    """AMD EPYC, 2 cores"""
    return f"{processor()}, {os.cpu_count()} cores"


def machine() -> dict[str, Any]:
    return {"cpu": processor(), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}"}
