"""metrics.mmap under those who read it: is a number ever torn, a killed writer's file unreadable, a training slowed?

    python -m lab.faults monitor --reads 1000000 --kills 200 --replacements 100

A writer at full speed tells rows whose numbers follow from each other; a reader looks at whether they do.
Writers are killed at random instants, every other one inside a record. A reader stays while other files take the place
of its own. At last a training says what part of its time the file took.
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

from lab.faults.rig import Tally, Told, forked, last_run, leftovers, plant, start, together, wait_until
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

METRICS = [f"of/{number}" for number in range(16)]
TRAINING = (
    "CartPole-v1:ppo", "-q", "engine=fused_cpu", "eval_freq_epochs=null", "test_episodes=0", "checkpoint_minutes=null",
)  # fmt: skip


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> Told:
    reads, kills, replacements, steps = counts.values()
    under_writers = read_while_written(reads, folder), killed(kills, draw, folder), replaced(replacements, folder)
    return together(*under_writers, cost(steps, folder))


class Mine:
    """A writer's words; its process kills itself when the `number`th record has just been begun."""

    def __init__(self, words: memoryview, number: int) -> None:
        self.words, self.number = words, number

    def __setitem__(self, place: int, word: int) -> None:
        self.words[place] = word
        if word == 2 * self.number + 1:
            os.kill(os.getpid(), signal.SIGKILL)


def write_for_ever(path: Path, mine: int = 0) -> None:
    """Row n holds 16 n, 16 n + 1, ..; until this process is killed."""
    writer, step = MetricsWriter(path, "writer", {}, metrics=len(METRICS)), 0
    if mine:
        plant(writer, "_words", Mine(writer._words, mine))
    while True:
        step += 1
        writer.row(step, {name: float(16 * step + place) for place, name in enumerate(METRICS)})


def end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def opened(path: Path, run: str = "writer") -> MetricsReader:
    """A reader, as soon as that run's file has a row."""
    while not path.exists():
        time.sleep(1e-3)
    reader = MetricsReader(path)
    while reader.read().rows == 0 or reader.origin.run != run:
        time.sleep(1e-3)
    return reader


def torn(told: Snapshot) -> bool:
    step = told.env_steps
    expected = [(16 * step + place, step, step) for place in range(len(METRICS))]
    return told.rows != step or [told.values[name] for name in METRICS] != expected


def read_while_written(count: int, folder: Path) -> tuple[str, bool]:
    path = folder / "read" / at.NAME
    path.parent.mkdir()
    pid = forked(lambda: write_for_ever(path))
    reader = opened(path)
    wrong = older = last = 0
    began, first = time.monotonic(), reader.read().rows
    for _ in range(count):
        told = reader.read()
        wrong, older, last = wrong + torn(told), older + (told.sequence < last), told.sequence
    rate = (told.rows - first) / (time.monotonic() - began)
    end(pid)
    line = f"{count:,} reads while {rate:,.0f} rows of {len(METRICS)} metrics were written a second: **{wrong}** torn, "
    return f"{line}{older} older than the read before", not wrong and not older


def killed(count: int, draw: random.Random, folder: Path) -> tuple[str, bool]:
    tally, inside = Tally(), 0
    for number in range(count):
        seconds, record = draw.uniform(0, 0.02), number % 2 and draw.randint(20, 400)
        problem, odd = left_by_one(folder / f"killed-{number}", seconds, record)
        tally.add(f"writer {number}", problem)
        inside += odd
    line = f"writers killed at random instants, {inside} of them inside a record: {tally} files complete, in order, and"
    return f"{line} recognised as dead", tally.good


def left_by_one(folder: Path, seconds: float, mine: int) -> tuple[str, bool]:
    """What is wrong with the file of a writer that is killed after so long, or inside that record; whether it was."""
    folder.mkdir()
    path = folder / at.NAME
    pid = forked(lambda: write_for_ever(path, mine))
    reader = opened(path)
    if mine:
        os.waitpid(pid, 0)
    else:
        time.sleep(seconds)
        end(pid)
    told, known = reader.read(), state_of(folder, {}) == DEAD
    steps = [step for step, _ in reader.history(METRICS[-1])]
    whole = not torn(told) and steps == [*range(int(steps[0]), int(steps[-1]) + 1)] and steps[-1] >= told.env_steps
    data, layout = path.read_bytes(), at.Layout(len(METRICS), 128)
    odd = any(at.SEQUENCE.unpack_from(data, layout.record(sequence))[0] % 2 for sequence in (2, 4))
    reader.close()
    return "" if whole and known else f"whole: {whole}, known for dead: {known}", odd


def replaced(count: int, folder: Path) -> tuple[str, bool]:
    """A reader at full speed, and files of other sizes that take the place of its own."""
    path = folder / "replaced" / at.NAME
    path.parent.mkdir()
    MetricsWriter(path, "0", {}).row(0, {"number": 0.0})

    def replace() -> None:
        for number in range(1, count + 1):
            writer = MetricsWriter(path, str(number), {}, metrics=1 + number % 50, points=1 + number % 9)
            writer.row(number, {"number": float(number)})
            writer.end("finished", "")

    pid, reads, seen = forked(replace), 0, set[str]()
    reader = MetricsReader(path)
    mixed = 0
    while reader.origin.run != str(count) or reader.read().state != at.STATES[at.ENDED]:
        told = reader.read()
        reads += 1
        seen.add(reader.origin.run)
        number = told.values.get("number")
        mixed += number is not None and (told.env_steps != number.value or reader.origin.run != f"{number.value:.0f}")
    os.waitpid(pid, 0)
    line = f"one reader while its file was replaced {count} times by files of other sizes: {reads:,} reads, "
    return (
        f"{line}**{mixed}** with values of two files; {len(seen)} of the files were read, the last among them",
        mixed == 0,
    )


def cost(steps: int, folder: Path) -> tuple[str, bool]:
    note = folder / "cost"
    child = start((*TRAINING, f"max_timesteps={steps}"), folder / "runs", main=partial(timed, note))
    ended, run = child.wait(), last_run(folder / "runs")
    assert ended.code == 0 and run is not None, ended.said
    sink, calls, work = map(float, note.read_text().split())
    env_steps = MetricsReader(run.path / at.NAME).read().env_steps
    line = f"in a training of {env_steps:,} env steps on the fused engine, writing the file took "
    line += f"{100 * sink / work:.3f} % of the processor's time: {1e6 * sink / calls:.0f} us a call, {calls:.0f} calls"
    return line, sink < 0.01 * work


def timed(note: Path, words: list[str]) -> int:
    """A training, and a note of what its calls of MetricsMmap took of its processor's time."""
    began = time.thread_time()
    with clocked(MetricsMmap, ("row", "beat", "alert")) as taken:
        code = train.command(words)
    note.write_text(f"{sum(taken)} {len(taken)} {time.thread_time() - began}")
    return code


MONITORS = 8
LASTS = 2.5  # seconds of a window
LOOKS = 5  # screens with other numbers, after which a monitor has read all that it reads once, and at the end again
SIZE = struct.pack("HHHH", 24, 80, 0, 0)
ENDLESS = (*TRAINING, "early_stop_on_eval_threshold=false", "max_timesteps=100000000000")
STEPS_SHOWN = re.compile(rb"([\d,]+) / 100,000,000,000")


def audience(counts: dict[str, int], draw: random.Random, folder: Path) -> Told:
    """Does each of eight monitors, with a terminal of its own, show how a training goes on, and what does it cost?

    Judged: the env steps on each screen grow, never fall, and never are ahead of the training. What part of a core a
    monitor takes is printed; more than `--limit` percent of it are a fault, 0 for no limit.
    """
    root = folder / "runs"
    training = start(ENDLESS, root)
    try:
        path = _file_of(root)
        with looking(path.parent, root, MONITORS) as viewers:
            wait_until(lambda: all(len(viewer.shown) >= LOOKS for viewer in viewers), pause=0.1)
            shares = [window([viewer.pid for viewer in viewers]) for _ in range(counts["windows"])]
            before = [len(viewer.shown) for viewer in viewers]
            wait_until(lambda: all(len(v.shown) >= n + LOOKS for v, n in zip(viewers, before, strict=True)), pause=0.1)
        reached, lives = MetricsReader(path).read().env_steps, training.lives()
    finally:
        os.killpg(training.pid, signal.SIGKILL)
        training.wait()
    wrong = sum(viewer.shown != sorted(viewer.shown) or viewer.shown[-1] > reached for viewer in viewers)
    share, limit = 100 * statistics.median(shares), counts["limit"]
    line = f"{MONITORS} monitors of one training, {sum(len(viewer.shown) for viewer in viewers)} screens: "
    line += f"**{MONITORS - wrong} of {MONITORS}** showed its env steps grow, and never more than it had; "
    line += f"{share:.2f} % of a core each (median of {len(shares)} windows of {LASTS} s)"
    return [line], lives and not wrong and (not limit or share <= limit)


def window(monitors: Sequence[int]) -> float:
    machines = [Machine() for _ in monitors]
    for machine, pid in zip(machines, monitors, strict=True):
        machine.look(pid)
    time.sleep(LASTS)
    used = [machine.look(pid) for machine, pid in zip(machines, monitors, strict=True)]
    if not all(used):
        raise UserError("a monitor is gone")
    return sum(use.cpu or 0.0 for use in used if use) / len(monitors) / 100


class Viewer:
    """A monitor with a terminal of its own, whose screens are read."""

    def __init__(self, words: Sequence[str], environment: dict[str, str]) -> None:
        self.shown: list[int] = []  # env steps, one for each screen with others than the one before
        master, slave = os.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, SIZE)
        threading.Thread(target=self._read, args=(master,), daemon=True).start()
        ends: dict[str, Any] = {"stdin": slave, "stdout": slave, "stderr": slave, "start_new_session": True}
        self.process = subprocess.Popen(words, cwd=PROJECT, env=environment, **ends)
        self.pid = self.process.pid
        os.close(slave)

    def _read(self, master: int) -> None:
        text = b""
        with suppress(OSError):  # its other end is closed
            while chunk := os.read(master, 1 << 16):
                text += chunk
                *numbers, text = STEPS_SHOWN.split(text)  # what is before a number, the number, ..., what is behind all
                self.shown += [int(number.replace(b",", b"")) for number in numbers[1::2]]
        os.close(master)


@contextmanager
def looking(run: Path, root: Path, count: int) -> Iterator[list[Viewer]]:
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


HELD = ("memory in MiB", "descriptors", "threads", "checkpoints")
ADDED = (32.0, 1, 0, float("inf"))  # that may be added between the two looks, by allocators and a checkpoint under way


def endurance(counts: dict[str, int], draw: random.Random, folder: Path) -> Told:
    """A long training in one process: do memory, descriptors, threads or files grow?

    PPO, DQN and SAC on the fused engine, and PPO on Gymnasium's environments, one after the other, each with frequent
    evaluations; what they hold is read from /proc after a quarter of the time and at its end, then SIGTERM ends them.
    """
    lines, good = [], True
    for name, words in TRAININGS.items():
        line, held = endured(name, (*words, *LONG), counts["seconds"], folder / name.replace(" ", "-"))
        print(line, flush=True)
        lines.append(line)
        good &= held
    return lines, good


def endured(name: str, words: tuple[str, ...], seconds: int, root: Path) -> tuple[str, bool]:
    child = start(words, root)
    wait_until(lambda: not child.lives() or ((run := last_run(root)) and run.metrics_csv.exists()))
    run = last_run(root)
    assert run is not None, child.wait().said
    time.sleep(seconds / 4)  # what only fills at first is full by then
    early = looked(child.pid, run)
    time.sleep(3 * seconds / 4)
    late = looked(child.pid, run)
    began = time.monotonic()
    os.kill(child.pid, signal.SIGTERM)
    ended, left = child.wait(), leftovers(root)
    steps = run.facts()["outcome"]["env_steps"]
    size = run.metrics_csv.stat().st_size / steps * 1e6 / 1e3
    grew = any(now > before + more for now, before, more in zip(late, early, ADDED, strict=True))
    held = ", ".join(f"{what} {a:.0f} -> {b:.0f}" for what, a, b in zip(HELD, early, late, strict=True))
    line = f"{name}, {steps:,} env steps in {seconds} s: {held}, metrics.csv {size:.0f} kB per million steps; "
    line += f"SIGTERM: exit code {ended.code} after {time.monotonic() - began:.1f} s, {len(left)} files left over"
    return line, not grew and ended.code == 143 and not left


def looked(pid: int, run: RunDir) -> tuple[float, int, int, int]:
    """HELD, by what /proc says of the process, and its folder."""
    process = Path("/proc") / str(pid)
    words = (process / "status").read_text().split()
    memory, threads = (int(words[words.index(name) + 1]) for name in ("VmRSS:", "Threads:"))
    return memory / 1024, len([*(process / "fd").iterdir()]), threads, len([*run.checkpoints.glob("*.ckpt")])
