"""Where a training goes on: which run, from which checkpoint, with which changes, and whether to the bit.

`--resume RUN` continues in the same folder. `--fork`, or a checkpoint that is not the last, begins a new run with a
copy of that checkpoint and of the rows up to it, which says in config.json whose child it is.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from stride.config.diff import ConfigChange, changes, unproven
from stride.config.loader import from_plain, to_plain
from stride.config.plugins import check_names, trust_in
from stride.config.schema import Config
from stride.config.sizes import check_foreign
from stride.envs_fast.vec_env import CPU
from stride.runstore import checkpoint_set, run_files
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import mapping
from stride.runstore.run_fate import conclusion
from stride.trainer_callbacks.gpu_facts import gpu_facts
from stride.utils.provenance import command, provenance, source_hash
from stride.utils.user_error import UserError

MOST = 4  # edited keys that are named
GPU = ("gpu", "driver", "cuda")  # of a sidecar: what bits rest on where the device is cuda
SETTINGS = ("config", "engine", "env_backend")  # of config.json: what decides the numbers of a run


@dataclass(frozen=True)
class Resumption:
    """A run to go on with."""

    source: RunDir
    checkpoint: Path | None  # None: it died before its first one, and begins anew
    facts: dict[str, Any]  # its config.json
    sidecar: dict[str, Any]
    config: Config
    changed: tuple[ConfigChange, ...]
    notes: tuple[str, ...]
    fork: bool
    edited: tuple[str, ...] = ()
    """What was changed in config.json by hand and accepted."""
    unmoved: bool = False
    """A fork that goes on and has saved nothing yet: its checkpoint is its parent's, made under the parent's config."""

    @property
    def env_steps(self) -> int:
        return int(self.sidecar.get("env_steps", 0))

    @property
    def closing(self) -> bool:
        """Whether the run was over but for its last words; a change means that more is wanted."""
        return not self.fork and not self.unmoved and not self.changed and self.facts.get("status") != "finished"

    def lines(self, how: str, now: Mapping[str, object]) -> list[str]:
        """What a person should know; `how` is the worlds' exact or seam, `now` what the bits rest on here."""
        if self.checkpoint is None:
            where = "before its first checkpoint; it begins anew"
        else:
            where = f"at {self.env_steps:,} env steps ({self.checkpoint.stem}), {self.exactness(how, now)}"
        lines = [*self.notes, f"{'fork of' if self.fork else 'resuming'} {self.source.id} {where}"]
        lines += [f"edited by hand in config.json: {', '.join(self.edited)}"] if self.edited else []
        return lines + ([f"changed: {', '.join(map(str, self.changed))}"] if self.changed else [])

    def exactness(self, how: str, now: Mapping[str, object]) -> str:
        """exact, or what keeps the rest of the run from being the one it would have been."""
        versions = self.sidecar.get("versions", {})
        then = {**self.sidecar, **versions}
        here = {**{key: now[key] for key in now if key != "versions"}, **mapping(now["versions"])}
        moved = then.get("device") != here["device"]  # then the GPU's own facts say nothing more
        other = [
            f"{key} {_printable(then.get(key, 'unknown'))} then, {_printable(here[key])} now"
            for key in here
            if then.get(key) != here[key] and not (moved and key in GPU)
        ]
        keys = [change.key for change in unproven(self.changed, self.config, str(now["engine"]))]
        other += [f"{', '.join(keys)} changed"] if keys else []
        if self.edited and not self.changed:
            other.append("config.json was edited by hand")
        if how == "seam":
            other.append("seam: running episodes end as truncated")
        return "; ".join(["not to the bit", *other]) if other else "exact"


def _printable(fact: object) -> str:
    """A fact of a sidecar, which anybody may have written, in a few printable words."""
    return "".join(c if c.isprintable() else "?" for c in str(fact))[:160]


def find_resumption(
    selector: str,
    checkpoint: str,
    overrides: tuple[str, ...],
    accept_changes: bool = False,
    trusted: Sequence[str] = (),
    fork: bool = False,
    spent: bool = False,
) -> Resumption:
    """The run and the checkpoint that --resume and --checkpoint name, checked; who continues holds the run's lock.

    `spent`: whether it may be that nothing is left to train.
    """
    run = RunDir.find(selector)
    run_files.check_folder(run.path)
    may_step, fork = fork, fork or checkpoint not in ("", "last")
    facts = run.facts()
    if "config" not in facts:
        raise UserError(f"{run.config_json} holds no config")
    path, notes = _checkpoint(run, checkpoint or "last", may_step)
    if may_step and not path:
        raise UserError(f"{run.id} has no checkpoint yet, so there is nothing to fork")
    sidecar = checkpoint_set.facts_of(path) if path else {}
    edited = tuple(edits(facts, sidecar))
    if edited and not accept_changes:
        raise UserError(
            f"{run.config_json} was edited by hand: {', '.join(edited)}; undo that and say it as key=value, or give "
            "--accept-changes"
        )
    chosen = {key: sidecar.get(key, facts.get(key)) for key in ("engine", "env_backend")}
    chosen["workers"] = facts.get("workers")
    trust, saved = trust_in(run, trusted), sidecar.get("config", facts["config"])
    for plain in (saved, facts["config"]):
        check_names(plain, trust, run.id)
    before = from_plain(saved, run.id, trust=trust)
    if any(word.startswith("algo_id=") and word != f"algo_id={before.algo_id}" for word in overrides):
        raise UserError(f"algo_id {before.algo_id} stays: another algorithm is another run")
    after = from_plain(facts["config"], run.id, overrides, trust)
    if run.foreign:
        check_foreign(after, run.id)
    if path or "engine" in facts:  # else it failed before anything was chosen
        if after.on_cuda != before.on_cuda:
            before, chosen["engine"] = _as_chosen(before, chosen, run.id), "auto"  # an engine is of its device
        before, after = (_as_chosen(config, chosen, run.id) for config in (before, after))
    unmoved = not fork and path is not None and sidecar["env_steps"] == mapping(facts.get("parent")).get("env_steps")
    changed = tuple(changes(before, after, may_differ=("seed",) if fork or unmoved else ()))
    resume = Resumption(run, path, facts, sidecar, after, changed, notes, fork, edited, unmoved)
    if not resume.closing and path and not spent:
        _check_budget(resume, overrides)
    return resume


def _check_budget(resume: Resumption, overrides: tuple[str, ...]) -> None:
    """UserError where nothing is left to train: the budget is spent, or the run is over and nobody asked for more."""
    done, budget = resume.env_steps, resume.config.max_timesteps
    iteration = done // max(1, resume.sidecar.get("iterations", 0))  # a budget into which not one more fits is spent
    more = f"more: --max-timesteps {2 * done}, or any number from {done + iteration} on"
    outcome = mapping(resume.facts.get("outcome"))
    whole = resume.facts.get("status") == "finished" and done >= (outcome.get("env_steps") or 0)
    if whole and not resume.fork and not overrides:
        raise UserError(f"{resume.source.id} is finished: {conclusion(outcome)}; to train on, give it {more}")
    if done + iteration > budget:
        full = (
            f"{resume.source.id} has done {done:,} env steps, a budget of {budget:,} is no room for {iteration:,} more"
        )
        raise UserError(f"{full}; give it {more}")


def _checkpoint(run: RunDir, name: str, may_step: bool) -> tuple[Path | None, tuple[str, ...]]:
    folder = run.checkpoints
    if name == "last" and not checkpoint_set.target(folder / "last.ckpt") and not checkpoint_set.names(folder):
        return None, ()
    return checkpoint_set.select(folder, name, run.id, remembering=True, may_step=may_step)


def _as_chosen(config: Config, chosen: Mapping[str, object], where: str) -> Config:
    """Where the config leaves it open, what was taken then holds, whatever else would be taken now."""
    taken = {"engine": chosen["engine"] or "eager", "env_backend": chosen["env_backend"] or "gym"}
    if isinstance(workers := chosen.get("workers"), int):  # older runs do not say
        taken["workers"] = workers
    open_keys = {key: value for key, value in taken.items() if vars(config)[key] == "auto"}
    return from_plain({**to_plain(config), **open_keys}, where) if open_keys else config


def settings_hash(facts: Mapping[str, object]) -> str:
    """SHA-256 of what config.json says of how a run is trained; written beside it by whoever trains."""
    return json_hash({key: facts.get(key) for key in SETTINGS})


def json_hash(data: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def edits(facts: Mapping[str, object], sidecar: Mapping[str, object]) -> list[str]:
    """What was changed in config.json by another hand than this program's, key by key where that can be told."""
    if "settings_sha256" in facts or "engine" in sidecar:
        same = facts.get("settings_sha256") == settings_hash(facts)
    else:  # of an older version
        same = sidecar.get("config_sha256", "") in ("", json_hash(mapping(facts["config"])))
    if same:
        return []
    then = {**mapping(sidecar.get("config")), "engine of the run": sidecar.get("engine")}
    now = {**mapping(facts["config"]), "engine of the run": facts.get("engine")}
    known = "config" in sidecar
    found = [ConfigChange(key, then.get(key), now.get(key)) for key in {**then, **now} if then.get(key) != now.get(key)]
    if not known or not found:
        return ["it no longer has the hash it was written with"]
    more = [f"and {len(found) - MOST} more"] if len(found) > MOST else []
    return [_printable(change) for change in found[:MOST]] + more


def host_facts(device: torch.device = CPU) -> dict[str, Any]:
    """What equal bits rest on: for sidecars, and to compare with them."""
    known = provenance_once()
    facts = {"code": source_hash(), "versions": known["versions"], "cpu": torch.backends.cpu.get_cpu_capability()}
    return {**facts, **gpu_facts(device)}


_PROVENANCE: dict[str, Any] = {}


def provenance_once() -> dict[str, Any]:
    """provenance(), asked of git and the package registry once per process, which may train several runs."""
    if not _PROVENANCE:
        _PROVENANCE.update(provenance())
    return {**_PROVENANCE, "command": command()}


def fork_facts(resume: Resumption, facts: Mapping[str, object]) -> dict[str, Any]:
    """config.json of a fork."""
    assert resume.checkpoint is not None
    parent = {"run": resume.source.id, "checkpoint": resume.checkpoint.stem, "env_steps": resume.env_steps}
    return {**facts, "parent": parent, "changed": [list(change) for change in resume.changed]}


def continued_facts(resume: Resumption, facts: Mapping[str, object]) -> dict[str, Any]:
    """config.json of the run that goes on: its origin stays, this resume is listed; `facts` are as of a new run."""
    now = {
        **provenance_once(),
        "env_steps": resume.env_steps,
        "changed": [list(change) for change in resume.changed],
    }
    resumed = [*resume.facts.get("resumed", []), now]
    taken = ("engine_reason", "play", "learn", "device", "threads", "threads_reason", "workers", "workers_reason",
             "settings_sha256")  # fmt: skip
    settings = {key: facts[key] for key in (*taken, *SETTINGS)}
    return {**facts, **resume.facts, **settings, "resumed": resumed, "status": "running"}


def adopt(run: RunDir, resume: Resumption) -> None:
    """Give a fork its parent's checkpoint, under its name there, and rows."""
    assert resume.checkpoint is not None
    copy = run.checkpoints / resume.checkpoint.name
    run_files.copy(resume.checkpoint, copy)
    old, new = (each.checkpoints / checkpoint_set.SEGMENTS for each in (resume.source, run))
    run_files.make_folder(new)
    for name in resume.sidecar.get("segments", []):  # of the exact form, as facts_of found them
        run_files.copy(old / name, new / name)
    if run_files.exists(resume.source.metrics_csv):
        run_files.copy(resume.source.metrics_csv, run.metrics_csv)
    facts = {key: value for key, value in resume.sidecar.items() if key != "file"}
    checkpoint_set.seal(copy, facts, ("best", "last"))
