"""How a run stands at this instant, in a word that every screen uses: what it says of itself against what can be seen.

A run that says it is running is believed only as long as its process lives; how long ago it was heard tells the rest.
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
FILE_WAITING, FILE_ENDED = (
    metrics_layout.STATES[stored_state] for stored_state in (metrics_layout.PAUSED, metrics_layout.ENDED)
)
HEARTBEAT_TIMEOUT = 4.0  # seconds: metrics.mmap has a heartbeat a second
SILENT_AFTER = 300.0  # of a run without one: a row may take minutes
START_SECONDS = 2.0  # seconds: between a folder's making and its lock


def state_of(folder: Path, facts: Mapping[str, object]) -> str:
    """One of STATES, of the run in `folder` whose config.json holds `facts`; what a newer program says passes as it is.

    silent: its process lives and was not heard for long; halted: by Ctrl-Z or SIGSTOP, or a loop of one's own says that
    it waits; paused: it ended where it was told to, and goes on another time; dead: it ended without a word. A loop of
    somebody's own has no config.json: its metrics.mmap tells it all. Of a process elsewhere nothing can be seen but
    what it writes.
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
    """Whether nobody holds a run that was dead and whose files have not changed."""
    return owner(folder) is None


def live_state(halted: bool, silence: float, most: float) -> str:
    """The state of a run whose process lives: silent after more than `most` seconds of `silence`."""
    return HALTED if halted else SILENT if silence > most else LIVE


def _abandoned(folder: Path) -> str:
    """The status of a run that no process holds: as it ended, else dead, unless it was created a moment ago."""
    try:
        status = str(read_facts(folder).get("status", "?"))
    except UserError:
        return DEAD
    if status != "running":
        return status
    is_starting = not os.path.lexists(folder / NAME) and _seconds_since_write(folder / "config.json") < START_SECONDS
    return LIVE if is_starting else DEAD


def _state_of_file(folder: Path) -> str:
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
    """Seconds since its process was heard, and how many are too many: by its heartbeat, else by when it last wrote."""
    try:
        with closing(MetricsReader(folder / metrics_layout.NAME)) as metrics_reader:
            if (
                metrics_reader.origin.pid == pid
                and metrics_reader.lives()
                and metrics_reader.read().state != FILE_ENDED
            ):
                return metrics_reader.silence(), HEARTBEAT_TIMEOUT
    except UserError:  # none yet, or not of this kind: the other files tell
        pass
    return _last_write(folder), SILENT_AFTER


def _last_write(folder: Path) -> float:
    return min(_seconds_since_write(folder / name) for name in ("config.json", "metrics.csv", "run.log"))


def _seconds_since_write(path: Path) -> float:
    """Seconds since a file was written; of whatever lies there itself, which nobody opens here."""
    try:
        return time.time() - os.lstat(path).st_mtime
    except OSError:
        return float("inf")
