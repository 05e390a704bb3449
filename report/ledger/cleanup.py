"""Runs that are neither good nor recent are deleted; what they were and what they came to is kept, a file each.

A run goes in this order: its record in removed/ is whole on the disk, its folder takes a hidden name in one instant,
what is in it is deleted. Whatever is stopped on the way leaves a run or its record, and is swept by the next cleanup.
"""

import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from report.ledger.show import size_of
from report.typography import duration, score
from utils import run_files
from utils.durable_file import sweep, sync_folder, temporary
from utils.run_brief import Brief
from utils.run_dir import LAST
from utils.run_facts import read_facts
from utils.run_labels import read_labels
from utils.run_lock import locked
from utils.run_tail import last_values
from utils.runs_root import runs_root
from utils.user_error import UserError

REMOVED = "removed"
KEPT = "keep"  # a run with this tag stays
BUSY = ("running", "silent")
AGE_OF_NOBODY = float("inf")  # of a folder named by hand


def clean(lines: Sequence[Brief], best: int | None, recent: float, dry: bool, sure: bool) -> list[str]:
    """Delete what may go, after a question on a terminal; `dry`: say it only."""
    going = to_go(lines, best, recent)
    root, stay = runs_root(), len(lines) - len(going)
    if not going:
        return [f"all {stay} runs stay"]
    sizes = {line.id: size_of(root / line.id) for line in going}
    told = [f"{line.id}  {_said(line)}, {sizes[line.id] / 2**20:,.1f} MiB" for line in going]
    total = f"{len(going):,} runs, {sum(sizes.values()) / 2**20:,.1f} MiB"
    if dry:
        return [*told, f"would go: {total}; {stay:,} stay"]
    if not sure:
        _ask("\n".join([*told, f"delete {total}? [y/N] "]))
    gone = [line for line in going if remove(root, line)]
    sweep(root)
    kept = f"their configs and last metrics are kept in {root / REMOVED}"
    return [f"deleted {len(gone):,} of {total}; {stay + len(going) - len(gone):,} runs stay; {kept}"]


def to_go(lines: Sequence[Brief], best: int | None, recent: float) -> list[Brief]:
    """All but those that train, are tagged `keep`, are the last, recent, or among the best of their variant.

    What is damaged stays: nobody can say how good it is.
    """
    now, last = time.time(), _last()
    stays = {line.id for line in lines if line.status in (*BUSY, "damaged") or KEPT in line.labels.tags}
    stays |= {line.id for line in lines if now - (line.started or -AGE_OF_NOBODY) < recent or line.id == last}
    variants: dict[str, list[Brief]] = {}
    for line in lines:
        if worth(line) is not None:
            variants.setdefault(line.variant, []).append(line)
    for found in variants.values():
        found.sort(key=lambda line: (worth(line) or 0.0, line.id), reverse=True)
        stays |= {line.id for line in found[: best or 0]}
    return [line for line in lines if line.id not in stays]


def worth(line: Brief) -> float | None:
    """By which runs of a variant are compared: the best evaluation, else the closing test."""
    return line.test if line.score is None else line.score


def remove(root: Path, line: Brief) -> bool:
    """Whether it went: who trains it meanwhile keeps it."""
    folder, hidden = root / line.id, temporary(root / line.id)
    try:
        with locked(folder):
            keep(root, folder)
            os.rename(folder, hidden)
    except UserError as error:
        print(f"stays: {error}", file=sys.stderr)
        return False
    except OSError as error:
        raise UserError(f"cannot delete {folder}: {error.strerror}") from error
    sync_folder(root)
    shutil.rmtree(hidden, ignore_errors=True)
    return True


def keep(root: Path, folder: Path) -> None:
    """config.json, tags, note, and the last value of every metric, as removed/ID.json."""
    labels = read_labels(folder)
    record = {
        "id": folder.name, "removed": time.strftime("%Y-%m-%dT%H:%M:%S"), "facts": read_facts(folder),
        "labels": {"tags": [*labels.tags], "note": labels.note}, "metrics": last_values(folder / "metrics.csv"),
    }  # fmt: skip
    run_files.make_folder(root / REMOVED)
    run_files.write_json(root / REMOVED / f"{folder.name}.json", record)


def _said(line: Brief) -> str:
    found = worth(line)
    age = "" if line.started is None else f", begun {duration(time.time() - line.started)} ago"
    return f"{line.variant} {line.result or line.status}{'' if found is None else f' {score(found)}'}{age}"


def _last() -> str:
    try:
        return os.readlink(runs_root() / LAST)
    except OSError:
        return ""


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise UserError("nobody is here to be asked: --yes deletes, --dry-run says what would go")
    if input(question).strip().lower() not in ("y", "yes"):
        raise UserError("nothing was deleted")
