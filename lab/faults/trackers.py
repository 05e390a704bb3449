"""Does a tracker slow a training, or change a number of it? With servers that answer, stall, drop and fail.

    python -m lab.faults trackers --pairs 5 --steps 400000

Pairs of one training in this process, without and with a tracker, in turn: env steps per second of the rows, CPU
seconds of the process that trains (its threads, not the tracker's process), all of metrics.csv that is not of time.
What a pair says is as noisy as the machine; beside it stands what noise does not touch, the processor's time of the
tracker's own thread and of the calls that bring it news: no more than that can be taken from the training.
"""

import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import NamedTuple, get_args

from lab.faults.wandb_server import Mode, serving_apart
from stride.commands import train
from stride.config.metrics import load_metrics
from stride.report.trackers.courier import Courier
from stride.report.trackers.registry import KINDS, is_installed
from stride.runstore.metrics_csv import read_csv
from stride.runstore.run_dir import RunDir

WORDS = ("CartPole-v1:ppo", "-q", "eval_freq_epochs=null", "early_stop_on_eval_threshold=false", "test_episodes=0")
SERVERS = get_args(Mode)
MOST = 0.02  # of a training's time
LONG = 5.0  # seconds from which on a training is judged by it
CALLS = ("begin", "row", "media", "alert", "end", "_deliver")
RATE = "train/time/env_steps_per_second"
Rows = list[dict[str, float]]


class Trained(NamedTuple):
    """What a training was."""

    rate: float  # median of its rows
    cpu: float  # seconds
    seconds: float  # of the command, from its first word to its last
    taken: float  # of those, the processor's in calls and thread of the tracker
    rows: Rows  # without what tells of time


def run(counts: dict[str, int], draws: random.Random, folder: Path) -> tuple[list[str], bool]:
    """The lines, and whether all numbers are the same."""
    os.environ["STRIDE_RUNS"] = str(folder / "runs")
    os.environ["TRACKIO_DIR"] = str(folder / "trackio")
    trained("csv", counts["steps"])  # compiles, and imports what is imported once
    lines, good = [], True
    for tracker, mode in ways():
        pairs = []
        for _ in range(counts["pairs"]):
            with told_to(mode):
                each = {logger: trained(logger, counts["steps"]) for logger in draws.sample(["csv", tracker], 2)}
            pairs.append((each["csv"], each[tracker]))
        same = all(plain.rows == told.rows for plain, told in pairs)
        good = good and same
        what = f"{KINDS[tracker].title}{f', a server that {mode}' if mode else ''}"
        rate, cpu = (
            statistics.median(getattr(b, name) / getattr(a, name) for a, b in pairs) for name in ("rate", "cpu")
        )
        end = statistics.median(b.seconds - a.seconds for a, b in pairs)
        words = "every number is the same" if same else "NUMBERS DIFFER"
        speed = f"{100 * (rate - 1):+.1f} % env steps per second, {100 * (cpu - 1):+.1f} % CPU time"
        taken = statistics.median(b.taken / b.seconds for _, b in pairs)
        shortest = min(b.seconds for _, b in pairs)  # of a short training what a tracker does once is more
        good = good and (taken < MOST or shortest < LONG)
        told = f"**{100 * taken:.2f} %** of the training's time in its thread and calls, {end:+.1f} s to the end"
        lines.append(f"{what}: {told}; {speed} (medians of {len(pairs)} pairs); {words}")
        print(lines[-1], flush=True)
    return lines, good


def ways() -> Iterator[tuple[str, Mode | None]]:
    """Each tracker that is installed, W&B with each server."""
    for name, kind in KINDS.items():
        if not kind.package or is_installed(kind.package):
            yield from ((name, mode) for mode in (SERVERS if name == "wandb" else (None,)))


@contextmanager
def told_to(mode: Mode | None) -> Iterator[None]:
    """With a server of this mode for W&B."""
    server: AbstractContextManager[dict[str, str]] = serving_apart(mode) if mode else nullcontext({})
    with server as variables:
        os.environ.update(variables)
        yield


def trained(logger: str, steps: int) -> Trained:
    cpu, began = time.process_time(), time.perf_counter()
    with timed() as taken:
        code = train.command([*WORDS, f"max_timesteps={steps}", f"logger={logger}"])
    cpu, seconds = time.process_time() - cpu, time.perf_counter() - began
    if code:
        raise RuntimeError(f"a training with logger={logger} ended with {code}")
    rows = read_csv(RunDir.find("@last").metrics_csv)
    wall = {name for name, metric in load_metrics().items() if metric.wall_time}
    rate = statistics.median(row[RATE] for row in rows if RATE in row)
    return Trained(rate, cpu, seconds, sum(taken), [{name: row[name] for name in row.keys() - wall} for row in rows])


@contextmanager
def timed() -> Iterator[list[float]]:
    """Seconds of the processor in every call of a courier's, and in its thread, for as long as a block lasts."""
    taken: list[float] = []
    own = {name: getattr(Courier, name) for name in CALLS}

    def clocked(method: Callable[..., None]) -> Callable[..., None]:
        def call(courier: Courier, *told: object) -> None:
            began = time.thread_time()
            try:
                method(courier, *told)
            finally:
                taken.append(time.thread_time() - began)

        return call

    try:
        for name, method in own.items():
            setattr(Courier, name, clocked(method))
        yield taken
    finally:
        for name, method in own.items():
            setattr(Courier, name, method)
