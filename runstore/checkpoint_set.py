"""The checkpoints of a run: a file, its sidecar with size and hash, and the links `best` and `last`. No torch.

They are written in the order file, sidecar, link, each in one instant. So whatever happened, the set that a link
names was whole once; and only a set whose bytes still have the sidecar's hash is trusted. Names: `epoch=NN` where an
epoch ended, `step=N` in the middle of one (only the newest of these is kept).
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
SEGMENTS = "segments"  # the folder of a replay memory's rows, beside the checkpoints: first-last-hash.rows


class Chosen(NamedTuple):
    """A checkpoint whose bytes are right, and what was not as asked for, a line each."""

    path: Path
    notes: tuple[str, ...]


def seal(path: Path, facts: dict[str, object], links: tuple[str, ...]) -> None:
    """Commit a checkpoint that was just written: its sidecar, then the links, `last` at the very end.

    The folder is synced before a link names them, and again before the caller deletes what they replace. (A sync takes
    3 ms; after a power cut between the two syncs there is at most half a set, which a reader takes for none.)
    """
    sidecar = path.with_suffix(".json")
    run_files.write_json(sidecar, {"file": path.name, **facts}, sync_name=False)
    run_files.sync_folder(path.parent)
    point(path, links)


def point(path: Path, links: tuple[str, ...]) -> None:
    """Have these links name a checkpoint."""
    for link in sorted(links):
        run_files.point(path.with_name(f"{link}.json"), f"{path.stem}.json")
        run_files.point(path.with_name(f"{link}.ckpt"), path.name)
    run_files.sync_folder(path.parent)


def digest(path: Path) -> dict[str, Any]:
    """Size and hash of a file, as a sidecar has them."""
    with run_files.open_file(path) as file:
        return {"size": os.fstat(file.fileno()).st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def facts_of(path: Path) -> dict[str, Any]:
    """A checkpoint's sidecar; {} where there is none that could be one."""
    try:
        sidecar = run_files.read_json(path.with_suffix(".json"))
    except UserError:
        return {}
    return sidecar if isinstance(sidecar, dict) and _is_valid(sidecar) else {}


def _is_valid(sidecar: dict[str, object]) -> bool:
    """Whether every name and number in a sidecar has the form it is written in: paths are built of them."""
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
    """Why the checkpoint cannot be trusted, "" where it can; `remembering`: with the rows of its replay memory."""
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
    try:
        return str(digest(segment)["sha256"])[:16] == segment.stem.rpartition("-")[2]
    except UserError:
        return False


def known(folder: Path) -> dict[str, dict[str, Any]]:
    """The sidecar of every checkpoint by its name, oldest first; those without one are none."""
    sidecars = {stem: facts_of(folder / f"{stem}.ckpt") for stem in _stems(folder, ".ckpt")}
    complete = {stem: sidecar for stem, sidecar in sidecars.items() if sidecar}
    return dict(sorted(complete.items(), key=lambda item: (item[1]["iterations"], item[0])))


def names(folder: Path) -> list[str]:
    """The name of every checkpoint, oldest first."""
    return list(known(folder))


def _stems(folder: Path, suffix: str) -> list[str]:
    """The names of all files of this kind, in no order that means anything."""
    file_stems = [name.removesuffix(suffix) for name in run_files.list_names(folder) if name.endswith(suffix)]
    return [stem for stem in file_stems if NAME.fullmatch(stem)]


def epochs(folder: Path) -> list[str]:
    """`epoch=NN` of every file that could be such a checkpoint, in order."""
    file_stems = [stem for stem in _stems(folder, ".ckpt") if EPOCH.fullmatch(stem)]
    return sorted(file_stems, key=lambda stem: int(stem.removeprefix("epoch=")))


def target(link: Path) -> str:
    """The name of the checkpoint a link means, beside it and nowhere else; "" where there is no link."""
    return run_files.read_link(link).removesuffix(".ckpt")


def select(folder: Path, name: str, owner: str, remembering: bool = False, may_step: bool = False) -> Chosen:
    """The checkpoint meant by best, last or epoch=NN; `remembering`: one whose replay memory is whole, too.

    `may_step`: step=N, too, of which a run keeps but the newest.

    Where a link's own is damaged, or has no `best` yet, the one before it is taken and that is said; an epoch that was
    asked for by its number is taken or refused. Its bytes had the hash of its sidecar a moment ago; a run in training
    may thin it out the next moment, and whether it fits a config is for its reader to say.
    """
    if EPOCH.fullmatch(name) or (may_step and NAME.fullmatch(name)):
        return Chosen(_by_name(folder, name, owner, remembering), ())
    if name not in LINKS:
        raise UserError(f"--checkpoint takes best, last or epoch=NN, not {name!r}{nearest(name, LINKS)}")
    notes: list[str] = []
    linked = target(folder / f"{name}.ckpt")
    sidecars = known(folder)
    # what the link names comes first; behind it the highest scores, or the newest
    candidates = _by_worth(folder, sidecars) if name == "best" else list(sidecars)[::-1]
    if name == "best":
        scored = [stem for stem in candidates if _score(folder, sidecars[stem]) > -math.inf]
        if not linked or not scored:
            missing = "evaluation in which every episode ended" if linked else "best checkpoint"
            notes.append(f"{owner} has no {missing}: using last")
            linked = target(folder / "last.ckpt") or linked
        elif linked in sidecars and linked not in scored:  # linked by an older version
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
    """The checkpoint of this name, of an epoch with any number of leading zeros; UserError where it is unusable."""
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
    """The evaluation mean of a checkpoint; -inf where it was not evaluated to the end, or the mean is not finite."""
    return _score(path.parent, facts_of(path))


def _score(folder: Path, sidecar: dict[str, Any]) -> float:
    mean_score = whole_score(sidecar, folder.parent)
    return -math.inf if mean_score is None else mean_score


def _by_worth(folder: Path, sidecars: dict[str, dict[str, Any]]) -> list[str]:
    """Names, the best evaluated first, the newer before the older."""
    return sorted(list(sidecars)[::-1], key=lambda stem: -_score(folder, sidecars[stem]))


def prune(folder: Path, keep_last: int | None, keep_best: int) -> dict[str, dict[str, Any]]:
    """Delete what is neither among the newest nor among the best, nor linked; of `step=N` only a linked one stays.

    -> the sidecars of those that stay, by name.
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
    """Delete halves of sets: what a process left that died between a checkpoint and its sidecar."""
    half_sets = set(_stems(folder, ".ckpt")) ^ set(_stems(folder, ".json"))
    for stem in half_sets:
        run_files.remove(folder / f"{stem}.ckpt")
        run_files.remove(folder / f"{stem}.json")
    return len(half_sets)


EPISODE_METRICS = {
    "val/roll/episodes": "eval_episodes",
    "test/roll/episodes": "test_episodes",
}  # the first that is there counts


def whole_score(sidecar: Mapping[str, object], run: Path) -> float | None:
    """None where there is no score, or where it is known to be of a part of the episodes; `run`: the run's folder."""
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
    """How many episodes ended in the evaluation and in the test at these env steps, as far as they are found."""
    episode_counts: Row = {}
    for row in MetricsTable(path, (STEPS, *EPISODE_METRICS)).end():
        if row.get(STEPS) == steps:
            episode_counts |= row
    return episode_counts
