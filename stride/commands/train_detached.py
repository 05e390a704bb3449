"""Trainings that continue without their terminal (--detach, --monitor): start one, and print how to watch and stop it.

With --monitor in tmux, the monitor gets a pane beside the training. Elsewhere the training goes into the background,
and the monitor uses the terminal.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from stride.commands.train_arguments import Arguments
from stride.report.monitor.app import Monitor, run
from stride.runstore.run_dir import STAMP, RunDir, runs_root
from stride.runstore.run_files import list_names
from stride.runstore.run_lock import is_here, owner, started_by
from stride.runstore.seed_group import find_group, standings
from stride.utils.places import IS_WHEEL, ROOT, TRAIN, program
from stride.utils.user_error import UserError

POLL_SECONDS = 0.1  # between two searches for the run of a new process
CLOCK_ERROR_SECONDS = 2.0  # how far the clock that names run folders may be behind


class Background(NamedTuple):
    """A training in the background: its process, its run's folder, and its group ("": none)."""

    pid: int
    folder: Path
    group: str


def is_background(arguments: Arguments) -> bool:
    """Whether these arguments put the training into the background."""
    return arguments.detach or (arguments.monitor and (arguments.many or _tmux() is None))


def train_in_background(argv: Sequence[str], arguments: Arguments) -> int:
    """Start the training in the background and print how to watch and stop it.

    Returns its exit code if it ended before it had a run folder, else 0.
    """
    if arguments.monitor and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("--monitor needs a terminal; --detach trains in the background without one")
    since = time.time() - CLOCK_ERROR_SECONDS
    # start_new_session: neither Ctrl-C in the shell nor the end of the terminal reaches it
    child = subprocess.Popen(
        [*program("train"), *(word for word in argv if word not in ("--detach", "--monitor"))],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    if not arguments.quiet:
        print("  starting in the background ...", flush=True)
    try:
        training = _wait_for_run(child, arguments, since)
    except KeyboardInterrupt:
        child.send_signal(signal.SIGINT)
        child.wait()
        raise
    if training is None:
        message = child.stderr.read().decode(errors="replace") if child.stderr else ""
        print(message, end="", file=sys.stderr)
        return child.wait()
    if arguments.monitor:
        run(Monitor(None if training.group else training.folder, training.group))
    print("\n".join(farewell(training, child.poll() is None)), flush=True)
    return 0


def farewell(training: Background, is_running: bool) -> list[str]:
    """Return the lines that say which commands attach to, stop and resume the training."""
    name = f"group:{training.group}" if training.group else training.folder.name
    attach = f"  attach    stride monitor {name}"
    if not is_running:
        return [f"  the training has ended: {name}", attach]
    stop = f"  stop      kill {training.pid}    (it saves first)"
    return [f"  training in the background: {name}", attach, stop, f"  resume    {TRAIN} --resume {name}"]


def _wait_for_run(child: subprocess.Popen[bytes], arguments: Arguments, since: float) -> Background | None:
    """Wait until the child process holds a run, and return it; None if the process ended without one."""
    is_group = arguments.many or arguments.resumes_group
    while True:
        has_ended = child.poll() is not None
        for folder in _candidates(arguments, since):
            holder = owner(folder)
            if holder and is_here(holder) and started_by(holder["pid"], child.pid):
                group = str(RunDir(folder).facts().get("group") or "") if is_group else ""
                return Background(child.pid, folder, group)
        if has_ended:
            return None
        time.sleep(POLL_SECONDS)


def _candidates(arguments: Arguments, since: float) -> Iterator[Path]:
    """Yield folders of runs that the child may train: new ones, and those it resumes."""
    root = runs_root()
    first = time.strftime("%Y%m%d-%H%M%S-", time.localtime(since))
    for name in list_names(root):
        stamp = STAMP.match(name)
        if stamp and stamp.group() >= first:
            yield root / name
    if arguments.resumes_group:
        for standing in standings(find_group(arguments.resume)):
            if standing.run:
                yield standing.run.path
    elif arguments.resume:
        yield RunDir.find(arguments.resume).path


def _tmux() -> str | None:
    """Return the path of tmux if this terminal is one of its panes, else None."""
    return shutil.which("tmux") if os.environ.get("TMUX") else None


def open_monitor(folder: Path) -> None:
    """Open a monitor of this run in a tmux pane below; if tmux refuses (no space), print why and continue."""
    tmux = _tmux()
    if tmux is None:
        return
    # a checkout's modules are imported from its folder; -P: those of a wheel never from the current folder
    python = [sys.executable, "-P"] if IS_WHEEL else [sys.executable]
    command = [*python, "-m", "stride.commands.monitor", str(folder)]
    pane = ["-c", os.getcwd() if IS_WHEEL else str(ROOT), "-e", f"STRIDE_RUNS={runs_root()}"]
    completed = subprocess.run([tmux, "split-window", "-d", "-v", *pane, *command], capture_output=True, text=True)
    if completed.returncode:
        print(f"  no monitor: tmux says {completed.stderr.strip() or completed.returncode}", file=sys.stderr)
