"""The checkpoints of a run: commit one, choose one to load, delete old ones. Used by training, playing and resuming.

A checkpoint is a set of three: the file (epoch=04.ckpt), its sidecar with size and hash (epoch=04.json), and perhaps
the links `best` and `last`. They are written in this order, each in one step. So the set that a link names was complete
once, and only a set whose bytes still have the sidecar's hash is trusted. Names: `epoch=NN` for the end of an epoch,
`step=N` for a save within one (only the newest of these is kept). No torch.
"""

import hashlib
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from stride.runstore import run_files, run_names
from stride.runstore.metrics_table import STEPS, MetricsTable, Row
from stride.runstore.run_facts import finite, mapping, whole
from stride.utils.user_error import UserError, nearest

NAME = run_names.CHECKPOINT
EPOCH = re.compile(r"epoch=([0-9]{1,18})")
SHA256 = re.compile(r"[0-9a-f]{64}")
LINKS = ("best", "last")
SEGMENTS = "segments"  # subfolder with the rows of the replay memory, in files <first>-<last>-<hash>.rows


class Chosen(NamedTuple):
    """A checkpoint whose bytes are right, and notes: one line for each way in which it is not the one asked for."""

    path: Path
    notes: tuple[str, ...]


def seal(path: Path, facts: dict[str, object], links: tuple[str, ...]) -> None:
    """Commit a checkpoint that was just written: write its sidecar with `facts`, then make `links` point to it.

    The folder is synced before a link names the files, and again before the caller deletes those that they replace. (A
    sync takes 3 ms. After a power cut between the two, at most half a set exists, which readers ignore.)
    """
    sidecar = path.with_suffix(".json")
    run_files.write_json(sidecar, {"file": path.name, **facts}, sync_name=False)
    run_files.sync_folder(path.parent)
    point(path, links)


def point(path: Path, links: tuple[str, ...]) -> None:
    """Make these links ("best", "last") point to a checkpoint and its sidecar."""
    for link in sorted(links):
        run_files.point(path.with_name(f"{link}.json"), f"{path.stem}.json")
        run_files.point(path.with_name(f"{link}.ckpt"), path.name)
    run_files.sync_folder(path.parent)


def digest(path: Path) -> dict[str, Any]:
    """Return {"size": bytes, "sha256": hex} of a file, as a sidecar stores them."""
    with run_files.open_file(path) as file:
        return {"size": os.fstat(file.fileno()).st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def facts_of(path: Path) -> dict[str, Any]:
    """Return a checkpoint's sidecar; {} if there is none or it is not a valid one."""
    try:
        sidecar = run_files.read_json(path.with_suffix(".json"))
    except UserError:
        return {}
    return sidecar if isinstance(sidecar, dict) and _is_valid(sidecar) else {}


def _is_valid(sidecar: dict[str, object]) -> bool:
    """Whether every name and number in a sidecar has the form it is written in: paths are made of them."""
    segments, sha256 = sidecar.get("segments", []), sidecar.get("sha256")
    return (
        isinstance(sha256, str)
        and SHA256.fullmatch(sha256) is not None
        and all(whole(sidecar.get(key)) for key in ("size", "epoch", "iterations", "env_steps", "exported"))
        and isinstance(segments, list)
        and all(isinstance(name, str) and run_names.SEGMENT.fullmatch(name) for name in segments)
        and all(isinstance(sidecar.get(key, {}), dict) for key in ("config", "versions"))
    )


def fault(path: Path, remembering: bool = False) -> str:
    """Return why the checkpoint cannot be trusted, "" if it can; `remembering`: check its replay memory's rows, too."""
    sidecar = facts_of(path)
    try:
        file_status = run_files.status(path)
    except UserError:
        return "is not a file of this run"
    if file_status is None:
        return "does not exist"
    if not sidecar:
        return "has no sidecar with its size and hash"
    if file_status.st_size != sidecar["size"]:
        return f"is damaged: {file_status.st_size:,} bytes instead of {sidecar['size']:,}"
    if digest(path)["sha256"] != sidecar["sha256"]:
        return "is damaged: its hash has changed"
    for name in sidecar.get("segments", []) if remembering else ():
        if not _is_intact(path.parent / SEGMENTS / name):
            return f"lacks part of its replay memory: {name} is missing or damaged"
    return ""


def _is_intact(segment: Path) -> bool:
    """Whether a file of replay memory rows has the hash that its name ends with."""
    try:
        return str(digest(segment)["sha256"])[:16] == segment.stem.rpartition("-")[2]
    except UserError:
        return False


def known(folder: Path) -> dict[str, dict[str, Any]]:
    """Return {name: sidecar} of every checkpoint, oldest first; files without a sidecar are left out."""
    sidecars = {stem: facts_of(folder / f"{stem}.ckpt") for stem in _stems(folder, ".ckpt")}
    complete = {stem: sidecar for stem, sidecar in sidecars.items() if sidecar}
    return dict(sorted(complete.items(), key=lambda item: (item[1]["iterations"], item[0])))


def names(folder: Path) -> list[str]:
    """Return the names of all checkpoints, oldest first."""
    return list(known(folder))


def _stems(folder: Path, suffix: str) -> list[str]:
    """Return the names, without suffix and in no order, of all checkpoint files with this suffix."""
    file_stems = [name.removesuffix(suffix) for name in run_files.list_names(folder) if name.endswith(suffix)]
    return [stem for stem in file_stems if NAME.fullmatch(stem)]


def epochs(folder: Path) -> list[str]:
    """Return `epoch=NN` of every file with such a name, in order of NN, whether or not it is sound."""
    file_stems = [stem for stem in _stems(folder, ".ckpt") if EPOCH.fullmatch(stem)]
    return sorted(file_stems, key=lambda stem: int(stem.removeprefix("epoch=")))


def target(link: Path) -> str:
    """Return the name of the checkpoint that a link points to (in the same folder); "" if there is no link."""
    return run_files.read_link(link).removesuffix(".ckpt")


def select(folder: Path, name: str, owner: str, remembering: bool = False, may_step: bool = False) -> Chosen:
    """Return the checkpoint meant by best, last or epoch=NN. `may_step`: also by step=N (a run keeps the newest).

    `remembering`: its replay memory must be complete, too. `owner` names the run in messages.

    If the target of a link is damaged, or there is no `best` yet, another checkpoint is taken, and a note says so. An
    epoch that was asked for by number is returned or refused. The bytes had the sidecar's hash a moment ago; a run in
    training may delete the file the next moment. Whether it fits a config is checked by its reader.
    """
    if EPOCH.fullmatch(name) or (may_step and NAME.fullmatch(name)):
        return Chosen(_by_name(folder, name, owner, remembering), ())
    if name not in LINKS:
        raise UserError(f"--checkpoint takes best, last or epoch=NN, not {name!r}{nearest(name, LINKS)}")
    notes: list[str] = []
    linked = target(folder / f"{name}.ckpt")
    sidecars = known(folder)
    # order of the candidates: the link's target, then by highest score (best) or newest first (last)
    candidates = _by_worth(folder, sidecars) if name == "best" else list(sidecars)[::-1]
    if name == "best":
        scored = [stem for stem in candidates if _score(folder, sidecars[stem]) > -math.inf]
        if not linked or not scored:
            missing = "evaluation in which every episode ended" if linked else "best checkpoint"
            notes.append(f"{owner} has no {missing}: using last")
            linked = target(folder / "last.ckpt") or linked
        elif linked in sidecars and linked not in scored:  # older versions linked such checkpoints
            notes.append(f"{owner}: some episodes of the evaluation of {linked} did not end")
            linked = scored[0]
    if linked:
        candidates = [linked, *(stem for stem in candidates if stem != linked)]
    for stem in candidates:
        path = folder / f"{stem}.ckpt"
        problem = fault(path, remembering)
        if not problem:
            if notes and not notes[-1].endswith("last"):
                notes.append(f"using {stem}")
            return Chosen(path, tuple(notes))
        notes.append(f"{owner}: {stem} {problem}")
    raise UserError(f"{owner} has no checkpoint" + ("; ".join(["", *notes]) if candidates else " yet"))


def _by_name(folder: Path, name: str, owner: str, remembering: bool) -> Path:
    """Return the checkpoint of this name (any leading zeros in an epoch); UserError if it is unusable."""
    numbers = {int(stem.removeprefix("epoch=")): stem for stem in epochs(folder)[::-1]}
    epoch_match = EPOCH.fullmatch(name)
    stem = numbers.get(int(epoch_match[1]), name) if epoch_match else name
    checkpoints = names(folder)
    if stem not in _stems(folder, ".ckpt"):
        raise UserError(f"{owner} has no checkpoint {name}; it has {', '.join(checkpoints) or 'none'}")
    if problem := fault(folder / f"{stem}.ckpt", remembering):
        others = [other for other in checkpoints if other != stem]
        raise UserError(f"{owner}: {stem} {problem}; it also has {', '.join(others) or 'none'}")
    return folder / f"{stem}.ckpt"


def score_of(path: Path) -> float:
    """Return the evaluation mean of a checkpoint; -inf if its evaluation was not complete or the mean is not finite."""
    return _score(path.parent, facts_of(path))


def _score(folder: Path, sidecar: dict[str, Any]) -> float:
    mean_score = whole_score(sidecar, folder.parent)
    return -math.inf if mean_score is None else mean_score


def _by_worth(folder: Path, sidecars: dict[str, dict[str, Any]]) -> list[str]:
    """Return checkpoint names, the best score first, then the newer before the older."""
    return sorted(list(sidecars)[::-1], key=lambda stem: -_score(folder, sidecars[stem]))


def prune(folder: Path, keep_last: int | None, keep_best: int) -> dict[str, dict[str, Any]]:
    """Delete checkpoints neither among the newest or best, nor linked; return {name: sidecar} of the others.

    `keep_last` None keeps every epoch. Of `step=N` only a linked one stays.
    """
    sidecars = known(folder)
    remaining = {target(folder / f"{link}.ckpt") for link in LINKS}
    epoch_stems = [stem for stem in sidecars if stem.startswith("epoch=")]
    if keep_last is None:
        remaining.update(epoch_stems)
    else:
        scored = [stem for stem in _by_worth(folder, sidecars) if _score(folder, sidecars[stem]) > -math.inf]
        remaining.update(epoch_stems[-keep_last:], scored[:keep_best])
    for stem in sidecars.keys() - remaining:
        run_files.remove(folder / f"{stem}.json")
        run_files.remove(folder / f"{stem}.ckpt")
    return {stem: sidecar for stem, sidecar in sidecars.items() if stem in remaining}


def sweep_orphans(folder: Path) -> int:
    """Delete halves of sets, left by a process that died between a checkpoint and its sidecar; return how many."""
    half_sets = set(_stems(folder, ".ckpt")) ^ set(_stems(folder, ".json"))
    for stem in half_sets:
        run_files.remove(folder / f"{stem}.ckpt")
        run_files.remove(folder / f"{stem}.json")
    return len(half_sets)


# metric that counts the episodes played -> config key with the number that should be; the first metric found counts
EPISODE_METRICS = {"val/roll/episodes": "eval_episodes", "test/roll/episodes": "test_episodes"}


def whole_score(sidecar: Mapping[str, object], run: Path) -> float | None:
    """Return a sidecar's score; None if it has none, or if not all episodes ended. `run`: the run's folder."""
    mean_score = finite(sidecar.get("score"))
    if mean_score is None or "score_episodes" in sidecar:
        return mean_score
    config, steps = mapping(sidecar.get("config")), finite(sidecar.get("env_steps"))
    episode_counts = _episode_counts(run / "metrics.csv", steps) if config and steps is not None else {}
    for metric, key in EPISODE_METRICS.items():
        if metric in episode_counts:
            return mean_score if episode_counts[metric] >= (finite(config.get(key)) or 0) else None
    return mean_score


def _episode_counts(path: Path, steps: float) -> Row:
    """Return {metric: episodes that ended} of the evaluation and the test at these env steps, if they are found."""
    episode_counts: Row = {}
    for row in MetricsTable(path, (STEPS, *EPISODE_METRICS)).end():
        if row.get(STEPS) == steps:
            episode_counts |= row
    return episode_counts
