"""Times trainings in turns, each contender in its own process: the whole call, the training in it, the processor.

A contender is a library or an engine that does the same training. First each one trains untimed, so that its programs
are compiled and its objects made. Then each turn runs all of them, every second turn in the reverse order.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from functools import partial
from multiprocessing import get_context, parent_process
from typing import NamedTuple

import torch

from lab.bench.measure import Figures, median_of
from lab.bench.peers import Inside, Ready
from lab.bench.ratio import ratio_of

Prepare = Callable[[int], Ready]  # number of iterations -> a training that is ready to start
MIN_LENGTH = 0.7  # a timed training may last from 0.7 times the seconds asked for to 1 / 0.7 times
_contenders: dict[str, Prepare] = {}  # in a contender's process: its name -> what prepares its trainings


class Spent(NamedTuple):
    """Seconds of one training."""

    wall: float  # the whole call
    cpu: float
    fit: float  # the training alone, comparable to learn() of a peer
    updates: int  # a number, not seconds; 0 for a peer, whose updates are not counted
    learning: float  # of the updates


class Length(NamedTuple):
    """How long trainings are."""

    warm: int  # iterations of the first, untimed training
    iterations: int = 0  # of a timed training; 0: as many as last `seconds`
    seconds: float = 0.0


Run = Callable[[int], Spent]  # trains for so many iterations


def begin(name: str, prepare: Prepare, threads: int) -> None:
    """Prepare a contender's process; it gets as many cores as threads, because some libraries use all they see."""
    if parent_process() is not None:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    torch.set_num_threads(threads)
    _contenders[name] = prepare


def spent(name: str, iterations: int) -> Spent:
    """Run one timed training in a contender's process."""
    ready = _contenders[name](iterations)
    wall, cpu = time.perf_counter(), time.process_time()
    result = ready.run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    fit, updates, learning = ready.inside(result) if ready.inside else Inside(wall)
    ready.close()
    return Spent(wall, cpu, fit, updates, learning)


def in_turns(
    contenders: Mapping[str, Prepare], steps: int, length: Length, threads: int, turns: int
) -> dict[str, Figures]:
    """Return each contender's figures (`figures_of`) over so many turns; `steps`: env steps of an iteration."""
    with ExitStack() as stack:
        runs: dict[str, Run] = {}
        for name, prepare in contenders.items():
            pool = ProcessPoolExecutor(1, get_context("spawn"), begin, (name, prepare, threads))
            runs[name] = partial(_waited_for, stack.enter_context(pool), name)
        counts = {}
        for name, run in runs.items():
            counts[name] = warmed(run, length)
            print(f"  {name} is ready", flush=True)
        results: dict[str, list[Spent]] = {name: [] for name in runs}
        for turn in range(turns):
            for name in list(runs)[:: -1 if turn % 2 else 1]:
                results[name].append(runs[name](counts[name]))
    return {name: figures_of(results[name], steps * counts[name]) for name in runs}


def _waited_for(pool: ProcessPoolExecutor, name: str, iterations: int) -> Spent:
    return pool.submit(spent, name, iterations).result()


def warmed(run: Run, length: Length) -> int:
    """Train until everything is compiled; return how many iterations a timed training needs to last as asked."""
    run(length.warm)
    count = length.iterations or length.warm
    for _ in range(0 if length.iterations else 4):
        wall = run(count).wall
        if (count == 1 and wall > length.seconds) or MIN_LENGTH < wall / length.seconds < 1 / MIN_LENGTH:
            break
        count = max(1, round(count * length.seconds / wall))
    return count


def figures_of(results: Sequence[Spent], env_steps: int) -> Figures:
    """Return env steps per second and seconds by three clocks: "whole", "fit", "cpu" and "whole_seconds" etc.

    Each is {"median": .., "all": [one for each turn]}; also "update_ms" if updates were counted.
    """
    clocks = {"whole": "wall", "fit": "fit", "cpu": "cpu"}
    rates = {
        name: median_of([env_steps / getattr(spent, clock) for spent in results]) for name, clock in clocks.items()
    }
    seconds = {
        f"{name}_seconds": median_of([getattr(spent, clock) for spent in results]) for name, clock in clocks.items()
    }
    updates = results[0].updates
    update_ms = [1e3 * spent.learning / spent.updates for spent in results if spent.updates]
    return {
        "env_steps": env_steps,
        "updates": updates,
        **rates,
        **seconds,
        **({"update_ms": median_of(update_ms)} if update_ms else {}),
    }


def ratios_of(table: Mapping[str, Figures], ours: str, peer: str) -> Figures:
    """Return ours / peer of the rates by each clock: {"whole": {"median", "low", "high", "turns"}, ..}."""
    return {
        clock: ratio_of(table[ours][clock]["all"], table[peer][clock]["all"])._asdict()
        for clock in ("whole", "fit", "cpu")
    }
