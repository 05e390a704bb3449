"""A training that goes on without its terminal: begun here, looked at and stopped from anywhere.

In tmux a monitor has a pane of its own beside the training; elsewhere the training goes into the background, and the
monitor has the terminal.
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

from stride.config.commands.train import Arguments
from stride.report.monitor.app import Monitor, run
from stride.runstore.run_dir import STAMP, RunDir, runs_root
from stride.runstore.run_files import list_names
from stride.runstore.run_lock import is_here, owner, started_by
from stride.runstore.seed_group import find_group, names_group, spelled_out, standings
from stride.utils.places import IS_WHEEL, ROOT, TRAIN, program
from stride.utils.user_error import UserError

FLAGS = ("--detach", "--monitor")
POLL = 0.1  # seconds between two looks for its run
EARLIER = 2.0  # seconds that a clock may be behind


class Begun(NamedTuple):
    """A training in the background: its process, its run, and the group it is of."""

    pid: int
    folder: Path
    group: str


def apart(arguments: Arguments) -> bool:
    """Whether the training goes into the background."""
    return arguments.detach or (arguments.monitor and (arguments.many or _tmux() is None))


def train_apart(argv: Sequence[str], arguments: Arguments) -> int:
    """Begin it, and say how to look on and how to stop it; its own exit code where it ended before it had a run."""
    if arguments.monitor and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError("--monitor wants a terminal; --detach alone trains in the background")
    words = [word for word in argv if word not in FLAGS]
    since = time.time() - EARLIER
    # a session of its own: neither the shell's Ctrl-C nor the end of the terminal reaches it
    child = subprocess.Popen(
        [*program("train"), *words],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    if not arguments.quiet:
        print("  begins in the background ...", flush=True)
    try:
        begun = _awaited(child, arguments, since)
    except KeyboardInterrupt:
        child.send_signal(signal.SIGINT)
        child.wait()
        raise
    if begun is None:
        told = child.stderr.read().decode(errors="replace") if child.stderr else ""
        print(told, end="", file=sys.stderr)
        return child.wait()
    if arguments.monitor:
        run(Monitor(None if begun.group else begun.folder, begun.group))
    print("\n".join(farewell(begun, child.poll() is None)), flush=True)
    return 0


def farewell(begun: Begun, trains: bool) -> list[str]:
    """What to type next."""
    name = f"group:{begun.group}" if begun.group else begun.folder.name
    attach = f"  attach    stride monitor {name}"
    if not trains:
        return [f"  it ended: {name}", attach]
    again = f"  goes on   {TRAIN} --resume {name}"
    stop = f"  stop      kill {begun.pid}    it saves first"
    return [f"  trains in the background: {name}", attach, stop, again]


def _awaited(child: subprocess.Popen[bytes], arguments: Arguments, since: float) -> Begun | None:
    """Its run, once it holds one; None where it ended without."""
    while True:
        ended = child.poll() is not None
        for folder in _candidates(arguments, since):
            holder = owner(folder)
            if holder and is_here(holder) and started_by(holder["pid"], child.pid):
                group = str(RunDir(folder).facts().get("group") or "") if _of_several(arguments) else ""
                return Begun(child.pid, folder, group)
        if ended:
            return None
        time.sleep(POLL)


def _of_several(arguments: Arguments) -> bool:
    return arguments.many or names_group(arguments.resume)


def _candidates(arguments: Arguments, since: float) -> Iterator[Path]:
    """Runs that it may have begun: new ones, and those it goes on with."""
    root = runs_root()
    first = time.strftime("%Y%m%d-%H%M%S-", time.localtime(since))
    yield from (root / name for name in list_names(root) if (found := STAMP.match(name)) and found.group() >= first)
    if names_group(arguments.resume):
        members = standings(find_group(spelled_out(arguments.resume)))
        yield from (each.run.path for each in members if each.run)
    elif arguments.resume:
        yield RunDir.find(arguments.resume).path


def _tmux() -> str | None:
    """The program, where this terminal is one of its panes."""
    return shutil.which("tmux") if os.environ.get("TMUX") else None


def look_on(folder: Path) -> None:
    """A monitor of this run in a pane below; where tmux refuses (no room is left) the console is all there is."""
    tmux = _tmux()
    if tmux is None:
        return
    # a checkout's modules are found from its folder; from a wheel never from where one stands
    where = ["-P"] if IS_WHEEL else []
    words = [sys.executable, *where, "-m", "stride.commands.monitor", str(folder)]
    place = ["-c", os.getcwd() if IS_WHEEL else str(ROOT), "-e", f"STRIDE_RUNS={runs_root()}"]
    done = subprocess.run([tmux, "split-window", "-d", "-v", *place, *words], capture_output=True, text=True)
    if done.returncode:
        print(f"  no monitor: tmux says {done.stderr.strip() or done.returncode}", file=sys.stderr)
