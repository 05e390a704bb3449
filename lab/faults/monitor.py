"""Tests metrics.mmap and its readers: no torn numbers, readable files of killed writers, no slower training.

    python -m lab.faults monitor --reads 1000000 --kills 200 --replacements 100

A writer at full speed writes rows whose numbers follow from each other; a reader checks them. Writers are killed at
random instants, every other one inside a record. A reader continues while its file is replaced by others. At last a
training measures which part of its time the file takes.
"""

import fcntl
import os
import random
import re
import signal
import statistics
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from lab.faults.rig import Report, Tally, forked, joined, last_run, leftovers, plant, start, wait_until
from lab.faults.trackers import clocked
from stride.commands import train
from stride.report.metrics_sinks import MetricsMmap
from stride.report.monitor.machine import Machine
from stride.runstore import metrics_layout as at
from stride.runstore.metrics_reader import MetricsReader, Snapshot
from stride.runstore.metrics_writer import MetricsWriter
from stride.runstore.run_dir import RunDir
from stride.runstore.run_state import DEAD, state_of
from stride.utils.places import PROJECT
from stride.utils.user_error import UserError

METRICS = [f"of/{number}" for number in range(16)]  # of the writers below
TRAINING = (
    "CartPole-v1:ppo", "-q", "engine=fused_cpu", "eval_freq_epochs=null", "test_episodes=0", "checkpoint_minutes=null",
)  # fmt: skip


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    reads, kills, replacements, steps = counts.values()
    under_writers = read_while_written(reads, folder), killed(kills, draw, folder), replaced(replacements, folder)
    return joined(*under_writers, cost(steps, folder))


class KillInRecord:
    """Replaces a writer's words of the file; kills its process when record number `number` has just been started.

    A writer marks a started record by an odd word, 2 number + 1.
    """

    def __init__(self, words: memoryview, number: int) -> None:
        self.words, self.number = words, number

    def __setitem__(self, index: int, word: int) -> None:
        self.words[index] = word
        if word == 2 * self.number + 1:
            os.kill(os.getpid(), signal.SIGKILL)


def write_for_ever(path: Path, mine: int = 0) -> None:
    """Write rows until this process is killed; row n has the values 16 n, 16 n + 1, ..

    If `mine` is not 0, the process kills itself inside that record.
    """
    writer, step = MetricsWriter(path, "writer", {}, metrics=len(METRICS)), 0
    if mine:
        plant(writer, "_words", KillInRecord(writer._words, mine))
    while True:
        step += 1
        writer.row(step, {name: float(16 * step + place) for place, name in enumerate(METRICS)})


def end(pid: int) -> None:
    """Kill a child process and wait for it."""
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def opened(path: Path, run: str = "writer") -> MetricsReader:
    """Wait until the file of this run has a row, and return a reader of it."""
    while not path.exists():
        time.sleep(1e-3)
    reader = MetricsReader(path)
    while reader.read().rows == 0 or reader.origin.run != run:
        time.sleep(1e-3)
    return reader


def torn(snapshot: Snapshot) -> bool:
    """Whether a snapshot mixes values of several rows."""
    step = snapshot.env_steps
    expected = [(16 * step + place, step, step) for place in range(len(METRICS))]
    return snapshot.rows != step or [snapshot.values[name] for name in METRICS] != expected


def read_while_written(count: int, folder: Path) -> tuple[str, bool]:
    """Read `count` times while a process writes at full speed; count torn and older snapshots."""
    path = folder / "read" / at.NAME
    path.parent.mkdir()
    pid = forked(lambda: write_for_ever(path))
    reader = opened(path)
    wrong = older = last = 0
    started, first = time.monotonic(), reader.read().rows
    for _ in range(count):
        snapshot = reader.read()
        wrong += torn(snapshot)
        older, last = older + (snapshot.sequence < last), snapshot.sequence
    rate = (snapshot.rows - first) / (time.monotonic() - started)
    end(pid)
    line = f"{count:,} reads while {rate:,.0f} rows of {len(METRICS)} metrics were written a second: **{wrong}** torn, "
    return f"{line}{older} older than the read before", not wrong and not older


def killed(count: int, draw: random.Random, folder: Path) -> tuple[str, bool]:
    """Kill `count` writers, half of them inside a record, and check the files that they leave."""
    tally, inside = Tally(), 0
    for number in range(count):
        seconds, record = draw.uniform(0, 0.02), number % 2 and draw.randint(20, 400)
        problem, is_incomplete = left_by_one(folder / f"killed-{number}", seconds, record)
        tally.add(f"writer {number}", problem)
        inside += is_incomplete
    line = f"writers killed at random instants, {inside} of them inside a record: {tally} files complete, in order, and"
    return f"{line} recognised as dead", tally.good


def left_by_one(folder: Path, seconds: float, mine: int) -> tuple[str, bool]:
    """Kill a writer after `seconds`, or inside record `mine` if that is not 0.

    Return what is wrong with its file ("" if nothing), and whether a record was incomplete.
    """
    folder.mkdir()
    path = folder / at.NAME
    pid = forked(lambda: write_for_ever(path, mine))
    reader = opened(path)
    if mine:
        os.waitpid(pid, 0)
    else:
        time.sleep(seconds)
        end(pid)
    snapshot, known_dead = reader.read(), state_of(folder, {}) == DEAD
    steps = [step for step, _ in reader.history(METRICS[-1])]
    is_whole = not torn(snapshot) and steps[-1] >= snapshot.env_steps
    is_whole = is_whole and steps == [*range(int(steps[0]), int(steps[-1]) + 1)]
    data, layout = path.read_bytes(), at.Layout(len(METRICS), 128)
    is_incomplete = any(at.SEQUENCE.unpack_from(data, layout.record(sequence))[0] % 2 for sequence in (2, 4))
    reader.close()
    return "" if is_whole and known_dead else f"whole: {is_whole}, known for dead: {known_dead}", is_incomplete


def replaced(count: int, folder: Path) -> tuple[str, bool]:
    """Read at full speed while another process replaces the file `count` times by files of other sizes."""
    path = folder / "replaced" / at.NAME
    path.parent.mkdir()
    MetricsWriter(path, "0", {}).row(0, {"number": 0.0})

    def replace() -> None:
        for number in range(1, count + 1):
            writer = MetricsWriter(path, str(number), {}, metrics=1 + number % 50, points=1 + number % 9)
            writer.row(number, {"number": float(number)})
            writer.end("finished", "")

    pid, reads, runs_seen = forked(replace), 0, set[str]()
    reader = MetricsReader(path)
    mixed = 0
    while reader.origin.run != str(count) or reader.read().state != at.STATES[at.ENDED]:
        snapshot = reader.read()
        reads += 1
        runs_seen.add(reader.origin.run)
        number = snapshot.values.get("number")
        run = reader.origin.run
        mixed += number is not None and (snapshot.env_steps != number.value or run != f"{number.value:.0f}")
    os.waitpid(pid, 0)
    line = f"one reader while its file was replaced {count} times by files of other sizes: {reads:,} reads, "
    return (
        f"{line}**{mixed}** with values of two files; {len(runs_seen)} of the files were read, the last among them",
        mixed == 0,
    )


def cost(steps: int, folder: Path) -> tuple[str, bool]:
    """Train for so many env steps, and measure which part of the processor time the file takes; limit 1 %."""
    note = folder / "cost"
    child = start((*TRAINING, f"max_timesteps={steps}"), folder / "runs", main=partial(timed, note))
    ended, run = child.wait(), last_run(folder / "runs")
    assert ended.code == 0 and run is not None, ended.said
    spent, n, work = map(float, note.read_text().split())
    env_steps = MetricsReader(run.path / at.NAME).read().env_steps
    line = f"in a training of {env_steps:,} env steps on the fused engine, writing the file took "
    line += f"{100 * spent / work:.3f} % of the processor's time: {1e6 * spent / n:.0f} us a call, {n:.0f} calls"
    return line, spent < 0.01 * work


def timed(note: Path, words: list[str]) -> int:
    """Train, and write into `note`: processor seconds in calls of MetricsMmap, their number, seconds in all."""
    started = time.thread_time()
    with clocked(MetricsMmap, ("row", "beat", "alert")) as seconds:
        code = train.command(words)
    note.write_text(f"{sum(seconds)} {len(seconds)} {time.thread_time() - started}")
    return code


MONITORS = 8
WINDOW_SECONDS = 2.5  # of each measurement
SCREENS = 5  # with new numbers, before the measurements (a monitor reads some files only once) and after them
TERMINAL_SIZE = struct.pack("HHHH", 24, 80, 0, 0)  # lines, columns, pixels unknown
ENDLESS = (*TRAINING, "early_stop_on_eval_threshold=false", "max_timesteps=100000000000")
STEPS_SHOWN = re.compile(rb"([\d,]+) / 100,000,000,000")


def audience(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    """Run eight monitors, each with its own terminal, beside a training: are they right, and what do they cost?

    The env steps on each screen must grow and never be ahead of the training. The part of a core that a monitor takes
    is printed; more than `--limit` percent is a fault (0: no limit).
    """
    root = folder / "runs"
    training = start(ENDLESS, root)
    try:
        path = _file_of(root)
        with monitors_of(path.parent, root, MONITORS) as viewers:
            wait_until(lambda: all(len(viewer.shown) >= SCREENS for viewer in viewers), pause=0.1)
            shares = [cpu_share([viewer.pid for viewer in viewers]) for _ in range(counts["windows"])]
            before = [len(viewer.shown) for viewer in viewers]
            ends = [count + SCREENS for count in before]
            wait_until(lambda: all(len(v.shown) >= n for v, n in zip(viewers, ends, strict=True)), pause=0.1)
        env_steps, lives = MetricsReader(path).read().env_steps, training.lives()
    finally:
        os.killpg(training.pid, signal.SIGKILL)
        training.wait()
    wrong = sum(viewer.shown != sorted(viewer.shown) or viewer.shown[-1] > env_steps for viewer in viewers)
    share, limit = 100 * statistics.median(shares), counts["limit"]
    line = f"{MONITORS} monitors of one training, {sum(len(viewer.shown) for viewer in viewers)} screens: "
    line += f"**{MONITORS - wrong} of {MONITORS}** showed its env steps grow, and never more than it had; "
    line += f"{share:.2f} % of a core each (median of {len(shares)} windows of {WINDOW_SECONDS} s)"
    return [line], lives and not wrong and (not limit or share <= limit)


def cpu_share(monitors: Sequence[int]) -> float:
    """Return the mean part of a core that these processes use, measured for WINDOW_SECONDS."""
    machines = [Machine() for _ in monitors]
    for machine, pid in zip(machines, monitors, strict=True):
        machine.look(pid)
    time.sleep(WINDOW_SECONDS)
    usage = [machine.look(pid) for machine, pid in zip(machines, monitors, strict=True)]
    if not all(usage):
        raise UserError("a monitor is gone")
    return sum(use.cpu or 0.0 for use in usage if use) / len(monitors) / 100


class Viewer:
    """A monitor in its own pseudo-terminal; a thread reads the env steps from its screens."""

    def __init__(self, words: Sequence[str], environment: dict[str, str]) -> None:
        self.shown: list[int] = []  # env steps, one number for each screen that was redrawn
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, TERMINAL_SIZE)
        threading.Thread(target=self._read, args=(master,), daemon=True).start()
        ends: dict[str, Any] = {"stdin": slave, "stdout": slave, "stderr": slave, "start_new_session": True}
        self.process = subprocess.Popen(words, cwd=PROJECT, env=environment, **ends)
        self.pid = self.process.pid
        os.close(slave)

    def _read(self, master: int) -> None:
        text = b""
        with suppress(OSError):  # the monitor has closed its end
            while chunk := os.read(master, 1 << 16):
                text += chunk
                *numbers, text = STEPS_SHOWN.split(text)  # [text, number, text, number, .., rest]
                self.shown += [int(number.replace(b",", b"")) for number in numbers[1::2]]
        os.close(master)


@contextmanager
def monitors_of(run: Path, root: Path, count: int) -> Iterator[list[Viewer]]:
    """Run `count` monitors of a run inside the block."""
    words = [sys.executable, "-m", "stride.commands.monitor", str(run)]
    environment = {**os.environ, "STRIDE_RUNS": str(root), "TERM": "xterm-256color"}
    viewers = [Viewer(words, environment) for _ in range(count)]
    try:
        yield viewers
    finally:
        for viewer in viewers:
            viewer.process.kill()
            viewer.process.wait()


def _file_of(root: Path) -> Path:
    """Wait until a training under `root` has made ten iterations; return its metrics.mmap."""
    paths: list[Path] = []

    def begun() -> bool:
        paths[:] = [path for path in root.glob(f"*/{at.NAME}") if not path.parent.is_symlink()]
        return any(MetricsReader(path).read().iterations > 10 for path in paths)

    wait_until(begun, pause=0.1)
    return paths[0]


TRAININGS = {
    "PPO, fused": ("CartPole-v1:ppo", "eval_freq_epochs=10"),
    "PPO, Gymnasium's environments": ("CartPole-v1:ppo", "env_backend=gym", "eval_freq_epochs=10"),
    "DQN, fused": ("CartPole-v1:dqn", "buffer_size=20000", "eval_freq_epochs=10"),
    "SAC, fused": ("Pendulum-v1:sac", "buffer_size=20000", "eval_freq_epochs=10"),
}
LONG = ("-q", "max_timesteps=1e12", "early_stop_on_eval_threshold=false", "checkpoint_minutes=0.1")


RESOURCES = ("memory in MiB", "descriptors", "threads", "checkpoints")
MAX_GROWTH = (32.0, 1, 0, float("inf"))  # allowed growth of each, by allocators and a checkpoint being written


def endurance(counts: dict[str, int], draw: random.Random, folder: Path) -> Report:
    """Train for a long time in one process: memory, descriptors, threads and files must not grow.

    PPO, DQN and SAC on the fused engine, and PPO on Gymnasium's environments, one after the other, each with frequent
    evaluations. What they use is read from /proc after a quarter of the time and at its end; then SIGTERM ends them.
    """
    lines, good = [], True
    for name, words in TRAININGS.items():
        line, is_steady = long_training(name, (*words, *LONG), counts["seconds"], folder / name.replace(" ", "-"))
        print(line, flush=True)
        lines.append(line)
        good &= is_steady
    return lines, good


def long_training(name: str, words: tuple[str, ...], seconds: int, root: Path) -> tuple[str, bool]:
    """Train for so many seconds; return the line of the report and whether nothing grew."""
    child = start(words, root)
    wait_until(lambda: not child.lives() or ((run := last_run(root)) and run.metrics_csv.exists()))
    run = last_run(root)
    assert run is not None, child.wait().said
    time.sleep(seconds / 4)  # buffers that fill at the start are full by then
    early = resources_held(child.pid, run)
    time.sleep(3 * seconds / 4)
    late = resources_held(child.pid, run)
    began = time.monotonic()
    os.kill(child.pid, signal.SIGTERM)
    ended, litter = child.wait(), leftovers(root)
    steps = run.facts()["outcome"]["env_steps"]
    size = run.metrics_csv.stat().st_size / steps * 1e6 / 1e3
    grew = any(now > before + more for now, before, more in zip(late, early, MAX_GROWTH, strict=True))
    changes = ", ".join(f"{what} {a:.0f} -> {b:.0f}" for what, a, b in zip(RESOURCES, early, late, strict=True))
    line = f"{name}, {steps:,} env steps in {seconds} s: {changes}, metrics.csv {size:.0f} kB per million steps; "
    line += f"SIGTERM: exit code {ended.code} after {time.monotonic() - began:.1f} s, {len(litter)} files left over"
    return line, not grew and ended.code == 143 and not litter


def resources_held(pid: int, run: RunDir) -> tuple[float, int, int, int]:
    """Return RESOURCES of a process, from /proc and the run's folder."""
    process = Path("/proc") / str(pid)
    fields = (process / "status").read_text().split()
    memory, threads = (int(fields[fields.index(name) + 1]) for name in ("VmRSS:", "Threads:"))
    return memory / 1024, len([*(process / "fd").iterdir()]), threads, len([*run.checkpoints.glob("*.ckpt")])
