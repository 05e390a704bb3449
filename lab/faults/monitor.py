"""metrics.mmap under those who read it: is a number ever torn, a killed writer's file unreadable, a training slowed?

    python -m lab.faults monitor --reads 1000000 --kills 200 --replacements 100

A writer at full speed tells rows whose numbers follow from each other; a reader looks at whether they do. To show
that there is something to see, it also takes numbers out of a mapping, one by one, as one would who knew of no locks.
Writers are killed at random instants, every other one inside a record. A reader stays while other files take the place
of its own. At last a training says what part of its time the file took.
"""

import mmap
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from lab.faults.rig import finish, last_run
from stride.config.schema import Config
from stride.report.metrics_mmap import MetricsMmap
from stride.runstore import metrics_layout as at
from stride.runstore.metrics_reader import MetricsReader, Snapshot
from stride.runstore.metrics_writer import MetricsWriter
from stride.runstore.outcome import Header, Outcome
from stride.runstore.run_state import DEAD, state_of

METRICS = [f"of/{number}" for number in range(16)]
UNLOCKED_EVERY = 10  # reads, of which one is repeated without a lock
TRAINING = (
    "CartPole-v1:ppo", "-q", "engine=fused_cpu", "eval_freq_epochs=null", "test_episodes=0", "checkpoint_minutes=null",
)  # fmt: skip


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    results = [
        read_while_written(counts["reads"], folder),
        killed(counts["kills"], draw, folder),
        replaced(counts["replacements"], folder),
        cost(counts["steps"], folder),
    ]
    return [line for line, _ in results], all(good for _, good in results)


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
        setattr(writer, "_words", Mine(writer._words, mine))  # noqa: B010  (mypy would not have it assigned)
    while True:
        step += 1
        writer.row(step, {name: float(16 * step + place) for place, name in enumerate(METRICS)})


def forked(work: Callable[[], None]) -> int:
    """The process that does it."""
    pid = os.fork()
    if not pid:
        try:
            work()
        finally:
            os._exit(1)
    return pid


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
    """Whether it is of more than one row."""
    step = told.env_steps
    return told.rows != step or [told.values[name] for name in METRICS] != [
        (16 * step + place, step, step) for place in range(len(METRICS))
    ]


def torn_unlocked(data: mmap.mmap, start: int) -> bool:
    """The same of the numbers of a record, whatever its writer does to them meanwhile."""
    step = at.RECORD.unpack_from(data, start + at.CHECKED)[3]
    places = [start + at.VALUES + place * at.VALUE.size for place in range(len(METRICS))]
    return [at.VALUE.unpack_from(data, each) for each in places] != [
        (16 * step + place, step, step) for place in range(len(METRICS))
    ]


def read_while_written(count: int, folder: Path) -> tuple[str, bool]:
    path = folder / "read" / at.NAME
    path.parent.mkdir()
    pid = forked(lambda: write_for_ever(path))
    reader, layout = opened(path), at.Layout(len(METRICS), 128)
    wrong = older = unlocked = last = 0
    began, first = time.monotonic(), reader.read().rows
    with path.open("rb") as file, mmap.mmap(file.fileno(), layout.size, access=mmap.ACCESS_READ) as data:
        for number in range(count):
            told = reader.read()
            wrong, older, last = wrong + torn(told), older + (told.sequence < last), told.sequence
            if number % UNLOCKED_EVERY == 0:
                unlocked += torn_unlocked(data, layout.record(told.sequence))
    rate = (told.rows - first) / (time.monotonic() - began)
    end(pid)
    line = (
        f"{count:,} reads beside {rate:,.0f} rows a second of {len(METRICS)} metrics: **{wrong} torn**, {older} older "
    )
    line += f"than one before; of {-(-count // UNLOCKED_EVERY):,} without a lock {unlocked:,} were torn"
    return line, not wrong and not older


class Left(NamedTuple):
    """What a killed writer left."""

    whole: bool
    known: bool
    odd: bool
    seconds: float


def killed(count: int, draw: random.Random, folder: Path) -> tuple[str, bool]:
    found = [
        left_by_one(folder / f"killed-{number}", draw.uniform(0, 0.02), number % 2 and draw.randint(20, 400))
        for number in range(count)
    ]
    whole, known, odd = (sum(column) for column in [*zip(*found, strict=True)][:3])
    slowest = 1000 * max(left.seconds for left in found)
    line = (
        f"{count} writers killed at random instants, {odd} of them inside a record: **{whole} of {count}** files whole "
    )
    line += f"and in order, **{known} of {count}** known for dead, the slowest after {slowest:.0f} ms"
    return line, whole == known == count


def left_by_one(folder: Path, seconds: float, mine: int) -> Left:
    """Of a writer that is killed after so long, or inside that record."""
    folder.mkdir()
    pid = forked(lambda: write_for_ever(folder / at.NAME, mine))
    reader = opened(folder / at.NAME)
    if mine:
        os.waitpid(pid, 0)
    else:
        time.sleep(seconds)
        end(pid)
    began = time.monotonic()
    told = reader.read()
    known = state_of(folder, {}) == DEAD
    spent = time.monotonic() - began
    steps = [step for step, _ in reader.history(METRICS[-1])]
    whole = not torn(told) and steps == [*range(int(steps[0]), int(steps[-1]) + 1)] and steps[-1] >= told.env_steps
    data, layout = (folder / at.NAME).read_bytes(), at.Layout(len(METRICS), 128)
    odd = any(at.SEQUENCE.unpack_from(data, layout.record(sequence))[0] % 2 for sequence in (2, 4))
    reader.close()
    return Left(whole, known, odd, spent)


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
        os._exit(0)

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
    line = f"one reader while its file was replaced {count} times by others of other sizes: {reads:,} reads, "
    return f"{line}**{mixed} mixed**, {len(seen)} of the files seen, the last among them", mixed == 0


def cost(steps: int, folder: Path) -> tuple[str, bool]:
    """What the sink took of a training on the fused engine, from its begin to its end."""
    note = folder / "cost"
    ended = finish((*TRAINING, f"max_timesteps={steps}"), folder / "runs", lambda: time_the_sink(note))
    run = last_run(folder / "runs")
    if ended.code or run is None:
        return f"the training failed: {ended.said.strip()}", False
    sink, rows, work, seconds = map(float, note.read_text().split())
    told = MetricsReader(run.path / at.NAME).read()
    line = f"of {told.env_steps:,} env steps on the fused engine ({1000 * seconds / told.iterations:.2f} ms an "
    line += f"iteration, {told.env_steps / seconds:,.0f} steps/s) the file took {100 * sink / work:.3f} % of the "
    return f"{line}processor's time: {1e6 * sink / rows:.0f} us a call, {rows:.0f} calls", sink < 0.01 * work


def time_the_sink(note: Path) -> None:
    """In a process of its own: what MetricsMmap is told is timed, and written down when it ends.

    By the processor's time of the thread, as others may keep the machine busy.
    """
    spent: list[float] = []
    began: list[tuple[float, float]] = []

    def timed(name: str) -> None:
        method = getattr(MetricsMmap, name)

        def call(sink: MetricsMmap, *told: object) -> None:
            start = time.thread_time()
            method(sink, *told)
            spent.append(time.thread_time() - start)

        setattr(MetricsMmap, name, call)

    for name in ("row", "beat", "alert"):
        timed(name)
    begin, finish_it = MetricsMmap.begin, MetricsMmap.end

    def begins(sink: MetricsMmap, header: Header, config: Config) -> None:
        begin(sink, header, config)
        began.append((time.thread_time(), time.perf_counter()))

    def ends(sink: MetricsMmap, outcome: Outcome | None) -> None:
        finish_it(sink, outcome)
        work, seconds = time.thread_time() - began[0][0], time.perf_counter() - began[0][1]
        note.write_text(f"{sum(spent)} {len(spent)} {work} {seconds}")

    setattr(MetricsMmap, "begin", begins)  # noqa: B010  (mypy would not have it assigned)
    setattr(MetricsMmap, "end", ends)  # noqa: B010
