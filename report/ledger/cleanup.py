"""Runs that are neither good nor recent are deleted; what they were and what they came to is kept, a file each.

What goes is decided from the files of all runs, never from the index; after the question it is decided again, and only
what was shown goes. Of each run everything is read once more under its lock: one that has changed stays.

A run goes in this order: its record in removed/ is whole on the disk, its folder takes a hidden name in one instant,
what is in it is deleted. Whatever is stopped on the way leaves a run or its record, and is swept by the next cleanup.
"""

import os
import shutil
import stat
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
KEPT = "keep"  # a run with this tag stays
BUSY = ("running", SILENT, HALTED)
GOING = (FINISHED, FAILED, DEAD, INTERRUPTED)  # of any other status no run goes
SEARCHES, OF_SEARCH = "sweeps", "sweep-"  # their folder beside the runs, and how the group of a search's runs begins
DAMAGED, NAMELESS, EMPTY, UNSET = "damaged", "without a run's name", "without checkpoints/", "without a config"
NO_RUNS = (DAMAGED, NAMELESS, EMPTY, UNSET)  # why a folder counts for nothing here
CHANGED = "changed meanwhile"
Read = Callable[[], Sequence[Brief]]


def clean(read: Read, best: int | None, recent: float, dry: bool, sure: bool) -> list[str]:
    """Delete what may go of the runs that `read` finds, after a question on a terminal; `dry`: say it only."""
    root = runs_root()
    going, stays = decided(read(), best, recent)
    if not going:
        return [f"nothing goes; {_counted(stays)}"]
    sizes = {line.id: size_of(root / line.id) for line in going}
    lines = [f"{line.id}  {_said(line)}, {sizes[line.id] / 2**20:,.1f} MiB" for line in going]
    total = f"{len(going):,} runs, {sum(sizes.values()) / 2**20:,.1f} MiB"
    if dry:
        return [*lines, f"would go: {total}; {_counted(stays)}"]
    may_go = {line.id for line in going}
    if not sure:
        _ask("\n".join([*lines, f"{_counted(stays)}", f"delete {total}? [y/N] "]))
        again, stays = decided(read(), best, recent)
        may_go = {line.id for line in again}
    gone = [line for line in going if _removed(root, line, line.id in may_go)]
    stays[CHANGED] += len(may_go.intersection(line.id for line in going)) - len(gone)
    sweep(root)
    kept = f"their configs and last metrics are kept in {root / REMOVED}"
    return [f"deleted {len(gone):,} of {total}; {_counted(stays)}; {kept}"]


def decided(lines: Sequence[Brief], best: int | None, recent: float) -> tuple[list[Brief], Counter[str]]:
    """The runs that may go, and of all others how many stay for which reason.

    Among the best of their variant, equal ones are told apart in the order of `rank`.
    """
    root, last = runs_root(), _last()
    reasons = {line.id: _why_kept(root, line, last, recent) for line in lines}
    variants: dict[str, list[Brief]] = {}
    for line in lines:
        if worth(line) is not None and reasons[line.id] not in NO_RUNS:
            variants.setdefault(line.variant, []).append(line)
    for found in variants.values():
        for line in sorted(found, key=rank)[: best or 0]:
            reasons[line.id] = reasons[line.id] or "among the best"
    return [line for line in lines if not reasons[line.id]], Counter(filter(None, reasons.values()))


def worth(line: Brief) -> float | None:
    """By which runs of a variant are compared: the best evaluation, else the closing test."""
    return line.test if line.score is None else line.score


def rank(line: Brief) -> tuple[float, bool, bool, bool, str]:
    """The lower the better: what it is worth, then solved, tested, tagged, and the older one."""
    return -(worth(line) or 0.0), line.result != "solved", line.test is None, not line.labels.tags, line.id


def _why_kept(root: Path, line: Brief, last: str, recent: float) -> str:
    """Whatever its score; "" of a run that may go. Of what is not known to be a run nobody can say how good it is."""
    waiting = _of_search(root, line.group)
    reasons = {
        DAMAGED: line.status == "damaged",
        NAMELESS: line.started is None,
        EMPTY: not _is_folder(root / line.id / "checkpoints"),
        UNSET: not line.settings,
        "in training": line.status in BUSY,
        "of a search that is not over": waiting is True,
        "paused": line.status == PAUSED and waiting is None,
        "of a status that is not known": line.status not in (*GOING, *BUSY, PAUSED),
        f"tagged {KEPT}": KEPT in line.labels.tags,
        f"{LAST}": line.id == last,
        "recent": line.started is not None and time.time() - line.started < recent,
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def _of_search(root: Path, group: str) -> bool | None:
    """Whether the search that this group belongs to is still to go on; None of a group that is no search's.

    Its trials wait for one another, whatever their status; of one that is over, those that paused wait for nothing.
    """
    folder = root / SEARCHES / group.removeprefix(OF_SEARCH)
    if not group.startswith(OF_SEARCH) or not GROUP.fullmatch(group):
        return None
    begun, ended = _changed_at(folder / "journal.log"), _changed_at(folder / "result.json")
    return ended < begun if begun else None


def _removed(root: Path, line: Brief, may_go: bool) -> bool:
    """Whether it went: who trains it meanwhile keeps it, and so does whatever has changed since it was shown."""
    folder, hidden = root / line.id, temporary(root / line.id)
    try:
        with locked(folder):
            if not may_go or _has_changed(folder, line):
                raise UserError(f"{line.id} or what it was compared with has changed since it was shown")
            keep(root, folder)
            os.rename(folder, hidden)
            if _has_changed(hidden, line):  # by who had opened it before
                os.rename(hidden, folder)
                raise UserError(f"{line.id} has changed since it was shown")
    except UserError as error:
        print(f"stays: {error}", file=sys.stderr)
        return False
    except OSError as error:
        raise UserError(f"cannot delete {folder}: {error.strerror}") from error
    sync_folder(root)
    shutil.rmtree(hidden, ignore_errors=True)
    return True


def _has_changed(folder: Path, shown: Brief) -> bool:
    """Whether the files of a run, whose lock we hold, say anything else than was shown."""
    now = look_at(folder)
    if now.status in BUSY:  # by its own account: it is ours that is seen to hold it
        now = now._replace(status=DEAD, standing=DEAD, reason=GONE)
    return repr(now._replace(id=shown.id, started=shown.started)) != repr(shown)  # a NaN is not equal to itself


def keep(root: Path, folder: Path) -> None:
    """config.json, tags, note, and the last value of every metric, as removed/ID.json."""
    labels = read_labels(folder)
    record = {
        "id": folder.name, "removed": time.strftime("%Y-%m-%dT%H:%M:%S"), "facts": read_facts(folder),
        "labels": {"tags": [*labels.tags], "note": labels.note}, "metrics": MetricsTable(folder / "metrics.csv").last(),
    }  # fmt: skip
    run_files.make_folder(root / REMOVED)
    run_files.write_json(root / REMOVED / f"{folder.name}.json", record)


def _said(line: Brief) -> str:
    found = worth(line)
    age = "" if line.started is None else f", begun {duration(time.time() - line.started)} ago"
    return f"{line.variant} {line.result or line.status}{'' if found is None else f' {score(found)}'}{age}"


def _counted(stays: Counter[str]) -> str:
    """`7 stay: 4 recent, 2 among the best, 1 damaged`"""
    told = ", ".join(f"{count:,} {reason}" for reason, count in stays.most_common() if count)
    return f"{stays.total():,} stay{f': {told}' if told else ''}"


def _is_folder(path: Path) -> bool:
    """Itself, and no link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _changed_at(path: Path) -> float:
    """0 where it is not there."""
    with suppress(OSError):
        return os.lstat(path).st_mtime
    return 0.0


def _last() -> str:
    try:
        return os.readlink(runs_root() / LAST)
    except OSError:
        return ""


def _ask(question: str) -> None:
    if not sys.stdin.isatty():
        raise UserError("nobody is here to be asked: --yes deletes, --dry-run says what would go")
    try:
        answer = input(question)
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise UserError("nothing was deleted")
