"""The checkpoints of a run: a file, its sidecar with size and hash, and the links `best` and `last`. No torch.

They are written in the order file, sidecar, link, each in one instant. So whatever happened, the set that a link
names was whole once; and only a set whose bytes still have the sidecar's hash is trusted. Names: `epoch=NN` where an
epoch ended, `step=N` in the middle of one (only the newest of these is kept).
"""

import hashlib
import math
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from utils.durable_file import read_json, relink, sync_folder, write_json
from utils.user_error import UserError, nearest

NAME = re.compile(r"(?:epoch|step)=(\d{1,18})")
EPOCH = re.compile(r"epoch=(\d{1,18})")
LINKS = ("best", "last")
SEGMENTS = "segments"  # the folder of a replay memory's rows, beside the checkpoints: first-last-hash.rows
CHUNK = 1 << 20


class Chosen(NamedTuple):
    """A checkpoint whose bytes are right, and what was not as asked for, a line each."""

    path: Path
    notes: tuple[str, ...]


def seal(path: Path, facts: dict[str, Any], links: tuple[str, ...]) -> None:
    """Commit a checkpoint that was just written: its sidecar, then the links, `last` at the very end.

    The folder is synced before a link names them, and again before the caller deletes what they replace. (A sync takes
    3 ms; after a power cut between the two syncs there is at most half a set, which a reader takes for none.)
    """
    sidecar = path.with_suffix(".json")
    write_json(sidecar, {"file": path.name, **facts}, sync_name=False)
    sync_folder(path.parent)
    point(path, links)


def point(path: Path, links: tuple[str, ...]) -> None:
    """Have these links name a checkpoint."""
    for link in sorted(links):
        relink(path.with_name(f"{link}.json"), path.with_suffix(".json"))
        relink(path.with_name(f"{link}.ckpt"), path)
    sync_folder(path.parent)


def digest(path: Path) -> dict[str, Any]:
    """What a sidecar says of a file's bytes."""
    with open(path, "rb") as file:
        return {"size": os.fstat(file.fileno()).st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def facts_of(path: Path) -> dict[str, Any]:
    """A checkpoint's sidecar; {} where there is none that could be one."""
    try:
        facts = read_json(path.with_suffix(".json"))
    except UserError:
        return {}
    sound = (
        isinstance(facts, dict)
        and isinstance(facts.get("sha256"), str)
        and all(type(facts.get(key)) is int for key in ("size", "epoch", "iterations", "env_steps", "exported"))
    )
    return facts if sound else {}


def fault(path: Path, remembering: bool = False) -> str:
    """Why the checkpoint cannot be trusted, "" where it can; `remembering`: with the rows of its replay memory."""
    facts = facts_of(path)
    if not path.is_file() or path.is_symlink():
        return "is not there"
    if not facts:
        return "has no sidecar that says what it should be"
    if path.stat().st_size != facts["size"]:
        return f"is damaged: {path.stat().st_size:,} bytes instead of {facts['size']:,}"
    if digest(path)["sha256"] != facts["sha256"]:
        return "is damaged: its bytes do not have the hash they had"
    lost = [name for name in facts.get("segments", []) if remembering and not _whole(path.parent / SEGMENTS / name)]
    return f"lacks a part of its replay memory: {lost[0]} is missing or damaged" if lost else ""


def _whole(segment: Path) -> bool:
    return segment.is_file() and digest(segment)["sha256"][:16] == segment.stem.rpartition("-")[2]


def known(folder: Path) -> dict[str, dict[str, Any]]:
    """The sidecar of every checkpoint by its name, oldest first; those without one are none."""
    found = {path.stem: facts_of(path) for path in folder.glob("*=*.ckpt") if NAME.fullmatch(path.stem)}
    there = [(stem, facts) for stem, facts in found.items() if facts]
    return dict(sorted(there, key=lambda each: (each[1]["iterations"], each[0])))


def names(folder: Path) -> list[str]:
    """The name of every checkpoint, oldest first."""
    return list(known(folder))


def target(link: Path) -> str:
    """The name of the checkpoint a link means, beside it and nowhere else; "" where there is no link."""
    try:
        found = os.readlink(link)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise UserError(f"{link} is not a link to a checkpoint: {error.strerror}") from error
    if not NAME.fullmatch(found.removesuffix(".ckpt")) or not found.endswith(".ckpt"):
        raise UserError(f"{link} points at {found!r}, which is not a checkpoint of this run")
    return found.removesuffix(".ckpt")


def choose(folder: Path, name: str, whose: str, remembering: bool = False) -> Chosen:
    """The checkpoint meant by best, last or epoch=NN; `remembering`: one whose replay memory is whole, too.

    Where a link's own is damaged, or has no `best` yet, the one before it is taken and that is said; an epoch that was
    asked for by its number is taken or refused.
    """
    match = EPOCH.fullmatch(name)
    if not match and name not in LINKS:
        raise UserError(f"--checkpoint takes best, last or epoch=NN, not {name!r}{nearest(name, LINKS)}")
    if match:
        return Chosen(_epoch(folder, int(match[1]), name, whose, remembering), ())
    notes: list[str] = []
    wanted = target(folder / f"{name}.ckpt")
    if name == "best" and not wanted:
        notes.append(f"{whose} has no best checkpoint: taking last")
        wanted = target(folder / "last.ckpt")
    candidates = _by_worth(known(folder)) if name == "best" else names(folder)[::-1]
    if wanted:
        candidates = [wanted, *(stem for stem in candidates if stem != wanted)]
    for stem in candidates:
        what = fault(folder / f"{stem}.ckpt", remembering)
        if not what:
            taking = [f"taking {stem}"] if notes and not notes[-1].endswith("last") else []
            return Chosen(folder / f"{stem}.ckpt", tuple(notes + taking))
        notes.append(f"{whose}: {stem} {what}")
    raise UserError(f"{whose} has no checkpoint" + ("; ".join(["", *notes]) if candidates else " yet"))


def _epoch(folder: Path, number: int, name: str, whose: str, remembering: bool) -> Path:
    there = names(folder)
    files = sorted(path.stem for path in folder.glob("epoch=*.ckpt") if EPOCH.fullmatch(path.stem))
    for stem in files:
        if int(stem.removeprefix("epoch=")) == number:
            what = fault(folder / f"{stem}.ckpt", remembering)
            if what:
                others = [other for other in there if other != stem]
                raise UserError(f"{whose}: {stem} {what}; it also has {', '.join(others) or 'none'}")
            return folder / f"{stem}.ckpt"
    raise UserError(f"{whose} has no checkpoint {name}; it has {', '.join(there) or 'none'}")


def score_of(path: Path) -> float:
    """The evaluation mean of a checkpoint; -inf where it was not evaluated, or the mean is no number."""
    return _score(facts_of(path))


def _score(facts: dict[str, Any]) -> float:
    score = facts.get("score")
    if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
        return -math.inf
    return float(score)


def _by_worth(there: dict[str, dict[str, Any]]) -> list[str]:
    """Names, the best evaluated first, the newer before the older."""
    return sorted(list(there)[::-1], key=lambda stem: -_score(there[stem]))


def prune(folder: Path, keep_last: int | None, keep_best: int) -> dict[str, dict[str, Any]]:
    """Delete what is neither among the newest nor among the best, nor linked; of `step=N` only a linked one stays.

    -> the sidecars of those that stay, by name.
    """
    there = known(folder)
    kept = {target(folder / f"{link}.ckpt") for link in LINKS}
    epochs = [stem for stem in there if stem.startswith("epoch=")]
    if keep_last is None:
        kept.update(epochs)
    else:
        worthy = [stem for stem in _by_worth(there) if _score(there[stem]) > -math.inf]
        kept.update(epochs[-keep_last:], worthy[:keep_best])
    for stem in there:
        if stem not in kept:
            (folder / f"{stem}.json").unlink(missing_ok=True)
            (folder / f"{stem}.ckpt").unlink(missing_ok=True)
    return {stem: facts for stem, facts in there.items() if stem in kept}


def sweep_orphans(folder: Path) -> int:
    """Delete halves of sets: what a process left that died between a checkpoint and its sidecar."""
    swept = 0
    for path in [*folder.glob("*=*.ckpt"), *folder.glob("*=*.json")]:
        other = path.with_suffix(".json" if path.suffix == ".ckpt" else ".ckpt")
        if NAME.fullmatch(path.stem) and not path.is_symlink() and not other.exists():
            path.unlink()
            swept += 1
    return swept
