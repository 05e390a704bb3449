"""Reads and writes the results file of a variant, docs/results/<env>-<variant>.json: a record for each seed, a summary.

seed.py measures a record, report.py makes tables and curves of the files. This module does not import torch.
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
TEST_CONFIGS = {"PixelCatch-v0:dreamer": PROJECT / "tests" / "config" / "PixelCatch-v0.yaml"}  # environments of tests
# config keys that change no number of a run; `spec` is one of them but for its goal, which `config_hash` adds
KEYS_WITHOUT_EFFECT = ("seed", "description", "variant", "project_id", "spec", "threads")

# one seed: {"seed": 3, "status": "finished", "goal": 475.0, "final": {"mean": 498.2, ..}, "best": {..}, "curve": {..}}
# or {"seed": 3, "status": "failed", "code": 1, "line": "the last line that it printed"}
Record = Mapping[str, Any]


@dataclass
class Evidence:
    """What was measured of one variant by one config; its fields are the keys of the file."""

    variant: str  # ENV:VARIANT
    algorithm: str
    config_hash: str
    overrides: list[str] = field(default_factory=list)  # "key=value"; if not empty, this is not the shipped variant
    config: dict[str, Any] = field(default_factory=dict)
    goal: float | None = None
    machine: dict[str, Any] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    seeds: dict[int, Record] = field(default_factory=dict)

    @classmethod
    def begin(cls, path: Path, variant: str, config: Config, overrides: Sequence[str]) -> "Evidence":
        """Return the evidence in `path` if it is of the same config, else a new one without seeds.

        The command of this process is added to its commands.
        """
        goal, plain = config.spec.goal, to_plain(config)
        evidence = cls(variant, config.algo_id, config_hash(config), [*overrides], plain, goal, machine())
        if path.is_file():
            stored = cls.read(path)
            if (stored.config_hash, stored.overrides) == (evidence.config_hash, evidence.overrides):
                evidence = stored
        evidence.commands += [] if called() in evidence.commands else [called()]
        return evidence

    @classmethod
    def read(cls, path: Path) -> "Evidence":
        """Read a results file; UserError if it is not one of this VERSION."""
        data = read_json(path)
        if not isinstance(data, dict) or data.get("version") != VERSION:
            raise UserError(f"{path} is no evidence of version {VERSION}; move it away and measure again")
        fields = {key: value for key, value in data.items() if key not in ("version", "summary")}
        return cls(**{**fields, "seeds": {int(seed): record for seed, record in data["seeds"].items()}})

    def write(self, path: Path) -> None:
        """Write the file: the summary first, then the fields, with the seeds in order."""
        path.parent.mkdir(parents=True, exist_ok=True)
        data = {"version": VERSION, **vars(self), "seeds": {str(seed): self.seeds[seed] for seed in sorted(self.seeds)}}
        finished = self.finished()
        head = {"summary": summary(finished) | {"failed": len(self.seeds) - len(finished)}}
        write_json(path, {**head, **data})

    def finished(self) -> list[Record]:
        """Return the records of the seeds whose training finished, by seed."""
        return [self.seeds[seed] for seed in sorted(self.seeds) if self.seeds[seed]["status"] == "finished"]

    def codes(self) -> list[str]:
        """Return the short hashes of the commits that trained the finished seeds, each once."""
        return [short_hash(code) for code in dict.fromkeys(str(record["git_hash"]) for record in self.finished())]

    def engines(self) -> list[str]:
        """Return the engines of the finished seeds, each once; records name theirs since November 24, 2026."""
        return [*dict.fromkeys(record.get("engine") or "not recorded" for record in self.finished())]

    @property
    def where(self) -> str:
        return f"{self.machine['cpu']}, {self.machine['cores']} cores"

    def typed(self) -> list[str]:
        """Return the commands as they are typed today: until November 2026, lab/evidence/ was scripts/evidence/."""
        return [f"`{command.replace('-m scripts.evidence', '-m lab.evidence')}`" for command in self.commands]

    def failed(self) -> list[Record]:
        """Return the records of the seeds whose training broke off, by seed."""
        return [self.seeds[seed] for seed in sorted(self.seeds) if self.seeds[seed]["status"] != "finished"]


def configured(variant: str, overrides: Sequence[str] = ()) -> Config:
    """Return the config of a shipped ENV:VARIANT, of one of TEST_CONFIGS, or of ENV:ALGORITHM with general settings."""
    if variant in TEST_CONFIGS:
        return load_file(TEST_CONFIGS[variant], variant.rpartition(":")[2], overrides)
    if is_general(variant):
        return load_general(variant, overrides, task_of)
    return load_config(*parse_config_id(variant), overrides)


def is_solved(reached: Mapping[str, float], goal: float | None) -> bool:
    """Whether `reached` is at the goal: its exact value if that is known, else the mean of 100 fresh episodes.

    `reached` is "final" or "best" of a record: {"mean": 498.2, "exact": 499.0, ...}.
    """
    return goal is not None and reached.get("exact", reached.get("mean", -math.inf)) >= goal


def summary(finished: Sequence[Record]) -> dict[str, Any]:
    """Return IQM (interquartile mean) with its 95 % interval, mean and worst over finished seeds, and how many solved.

    Keys beside "finished" and "solved": "final" (last weights), "best" (best checkpoint), "final_exact", "best_exact".
    """
    solved = sum(is_solved(record["final"], record["goal"]) for record in finished)
    result: dict[str, Any] = {"finished": len(finished), "solved": solved}
    for weights in ("final", "best"):
        for name, key in ((weights, "mean"), (f"{weights}_exact", "exact")):
            values = [record[weights][key] for record in finished if key in record[weights]]
            result |= {name: spread(values)} if values else {}
    return result


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Return IQM, interval, mean and worst; low and high are None for fewer than FEWEST values: they say nothing."""
    low, high = interval(values) if len(values) >= FEWEST else (None, None)
    return {"iqm": iqm(values), "low": low, "high": high, "mean": sum(values) / len(values), "worst": min(values)}


def config_hash(config: Config) -> str:
    """Return 12 hex digits of the SHA-256 over the config's keys that can change a number of a run."""
    plain = {key: value for key, value in to_plain(config).items() if key not in KEYS_WITHOUT_EFFECT}
    text = json.dumps({**plain, "goal": config.spec.goal}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def named(pattern: str, names: Sequence[str]) -> list[str]:
    """Return the name that equals `pattern`, else all that contain it; upper and lower case are the same."""
    folded = pattern.casefold()
    equal = [name for name in names if name.casefold() == folded]
    return equal or [name for name in names if folded in name.casefold()]


def file_stem(variant: str) -> str:
    """Return a file name for a variant: "CartPole-v1-ppo" for "CartPole-v1:ppo"."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", variant)


def read_all(folder: Path) -> list[tuple[Path, Evidence]]:
    """Return the results files of a folder with their contents, by variant."""
    results = [(path, Evidence.read(path)) for path in sorted(folder.glob("*.json"))]
    return sorted(results, key=lambda item: item[1].variant)


def short_hash(code: str) -> str:
    """Return ten digits of a commit; `+changes` is kept: it says that this code is in no repository."""
    return code[:10] + ("+changes" if "+" in code else "")


def this_machine() -> str:
    """Return for example "AMD EPYC, 2 cores"."""
    return f"{processor()}, {os.cpu_count()} cores"


def machine() -> dict[str, Any]:
    return {"cpu": processor(), "cores": os.cpu_count(), "system": f"{platform.system()} {platform.machine()}"}
