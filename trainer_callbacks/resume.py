"""Where a training goes on: which run, from which checkpoint, with which changes, and whether to the bit.

`--resume RUN` continues in the same folder. `--checkpoint best` or `epoch=NN` forks: a new run begins with a copy of
that checkpoint and of the rows up to it, and says in config.json whose child it is.
"""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from config.changes import Change, changes
from config.loader import from_plain, to_plain
from config.schema import Config
from utils import checkpoint_set
from utils.durable_file import read_json
from utils.provenance import provenance
from utils.run_dir import RunDir
from utils.user_error import UserError


@dataclass(frozen=True)
class Again:
    """A run to go on with."""

    source: RunDir
    checkpoint: Path | None  # None: it died before its first one, and begins anew
    facts: dict[str, Any]  # its config.json
    sidecar: dict[str, Any]
    config: Config
    changed: tuple[Change, ...]
    notes: tuple[str, ...]
    fork: bool

    @property
    def env_steps(self) -> int:
        return int(self.sidecar.get("env_steps", 0))

    @property
    def closing(self) -> bool:
        """Whether the run was over but for its last words; a change means that more is wanted."""
        return not self.fork and not self.changed and self.facts.get("status") != "finished"

    def lines(self, how: str) -> list[str]:
        """What a person should know; `how` is the worlds' exact or seam."""
        if self.checkpoint is None:
            where = "before its first checkpoint; it begins anew"
        else:
            where = f"at {self.env_steps:,} env steps ({self.checkpoint.stem}), {self.exactness(how)}"
        told = [*self.notes, f"{'fork of' if self.fork else 'resuming'} {self.source.id} {where}"]
        return told + ([f"changed: {', '.join(map(str, self.changed))}"] if self.changed else [])

    def exactness(self, how: str) -> str:
        """exact, or what keeps the rest of the run from being the one it would have been."""
        now = host_facts()
        then = {key: self.sidecar.get(key, now[key]) for key in now}
        other = [f"{key} {then[key]} then, {now[key]} now" for key in now if then[key] != now[key]]
        if how == "seam":
            other.append("seam: running episodes end as truncated")
        return "; ".join(["not to the bit", *other]) if other else "exact"


def find_again(selector: str, checkpoint: str, overrides: tuple[str, ...]) -> Again:
    """The run and the checkpoint that --resume and --checkpoint name, checked; who continues holds the run's lock."""
    run = RunDir.find(selector)
    fork = checkpoint not in ("", "last")
    facts = read_json(run.config_json)
    if not isinstance(facts, dict) or not isinstance(facts.get("config"), dict):
        raise UserError(f"{run.config_json} holds no config")
    before = from_plain(facts["config"], run.id)
    engine = facts.get("engine", "eager")
    if any(word.startswith("algo_id=") and word != f"algo_id={before.algo_id}" for word in overrides):
        raise UserError(f"algo_id {before.algo_id} stays: another algorithm is another run")
    after = from_plain(facts["config"], run.id, overrides)
    if before.env_backend == "auto":  # what was chosen then holds, whatever has been compiled since
        chosen = facts.get("env_backend", "gym")
        before = replace(before, env_backend=chosen)
        after = replace(after, env_backend=chosen) if after.env_backend == "auto" else after
    before = replace(before, engine=engine) if before.engine == "auto" else before
    after = replace(after, engine=engine) if after.engine == "auto" else after
    changed = tuple(changes(before, after))
    path, notes = _checkpoint(run, checkpoint or "last")
    sidecar = checkpoint_set.facts_of(path) if path else {}
    again = Again(run, path, facts, sidecar, after, changed, notes, fork)
    iteration = again.env_steps // max(1, sidecar.get("iterations", 0))
    if not again.closing and path and again.env_steps + iteration > after.max_timesteps:
        raise UserError(f"{run.id} has spent its budget of {after.max_timesteps:,}; give more: --max-timesteps N")
    return again


def _checkpoint(run: RunDir, name: str) -> tuple[Path | None, tuple[str, ...]]:
    folder = run.checkpoints
    if name == "last" and not checkpoint_set.target(folder / "last.ckpt") and not checkpoint_set.names(folder):
        return None, ()
    return checkpoint_set.choose(folder, name, run.id, remembering=True)


def host_facts() -> dict[str, Any]:
    """What equal bits rest on, beside the code: for sidecars, and to compare with them."""
    known = provenance_once()
    return {"versions": known["versions"], "cpu": torch.backends.cpu.get_cpu_capability()}


_PROVENANCE: dict[str, Any] = {}


def provenance_once() -> dict[str, Any]:
    """provenance(), asked of git and the package registry once per process."""
    if not _PROVENANCE:
        _PROVENANCE.update(provenance())
    return _PROVENANCE


def fork_facts(again: Again, facts: Mapping[str, Any]) -> dict[str, Any]:
    """config.json of a fork."""
    assert again.checkpoint is not None
    parent = {"run": again.source.id, "checkpoint": again.checkpoint.stem, "env_steps": again.env_steps}
    return {**facts, "parent": parent, "changed": [list(change) for change in again.changed]}


def continued_facts(again: Again) -> dict[str, Any]:
    """config.json of the run that goes on: its origin stays, this resume is listed beside it."""
    now = {**provenance_once(), "env_steps": again.env_steps, "changed": [list(change) for change in again.changed]}
    resumed = [*again.facts.get("resumed", []), now]
    return {**again.facts, "resumed": resumed, "status": "running", "config": to_plain(again.config)}


def adopt(run: RunDir, again: Again) -> Path:
    """Give a fork its parent's checkpoint and rows; the checkpoint's new path."""
    assert again.checkpoint is not None
    copy = run.checkpoints / again.checkpoint.name
    shutil.copyfile(again.checkpoint, copy)
    with open(copy, "rb") as file:
        os.fsync(file.fileno())
    old, new = (each.checkpoints / checkpoint_set.SEGMENTS for each in (again.source, run))
    new.mkdir(exist_ok=True)
    for name in again.sidecar.get("segments", []):
        shutil.copyfile(old / name, new / name)
    if again.source.metrics_csv.exists():
        shutil.copyfile(again.source.metrics_csv, run.metrics_csv)
    facts = {key: value for key, value in again.sidecar.items() if key != "file"}
    checkpoint_set.seal(copy, facts, ("best", "last"))
    return copy
