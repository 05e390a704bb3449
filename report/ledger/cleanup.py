"""Runs that are neither good nor recent are deleted; a record of each, with its config and results, is kept.

The files of all runs decide what is deleted, never the index; after the question they are read again, and only runs
that were shown are deleted. Every run is read once more under its lock: one that has changed stays.

A run is deleted in this order: its record in removed/ is written, its folder is renamed to a hidden name, its content
is deleted. Where that is stopped, the run or its record is left, and the next cleanup finishes it.
"""

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from stride.report.ledger.show import size_of
from stride.runstore import run_files
from stride.runstore.metrics_table import MetricsTable
from stride.runstore.run_brief import GONE, Brief, read_labels
from stride.runstore.run_dir import LAST
from stride.runstore.run_facts import PAUSED, read_facts
from stride.runstore.run_index import look_at
from stride.runstore.run_lock import locked
from stride.runstore.run_names import GROUP, runs_root
from stride.runstore.run_state import DEAD, FAILED, FINISHED, HALTED, INTERRUPTED, SILENT
from stride.utils.durable_file import sweep, sync_folder, temporary
from stride.utils.typography import duration, score
from stride.utils.user_error import UserError

REMOVED = "removed"
KEEP = "keep"  # a run with this tag stays
BUSY = ("running", SILENT, HALTED)
DELETABLE = (FINISHED, FAILED, DEAD, INTERRUPTED)  # runs of any other status stay
SEARCHES, OF_SEARCH = "sweeps", "sweep-"  # their folder beside the runs, and how the group of a search's runs begins
DAMAGED, NAMELESS, EMPTY, UNSET = "damaged", "without a run's name", "without checkpoints/", "without a config"
NO_RUNS = (DAMAGED, NAMELESS, EMPTY, UNSET)  # reasons for which a folder is not counted as a run
CHANGED = "changed meanwhile"
Read = Callable[[], Sequence[Brief]]


def clean(read: Read, best: int | None, recent: float, dry: bool, sure: bool) -> list[str]:
    """Delete those of the runs that `read` returns, after a question on a terminal; `dry`: only list them."""
    root = runs_root()
    candidates, reasons = decided(read(), best, recent)
    if not candidates:
        return [f"nothing to delete; {_counts(reasons)}"]
    text_lines = []
    total_bytes = 0
    for run_brief in candidates:
        size = size_of(root / run_brief.id)
        total_bytes += size
        text_lines.append(f"{run_brief.id}  {_summary(run_brief)}, {size / 2**20:,.1f} MiB")
    total = f"{len(candidates):,} runs, {total_bytes / 2**20:,.1f} MiB"
    if dry:
        return [*text_lines, f"would delete: {total}; {_counts(reasons)}"]
    deletable = {run_brief.id for run_brief in candidates}
    if not sure:
        _ask("\n".join([*text_lines, _counts(reasons), f"delete {total}? [y/N] "]))
        second_decision, reasons = decided(read(), best, recent)
        deletable &= {run_brief.id for run_brief in second_decision}
    deleted = sum(_removed(root, run_brief, run_brief.id in deletable) for run_brief in candidates)
    reasons[CHANGED] += len(deletable) - deleted
    sweep(root)
    records = f"their configs and last metrics are kept in {root / REMOVED}"
    return [f"deleted {deleted:,} of {total}; {_counts(reasons)}; {records}"]


def decided(briefs: Sequence[Brief], best: int | None, recent: float) -> tuple[list[Brief], Counter[str]]:
    """The runs that may be deleted, and how many of the others stay, by reason.

    The best of each variant are determined by `rank`, also among runs of equal score.
    """
    root = runs_root()
    last = ""
    with suppress(OSError):  # there is no such link
        last = os.readlink(root / LAST)
    reasons = {run_brief.id: _reason_to_stay(root, run_brief, last, recent) for run_brief in briefs}
    variants: dict[str, list[Brief]] = {}
    for run_brief in briefs:
        if run_score(run_brief) is not None and reasons[run_brief.id] not in NO_RUNS:
            variants.setdefault(run_brief.variant, []).append(run_brief)
    for members in variants.values():
        for run_brief in sorted(members, key=rank)[: best or 0]:
            reasons[run_brief.id] = reasons[run_brief.id] or "among the best"
    deletable = [run_brief for run_brief in briefs if not reasons[run_brief.id]]
    return deletable, Counter(reason for reason in reasons.values() if reason)


def run_score(run_brief: Brief) -> float | None:
    """The score by which runs of a variant are compared: the best evaluation, else the closing test."""
    return run_brief.test if run_brief.score is None else run_brief.score


def rank(run_brief: Brief) -> tuple[float, bool, bool, bool, str]:
    """The lower the better: by score, then solved, tested, tagged, and the older one."""
    return (
        -(run_score(run_brief) or 0.0),
        run_brief.result != "solved",
        run_brief.test is None,
        not run_brief.labels.tags,
        run_brief.id,
    )


def _reason_to_stay(root: Path, run_brief: Brief, last: str, recent: float) -> str:
    """A reason that does not depend on its score; "" where there is none."""
    is_search_open = _is_search_open(root, run_brief.group)
    checkpoints = root / run_brief.id / "checkpoints"
    reasons = {
        DAMAGED: run_brief.status == "damaged",
        NAMELESS: run_brief.started is None,
        EMPTY: not checkpoints.is_dir() or checkpoints.is_symlink(),
        UNSET: not run_brief.settings,
        "in training": run_brief.status in BUSY,
        "of an unfinished search": is_search_open is True,
        "paused": run_brief.status == PAUSED and is_search_open is None,
        "of unknown status": run_brief.status not in (*DELETABLE, *BUSY, PAUSED),
        f"tagged {KEEP}": KEEP in run_brief.labels.tags,
        LAST: run_brief.id == last,
        "recent": run_brief.started is not None and time.time() - run_brief.started < recent,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _is_search_open(root: Path, group: str) -> bool | None:
    """Whether the search that this group belongs to goes on; None for other groups.

    While it goes on its trials are needed, whatever their status; after its end also paused ones are not.
    """
    folder = root / SEARCHES / group.removeprefix(OF_SEARCH)
    if not group.startswith(OF_SEARCH) or not GROUP.fullmatch(group):
        return None
    begin_time = _changed_at(folder / "journal.log")
    end_time = _changed_at(folder / "result.json")
    return end_time < begin_time if begin_time else None


def _removed(root: Path, run_brief: Brief, is_deletable: bool) -> bool:
    """Whether it was deleted: a run stays that is in training, or has changed since it was shown."""
    folder = root / run_brief.id
    hidden = temporary(folder)
    try:
        with locked(folder):
            if not is_deletable or _has_changed(folder, run_brief):
                raise UserError(f"{run_brief.id}, or a run it was compared with, has changed since it was listed")
            keep(root, folder)
            os.rename(folder, hidden)
            if _has_changed(hidden, run_brief):  # by a process that had opened it before
                os.rename(hidden, folder)
                raise UserError(f"{run_brief.id} has changed since it was listed")
    except UserError as error:
        print(f"stays: {error}", file=sys.stderr)
        return False
    except OSError as error:
        raise UserError(f"cannot delete {folder}: {error.strerror}") from error
    sync_folder(root)
    shutil.rmtree(hidden, ignore_errors=True)
    return True


def _has_changed(folder: Path, shown: Brief) -> bool:
    """Whether a run differs from what was shown; its lock is held here."""
    now = look_at(folder)
    if now.status in BUSY:  # as its config.json says; this process holds the lock
        now = now._replace(status=DEAD, standing=DEAD, reason=GONE)
    return repr(now._replace(id=shown.id, started=shown.started)) != repr(shown)  # a NaN is not equal to itself


def keep(root: Path, folder: Path) -> None:
    """Write config.json, tags, note, and the last value of every metric into removed/ID.json."""
    labels = read_labels(folder)
    record = {
        "id": folder.name, "removed": time.strftime("%Y-%m-%dT%H:%M:%S"), "facts": read_facts(folder),
        "labels": {"tags": [*labels.tags], "note": labels.note}, "metrics": MetricsTable(folder / "metrics.csv").last(),
    }  # fmt: skip
    run_files.make_folder(root / REMOVED)
    run_files.write_json(root / REMOVED / f"{folder.name}.json", record)


def _summary(run_brief: Brief) -> str:
    best_score = run_score(run_brief)
    summary = f"{run_brief.variant} {run_brief.result or run_brief.status}"
    if best_score is not None:
        summary += f" {score(best_score)}"
    if run_brief.started is not None:
        summary += f", started {duration(time.time() - run_brief.started)} ago"
    return summary


def _counts(reasons: Counter[str]) -> str:
    """`7 kept: 4 recent, 2 among the best, 1 damaged`"""
    parts = [f"{count:,} {reason}" for reason, count in reasons.most_common() if count]
    return f"{reasons.total():,} kept" + (f": {', '.join(parts)}" if parts else "")


def _changed_at(path: Path) -> float:
    """Time of the last change; 0 where there is no such file."""
    with suppress(OSError):
        return os.lstat(path).st_mtime
    return 0.0


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise UserError("cannot ask without a terminal; --yes deletes without asking, --dry-run only lists")
    try:
        answer = input(question)
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise UserError("nothing was deleted")
