"""The state of a run at this moment, in one word that every screen uses: live, silent, halted, dead, ...

config.json may still say "running" after its process died. So this module also looks at the run's process, and at how
long ago it wrote anything.
"""

import os
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from stride.runstore import metrics_layout
from stride.runstore.metrics_reader import MetricsReader
from stride.runstore.run_facts import INTERRUPTED as INTERRUPTED
from stride.runstore.run_facts import PAUSED as PAUSED
from stride.runstore.run_facts import UNENDED, read_facts
from stride.runstore.run_lock import NAME, is_here, owner, stopped
from stride.utils.user_error import UserError

LIVE, SILENT, HALTED = "live", "silent", "halted"
FAILED, DEAD, FINISHED = "failed", "dead", "finished"
IN_TRAINING = (LIVE, SILENT, HALTED)  # a process holds the run
STATES = (*IN_TRAINING, *UNENDED, FAILED, DEAD, FINISHED)
FILE_WAITING = metrics_layout.STATES[metrics_layout.PAUSED]  # words that metrics.mmap uses
FILE_ENDED = metrics_layout.STATES[metrics_layout.ENDED]
HEARTBEAT_TIMEOUT = 4.0  # seconds without a heartbeat in metrics.mmap, which comes once a second
SILENT_AFTER = 300.0  # seconds without a write, for runs without a heartbeat: one row may take minutes
START_SECONDS = 2.0  # seconds that a new run may exist before its process locks it


def state_of(folder: Path, facts: Mapping[str, object]) -> str:
    """Return one of STATES for the run in `folder` with config.json `facts`. A newer version's words are passed on.

    silent: its process lives, but gave no sign for long. halted: stopped by Ctrl-Z or SIGSTOP, or a user's own training
    loop says that it waits. paused: ended at --pause-at, can be resumed. dead: its process ended without a message.

    A user's own training loop has no config.json (`facts` is {}): then metrics.mmap alone decides. Of a process on
    another machine only what it writes can be seen.
    """
    if not facts:
        return _state_of_file(folder)
    status = str(facts.get("status", "?"))
    if status != "running":
        return status
    lock_owner = owner(folder)
    if lock_owner is None:
        return _abandoned(folder)
    if not is_here(lock_owner):
        return live_state(False, _last_write(folder), SILENT_AFTER)
    return live_state(stopped(lock_owner["pid"]), *_silence(folder, lock_owner["pid"]))


def still_dead(folder: Path) -> bool:
    """Whether no process holds a run that was dead before and whose files have not changed."""
    return owner(folder) is None


def live_state(halted: bool, silence: float, most: float) -> str:
    """Return the state of a run whose process lives: silent if its last sign is more than `most` seconds ago."""
    return HALTED if halted else SILENT if silence > most else LIVE


def _abandoned(folder: Path) -> str:
    """Return the state of a run without a process: its status if it ended, live if just created, else dead."""
    try:
        status = str(read_facts(folder).get("status", "?"))
    except UserError:
        return DEAD
    if status != "running":
        return status
    is_starting = not os.path.lexists(folder / NAME) and _seconds_since_write(folder / "config.json") < START_SECONDS
    return LIVE if is_starting else DEAD


def _state_of_file(folder: Path) -> str:
    """Return the state of a user's own training loop, from metrics.mmap."""
    try:
        with closing(MetricsReader(folder / metrics_layout.NAME)) as metrics_reader:
            snapshot = metrics_reader.read()
            if snapshot.state == FILE_ENDED:
                return snapshot.result if snapshot.result in (*UNENDED, FAILED) else FINISHED
            if not metrics_reader.lives():
                return DEAD
            halted = stopped(metrics_reader.origin.pid) or snapshot.state == FILE_WAITING
            return live_state(halted, metrics_reader.silence(), HEARTBEAT_TIMEOUT)
    except UserError:
        return DEAD


def _silence(folder: Path, pid: int) -> tuple[float, float]:
    """Return seconds since the process's last sign of life (heartbeat, else last write), and how many are too many."""
    try:
        with closing(MetricsReader(folder / metrics_layout.NAME)) as metrics_reader:
            is_writer = metrics_reader.origin.pid == pid and metrics_reader.lives()
            if is_writer and metrics_reader.read().state != FILE_ENDED:
                return metrics_reader.silence(), HEARTBEAT_TIMEOUT
    except UserError:  # no metrics.mmap yet, or a damaged one: the times of the other files decide
        pass
    return _last_write(folder), SILENT_AFTER


def _last_write(folder: Path) -> float:
    """Return seconds since the run last wrote one of its files."""
    return min(_seconds_since_write(folder / name) for name in ("config.json", "metrics.csv", "run.log"))


def _seconds_since_write(path: Path) -> float:
    """Return seconds since the file was written, infinity if it is missing. Links are not followed."""
    try:
        return time.time() - os.lstat(path).st_mtime
    except OSError:
        return float("inf")
