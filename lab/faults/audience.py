"""Does looking slow a training?   python -m lab.faults audience --windows 12

One training at the full speed of the fused engine, and monitors on it, each with a terminal of its own. They stand
still and go on by SIGSTOP and SIGCONT, so that 0, 1 and 8 of them look on in turn, in an order that is drawn.
"""

import fcntl
import itertools
import os
import random
import signal
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lab.faults.rig import start
from stride.report.monitor.machine import Machine
from stride.runstore import metrics_layout as at
from stride.runstore.metrics_reader import MetricsReader
from stride.utils.places import PROJECT
from stride.utils.user_error import UserError

AUDIENCES = (0, 1, 8)
SETTLE, LASTS = 1.0, 2.5  # seconds: after others look on, and of a window
READY = 5.0  # seconds after the first screen in which a monitor reads what it reads once
SCREEN = 1000  # bytes, fewer than a whole one has
SIZE = struct.pack("HHHH", 24, 80, 0, 0)
TRAINING = (
    "CartPole-v1:ppo", "-q", "engine=fused_cpu", "eval_freq_epochs=null", "test_episodes=0", "checkpoint_minutes=null",
    "early_stop_on_eval_threshold=false", "max_timesteps=100000000000",
)  # fmt: skip


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    root = folder / "runs"
    training = start(TRAINING, root)
    try:
        path = _file_of(root)
        with looking(path.parent, root, max(AUDIENCES)) as monitors:
            windows = [window(path, monitors, count) for _ in range(counts["windows"])
                       for count in draw.sample(AUDIENCES, len(AUDIENCES))]  # fmt: skip
    finally:
        os.killpg(training.pid, signal.SIGKILL)
        training.wait()
    return told(windows)


def told(windows: Sequence[tuple[int, float, float]]) -> tuple[list[str], bool]:
    """Of each window how many looked on, env steps per second, and what part of a core each of them took."""
    lines, good = [], True
    rates = {count: [rate for many, rate, _ in windows if many == count] for count in AUDIENCES}
    for count in AUDIENCES:
        middle = statistics.median(rates[count])
        ratios = [rate / alone for rate, alone in zip(rates[count], rates[0], strict=True)]
        line = f"{count} monitors: {middle:,.0f} env steps/s"
        if count:
            share = 100 * statistics.median(share for many, _, share in windows if many == count)
            spread = f"{min(ratios):.3f} to {max(ratios):.3f}, median of {len(ratios)} rounds of {LASTS} s each"
            line += f", {statistics.median(ratios):.3f} of those with none ({spread}), **{share:.2f} %** of a core each"
            good = good and share <= 1
        lines.append(line)
    return lines, good


def window(path: Path, monitors: Sequence[int], count: int) -> tuple[int, float, float]:
    for place, pid in enumerate(monitors):
        os.kill(pid, signal.SIGCONT if place < count else signal.SIGSTOP)
    time.sleep(SETTLE)
    reader, machines = MetricsReader(path), [Machine() for _ in monitors[:count]]
    before = reader.read()
    used = [machine.look(pid) for machine, pid in zip(machines, monitors, strict=False)]
    time.sleep(LASTS)
    used = [machine.look(pid) for machine, pid in zip(machines, monitors, strict=False)]
    after = reader.read()
    reader.close()
    rate = (after.env_steps - before.env_steps) / (after.told - before.told)
    shares = [use.cpu or 0.0 for use in used if use]
    if len(shares) < count:
        raise UserError(f"{count - len(shares)} of {count} monitors are gone")
    return count, rate, sum(shares) / count / 100 if count else 0.0


@contextmanager
def looking(run: Path, root: Path, count: int) -> Iterator[list[int]]:
    """The processes of so many monitors, whose screens somebody reads; each has shown its first."""
    pairs, shown = [os.openpty() for _ in range(count)], [threading.Event() for _ in range(count)]
    words = [sys.executable, "-m", "stride.commands.monitor", str(run)]
    children = []
    for (master, slave), first in zip(pairs, shown, strict=True):
        fcntl.ioctl(slave, termios.TIOCSWINSZ, SIZE)
        threading.Thread(target=_read, args=(master, first), daemon=True).start()
        surroundings = {**os.environ, "STRIDE_RUNS": str(root), "TERM": "xterm-256color"}
        children.append(
            subprocess.Popen(
                words, cwd=PROJECT, env=surroundings, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
            )
        )
        os.close(slave)
    try:
        if not all(first.wait(60) for first in shown):
            raise UserError("a monitor shows nothing")
        time.sleep(READY)
        yield [child.pid for child in children]
    finally:
        for child in children:
            child.kill()
            child.wait()


def _read(master: int, first: threading.Event) -> None:
    told = 0
    try:
        while data := os.read(master, 1 << 16):
            told += len(data)
            if told > SCREEN:
                first.set()
    except OSError:  # its other end is closed
        os.close(master)


def _file_of(root: Path) -> Path:
    """As soon as the training is under way."""
    for _ in itertools.repeat(None, 600):
        time.sleep(0.1)
        for path in root.glob(f"*/{at.NAME}"):
            if not path.parent.is_symlink() and MetricsReader(path).read().iterations > 10:
                return path
    raise UserError("the training did not begin within a minute")
