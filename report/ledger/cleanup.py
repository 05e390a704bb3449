"""Implement `stride runs cleanup`: delete runs that are neither good nor recent, and keep a record of each.

A record has the run's config and results. The files of runs decide what is deleted, never the index. They are read
again after the question to the person, and only runs that were listed are deleted. Each run is read once more under its
lock: one that has changed stays.

A run is deleted in this order: write its record in removed/, rename its folder to a hidden name, delete the content. If
that is interrupted, the run or its record still exists, and the next cleanup finishes the work.
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
KEEP = "keep"  # a run with this tag is not deleted
BUSY = ("running", SILENT, HALTED)
DELETABLE = (FINISHED, FAILED, DEAD, INTERRUPTED)  # runs with any other status are not deleted
SEARCHES, SEARCH_PREFIX = "sweeps", "sweep-"  # the folder of searches; the group of a search's runs is sweep-NAME
DAMAGED, NO_NAME, NO_FOLDER, NO_CONFIG = "damaged", "without a run's name", "without checkpoints/", "without a config"
NO_RUNS = (DAMAGED, NO_NAME, NO_FOLDER, NO_CONFIG)  # for these reasons a folder does not count as a run
CHANGED = "changed meanwhile"
Read = Callable[[], Sequence[Brief]]


def clean(read: Read, best: int | None, recent: float, dry: bool, sure: bool) -> list[str]:
    """Delete runs of those that `read` returns, and return the lines to print.

    `best`: runs of each variant to keep; `recent`: seconds, younger runs are kept. `dry`: only list them. `sure`: do
    not ask; otherwise UserError without a terminal, or if the answer is not yes.
    """
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
    """Return the runs that may be deleted, and how many others stay for each reason.

    `rank` determines the best runs of each variant, also among equal scores.
    """
    root = runs_root()
    last = ""
    with suppress(OSError):  # the link does not exist
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
    """Return the score by which runs of a variant are compared: the best evaluation, else the test; None without."""
    return run_brief.test if run_brief.score is None else run_brief.score


def rank(run_brief: Brief) -> tuple[float, bool, bool, bool, str]:
    """Return a sort key, lowest for the best run: highest score, then solved, tested, tagged, older."""
    return (
        -(run_score(run_brief) or 0.0),
        run_brief.result != "solved",
        run_brief.test is None,
        not run_brief.labels.tags,
        run_brief.id,
    )


def _reason_to_stay(root: Path, run_brief: Brief, last: str, recent: float) -> str:
    """Return why the run must stay, apart from its score; "" if nothing keeps it."""
    is_search_open = _is_search_open(root, run_brief.group)
    checkpoints = root / run_brief.id / "checkpoints"
    reasons = {
        DAMAGED: run_brief.status == "damaged",
        NO_NAME: run_brief.started is None,
        NO_FOLDER: not checkpoints.is_dir() or checkpoints.is_symlink(),
        NO_CONFIG: not run_brief.settings,
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
    """Return whether the search that this group belongs to is unfinished; None if it belongs to no search.

    An unfinished search needs its trials, whatever their status; a finished one does not even need paused ones.
    """
    folder = root / SEARCHES / group.removeprefix(SEARCH_PREFIX)
    if not group.startswith(SEARCH_PREFIX) or not GROUP.fullmatch(group):
        return None
    begin_time = _changed_at(folder / "journal.log")
    end_time = _changed_at(folder / "result.json")
    return end_time < begin_time if begin_time else None


def _removed(root: Path, run_brief: Brief, is_deletable: bool) -> bool:
    """Delete the run and return True; return False if it is in training, or has changed since it was listed."""
    folder = root / run_brief.id
    hidden = temporary(folder)
    try:
        with locked(folder):
            if not is_deletable or _has_changed(folder, run_brief):
                raise UserError(f"{run_brief.id}, or a run it was compared with, has changed since it was listed")
            keep(root, folder)
            os.rename(folder, hidden)
            if _has_changed(hidden, run_brief):  # a process that had the folder open may have written in between
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
    """Return whether a run differs from what was listed; the caller holds its lock."""
    now = look_at(folder)
    if now.status in BUSY:  # config.json says "running", but nobody trains it: we hold the lock
        now = now._replace(status=DEAD, standing=DEAD, reason=GONE)
    # compared as text, because a NaN is not equal to itself
    return repr(now._replace(id=shown.id, started=shown.started)) != repr(shown)


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
    """Return `7 kept: 4 recent, 2 among the best, 1 damaged`."""
    parts = [f"{count:,} {reason}" for reason, count in reasons.most_common() if count]
    return f"{reasons.total():,} kept" + (f": {', '.join(parts)}" if parts else "")


def _changed_at(path: Path) -> float:
    """Return the time of a file's last change; 0 if it does not exist."""
    with suppress(OSError):
        return os.lstat(path).st_mtime
    return 0.0


def _ask(question: str) -> None:
    """Ask on the terminal; UserError if the answer is not yes, or there is no terminal."""
    if not sys.stdin.isatty():
        raise UserError("cannot ask without a terminal; --yes deletes without asking, --dry-run only lists")
    try:
        answer = input(question)
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise UserError("nothing was deleted")
