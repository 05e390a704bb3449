"""Resume a run: find the run and its checkpoint, check what changed, say whether the rest will be bit-exact.

`--resume RUN` continues in the same folder. `--fork`, or a checkpoint other than the last, starts a new run with a copy
of that checkpoint and of the rows up to it; `parent` in its config.json names the run it came from.

Here `facts` are the content of a run's config.json, and `sidecar` that of the .json file beside a checkpoint.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from stride.config.diff import ConfigChange, changes, merged_changes, unproven, written
from stride.config.loader import from_plain, to_plain
from stride.config.plugins import check_names, trust_in
from stride.config.schema import Config
from stride.config.sizes import check_foreign
from stride.envs_fast.vec_env import CPU
from stride.runstore import checkpoint_set, run_files
from stride.runstore.run_dir import RunDir
from stride.runstore.run_facts import mapping
from stride.runstore.run_fate import conclusion
from stride.utils.devices import gpu_details
from stride.utils.provenance import command, provenance, source_hash
from stride.utils.user_error import UserError

MAX_NAMED_EDITS = 4  # edited keys that a message names; it counts the others
GPU_KEYS = ("gpu", "driver", "cuda")  # of a sidecar: on a GPU, bits depend on these, too
SETTINGS_KEYS = ("config", "engine", "env_backend")  # of config.json: they decide the numbers of a run
RENEWED_KEYS = (  # of config.json: chosen again when a run is resumed
    "engine_reason", "play", "learn", "device", "threads", "threads_reason", "workers", "workers_reason",
    "settings_sha256",
)  # fmt: skip


@dataclass(frozen=True)
class Resumption:
    """The run, checkpoint and config that a training continues from."""

    source: RunDir
    checkpoint: Path | None  # None: the run died before its first checkpoint and starts again from step 0
    facts: dict[str, Any]  # config.json of `source`
    sidecar: dict[str, Any]
    config: Config  # what is trained now: the stored config with the overrides
    changed: tuple[ConfigChange, ...]  # how `config` differs from the checkpoint's
    notes: tuple[str, ...]  # about the choice of the checkpoint, for the person
    fork: bool
    edited: tuple[str, ...] = ()
    """What was changed in config.json by hand and accepted."""
    unsaved_fork: bool = False
    """A fork that is resumed before it saved anything: its checkpoint is its parent's, with that config."""

    @property
    def env_steps(self) -> int:
        return int(self.sidecar.get("env_steps", 0))

    @property
    def closing(self) -> bool:
        """Whether training was complete, and only the end of the run is missing; a changed config asks for more."""
        return not self.fork and not self.unsaved_fork and not self.changed and self.facts.get("status") != "finished"

    def lines(self, worlds: str, now: Mapping[str, object]) -> list[str]:
        """Return the lines logged at the start of a resumed training.

        `worlds`: "exact" if environments can be restored, "seam" if episodes start anew. `now`: `bits_rest_on` of this
        process.
        """
        position = "before its first checkpoint; it starts again from step 0"
        if self.checkpoint:
            position = f"at {self.env_steps:,} env steps ({self.checkpoint.stem}), {self.exactness(worlds, now)}"
        messages = [*self.notes, f"{'fork of' if self.fork else 'resuming'} {self.source.id} {position}"]
        if self.edited:
            messages.append(f"edited by hand in config.json: {', '.join(self.edited)}")
        if self.changed:
            messages.append(f"changed: {', '.join(map(str, self.changed))}")
        return messages

    def exactness(self, worlds: str, now: Mapping[str, object]) -> str:
        """Return "exact", or "not bit-exact" with the reasons: "not bit-exact; cpu AVX2 then, AVX512 now"."""
        saved_facts = {**self.sidecar, **self.sidecar.get("versions", {})}
        present_facts = {**now, **mapping(now["versions"])}
        del present_facts["versions"]
        if saved_facts.get("device") != present_facts["device"]:  # one reason is enough: leave out the GPU's details
            present_facts = {key: value for key, value in present_facts.items() if key not in GPU_KEYS}
        reasons = []
        for key, value in present_facts.items():
            if saved_facts.get(key) != value:
                reasons.append(f"{key} {_printable(saved_facts.get(key, 'unknown'))} then, {_printable(value)} now")
        changed_keys = [change.key for change in unproven(self.changed, self.config, str(now["engine"]))]
        if changed_keys:
            reasons.append(f"{', '.join(changed_keys)} changed")
        if self.edited and not self.changed:
            reasons.append("config.json was edited by hand")
        if worlds == "seam":
            reasons.append("seam: running episodes end as truncated")
        return "; ".join(["not bit-exact", *reasons]) if reasons else "exact"


def _printable(value: object) -> str:
    """Return at most 160 printable characters: a sidecar may come from anybody and contain escape sequences."""
    return "".join(c if c.isprintable() else "?" for c in str(value))[:160]


def find_resumption(
    selector: str,
    checkpoint: str,
    overrides: tuple[str, ...],
    accept_changes: bool = False,
    trusted: Sequence[str] = (),
    fork: bool = False,
    spent: bool = False,
) -> Resumption:
    """Find and check the run and the checkpoint that --resume and --checkpoint name. The caller holds the run's lock.

    `selector`: a run's id or folder. `checkpoint`: last, best, a name, or "" for last. `trusted`: modules of the
    run that may be imported. `spent`: accept a run whose budget is spent. Raises UserError with the remedy if the run
    cannot be continued in this way.
    """
    run = RunDir.find(selector)
    run_files.check_folder(run.path)
    facts = run.facts()
    if "config" not in facts:
        raise UserError(f"{run.config_json} has no config")
    path, notes = _checkpoint(run, checkpoint or "last", may_step=fork)
    if fork and not path:
        raise UserError(f"{run.id} has no checkpoint yet, so there is nothing to fork")
    fork = fork or checkpoint not in ("", "last")
    sidecar = checkpoint_set.facts_of(path) if path else {}
    edited = tuple(edits(facts, sidecar))
    if edited and not accept_changes:
        raise UserError(
            f"{run.config_json} was edited by hand: {', '.join(edited)}; undo that and give it as key=value, or "
            "add --accept-changes"
        )
    # what `auto` meant when the checkpoint was made
    chosen = {key: sidecar.get(key, facts.get(key)) for key in ("engine", "env_backend")}
    chosen["workers"] = facts.get("workers")
    trust = trust_in(run, trusted)
    saved = sidecar.get("config", facts["config"])
    for plain_config in (saved, facts["config"]):
        check_names(plain_config, trust, run.id)
    saved_config = from_plain(saved, run.id, trust=trust)
    if any(word.startswith("algo_id=") and word != f"algo_id={saved_config.algo_id}" for word in overrides):
        raise UserError(f"algo_id cannot change from {saved_config.algo_id} in a resumed run; start a new run")
    wanted_config = from_plain(facts["config"], run.id, overrides, trust)
    if run.foreign:
        check_foreign(wanted_config, run.id)
    if path or "engine" in facts:  # else the run failed before anything was chosen
        saved_config = _as_chosen(saved_config, chosen, run.id)
        if wanted_config.on_cuda != saved_config.on_cuda:  # an engine runs on one kind of device only
            chosen["engine"] = "auto"
        wanted_config = _as_chosen(wanted_config, chosen, run.id)
    unsaved_fork = (
        not fork and path is not None and sidecar["env_steps"] == mapping(facts.get("parent")).get("env_steps")
    )
    changed = tuple(changes(saved_config, wanted_config, may_differ=("seed",) if fork or unsaved_fork else ()))
    resume = Resumption(run, path, facts, sidecar, wanted_config, changed, notes, fork, edited, unsaved_fork)
    if not resume.closing and path and not spent:
        _check_budget(resume, overrides)
    return resume


def _check_budget(resume: Resumption, overrides: tuple[str, ...]) -> None:
    """Raise UserError if the budget is spent, or the run is finished and the overrides do not ask for more."""
    steps_done = resume.env_steps
    budget = resume.config.max_timesteps
    # env steps of an iteration: if not one more fits, the budget is spent
    iteration = steps_done // max(1, resume.sidecar.get("iterations", 0))
    suggestion = f"more: --max-timesteps {2 * steps_done}, or any number from {steps_done + iteration}"
    outcome = mapping(resume.facts.get("outcome"))
    finished = resume.facts.get("status") == "finished" and steps_done >= (outcome.get("env_steps") or 0)
    if finished and not resume.fork and not overrides:
        raise UserError(f"{resume.source.id} is finished: {conclusion(outcome)}; to continue, give it {suggestion}")
    if steps_done + iteration > budget:
        done_words = f"{resume.source.id} has done {steps_done:,} env steps"
        raise UserError(f"{done_words}; {iteration:,} more would exceed the budget of {budget:,}; give it {suggestion}")


def _checkpoint(run: RunDir, name: str, may_step: bool) -> tuple[Path | None, tuple[str, ...]]:
    """Return the checkpoint's path, None if the run has none yet, and notes about the choice."""
    folder = run.checkpoints
    if name == "last" and not checkpoint_set.target(folder / "last.ckpt") and not checkpoint_set.names(folder):
        return None, ()
    return checkpoint_set.select(folder, name, run.id, remembering=True, may_step=may_step)


def _as_chosen(config: Config, chosen: Mapping[str, object], where: str) -> Config:
    """Replace `auto` for engine, env_backend and workers by what it meant when the run started (`chosen`)."""
    values = {"engine": chosen["engine"] or "eager", "env_backend": chosen["env_backend"] or "gym"}
    if isinstance(chosen["workers"], int):  # older runs did not store it
        values["workers"] = chosen["workers"]
    open_keys = {key: value for key, value in values.items() if vars(config)[key] == "auto"}
    return from_plain({**to_plain(config), **open_keys}, where) if open_keys else config


def settings_hash(facts: Mapping[str, object]) -> str:
    """Return the SHA-256 of the SETTINGS_KEYS of config.json; a training stores it there, to detect edits by hand."""
    return json_hash({key: facts.get(key) for key in SETTINGS_KEYS})


def json_hash(data: Mapping[str, object]) -> str:
    """Return the SHA-256 of the data as JSON with sorted keys."""
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def edits(facts: Mapping[str, object], sidecar: Mapping[str, object]) -> list[str]:
    """Return what was changed in config.json by hand since this program wrote it, [] if nothing.

    The old values come from the checkpoint's sidecar; without one, the only entry says that the hash differs.
    """
    if "settings_sha256" in facts or "engine" in sidecar:
        unedited = facts.get("settings_sha256") == settings_hash(facts)
    else:  # written by an older version of Stride
        unedited = sidecar.get("config_sha256", "") in ("", json_hash(mapping(facts["config"])))
    if unedited:
        return []
    saved_settings = {**mapping(sidecar.get("config")), "engine of the run": sidecar.get("engine")}
    present_settings = {**mapping(facts["config"]), "engine of the run": facts.get("engine")}
    differing = [
        key for key in {**saved_settings, **present_settings} if saved_settings.get(key) != present_settings.get(key)
    ]
    edited = [ConfigChange(key, saved_settings.get(key), present_settings.get(key)) for key in differing]
    if "config" not in sidecar or not edited:
        return ["its hash differs from the hash it was saved with"]
    remainder = [f"and {len(edited) - MAX_NAMED_EDITS} more"] if len(edited) > MAX_NAMED_EDITS else []
    return [*map(_printable, edited[:MAX_NAMED_EDITS]), *remainder]


def host_facts(device: torch.device = CPU) -> dict[str, Any]:
    """Return what equal bits depend on in this process and machine: stored in sidecars and compared with them."""
    versions = provenance_once()["versions"]
    cpu = torch.backends.cpu.get_cpu_capability()
    return {"code": source_hash(), "versions": versions, "cpu": cpu, **gpu_details(device)}


@cache
def _provenance() -> dict[str, Any]:
    """Ask git and the package registry once per process: a process may train several runs."""
    return provenance()


def provenance_once() -> dict[str, Any]:
    """provenance() with the present command."""
    return {**_provenance(), "command": command()}


def fork_facts(resume: Resumption, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config.json of a fork; `facts`: that of a new run."""
    assert resume.checkpoint is not None
    parent = {"run": resume.source.id, "checkpoint": resume.checkpoint.stem, "env_steps": resume.env_steps}
    changes = merged_changes(resume.facts.get("changes", []), facts["changes"])
    changed = [list(change) for change in resume.changed]
    return {**facts, "parent": parent, "changed": changed, "changes": changes, "shipped": _shipped(resume)}


def continued_facts(resume: Resumption, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config.json of a run resumed in its folder; `facts`: that of a new run.

    The entries about its origin stay; this resume is added to the list `resumed`.
    """
    changed = [list(change) for change in resume.changed]
    entry = {**provenance_once(), "env_steps": resume.env_steps, "changed": changed}
    resumed = [*resume.facts.get("resumed", []), entry]
    settings = {key: facts[key] for key in (*RENEWED_KEYS, *SETTINGS_KEYS)}
    settings["changes"] = merged_changes(resume.facts.get("changes", []), facts["changes"])
    settings["shipped"] = _shipped(resume)
    return {**facts, **resume.facts, **settings, "resumed": resumed, "status": "running"}


def _shipped(resume: Resumption) -> list[str]:
    """Return the overrides that restore the variant's own values: for keys changed by this resume their old values, and
    the ones that the run had already."""
    before = [f"{change.key}={written(change.before)}" for change in resume.changed]
    return merged_changes(before, resume.facts.get("shipped", []))


def adopt(run: RunDir, resume: Resumption) -> None:
    """Copy the parent's checkpoint (with the same file name), replay memory and rows into the new run of a fork."""
    assert resume.checkpoint is not None
    checkpoint_copy = run.checkpoints / resume.checkpoint.name
    run_files.copy(resume.checkpoint, checkpoint_copy)
    segments = run.checkpoints / checkpoint_set.SEGMENTS
    run_files.make_folder(segments)
    for segment_name in resume.sidecar.get("segments", []):  # plain file names: facts_of has checked their form
        run_files.copy(resume.source.checkpoints / checkpoint_set.SEGMENTS / segment_name, segments / segment_name)
    if run_files.exists(resume.source.metrics_csv):
        run_files.copy(resume.source.metrics_csv, run.metrics_csv)
    facts = {key: value for key, value in resume.sidecar.items() if key != "file"}
    checkpoint_set.seal(checkpoint_copy, facts, ("best", "last"))
