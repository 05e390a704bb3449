"""The cost of a step: seconds, whether worker processes are worth it, and memory, with the line that keeps it."""

import gc
import statistics
import time
import tracemalloc
from itertools import pairwise

from stride.envs_gym.blame import is_users, shown
from stride.envs_gym.check.finding import NOTE, Findings, finding
from stride.envs_gym.check.study import RandomActions, Study
from stride.envs_gym.check.world import CheckedWorld
from stride.utils.resources import cores
from stride.utils.typography import duration

WORLDS = 8  # of a training
ECHOES = 100
MESSAGE = 0.3  # fraction of a round trip that each further worker costs the process that waits for all of them
SLOW, VERY_SLOW = 1000.0, 100.0  # steps a second
RESETS = 2.0  # resets take this many times as long as steps

WARM, ROUNDS = 2, 5  # rounds that fill caches; rounds that are compared
STEPS = 300  # of a round, which ends in a reset
LEAST, ANYWAY = 40, 1_800  # bytes a step; bytes a round that caches and other threads keep
FEWEST = 20
SEED = 31
FRACTION, TRACED = 0.15, 3.0  # of the time; about how many times as long a traced step takes


def check_cost(study: Study) -> Findings:
    measurements = study.measurements
    step_us = measurements.step_us
    reset_us = measurements.reset_us
    speed = measurements.steps_per_second
    if step_us is None or reset_us is None or speed is None:
        return
    workers = ""
    if study.echo is not None:
        measurements.round_trip_us = 1e6 * statistics.median(study.echo() for _ in range(ECHOES))
        measurements.workers, times = best_workers(step_us, measurements.round_trip_us, cores())
        measurements.workers_times = times
        if measurements.workers:
            workers = f", {WORLDS} environments in {measurements.workers} processes: {times:.1f} times as many"
    if speed < SLOW:
        evidence = f"{speed:,.0f} steps a second; a million takes {duration(1e6 / speed)}{workers}"
        yield finding("slow-step", evidence, "" if speed < VERY_SLOW else NOTE)
    reset_us_per_step = reset_us * max(1, measurements.episodes) / max(1, measurements.steps)
    if measurements.episodes and reset_us_per_step > RESETS * step_us:
        time_fraction = reset_us_per_step / (reset_us_per_step + step_us)
        yield finding("slow-reset", f"a reset takes {reset_us / 1000:.3g} ms: {time_fraction:.0%} of all time")


def best_workers(step_us: float, trip_us: float, processors: int) -> tuple[int, float]:
    """How many processes step 8 worlds the fastest (0: this one), and how many times as fast as this one alone."""
    duration_us = {0: WORLDS * step_us}  # of a step of all worlds, by workers
    for workers in range(2, min(processors, WORLDS) + 1):
        waves = -(-WORLDS // workers)
        duration_us[workers] = waves * step_us + trip_us * (1 + MESSAGE * (workers - 1))
    best_count = min(duration_us, key=lambda workers: duration_us[workers])
    return best_count, duration_us[0] / duration_us[best_count]


def check_memory(study: Study) -> Findings:
    """Report memory of Python that every round of steps adds to."""
    if study.affordable_steps(FRACTION, 2 * (WARM + ROUNDS), STEPS, slowdown=TRACED) < FEWEST:
        yield finding("not-checked", "whether memory grows: steps take too long")
        return
    with study.world() as world:
        gc.collect()
        gc.freeze()  # objects that exist by now, a million of torch's alone, are not looked through again
        tracemalloc.start()
        try:
            step_count, held_bytes, line = _play_rounds(world, FRACTION * study.limits.seconds)
        finally:
            tracemalloc.stop()
            gc.unfreeze()
    growth = [later - earlier for earlier, later in pairwise(held_bytes)]
    if min(growth) > LEAST * step_count + ANYWAY:
        evidence = f"{statistics.mean(growth) / step_count:,.0f} bytes more with each step"
        yield finding("memory-grows", f"{evidence}, over {len(growth)} times {step_count} steps and a reset{line}")


def _play_rounds(world: CheckedWorld, seconds: float) -> tuple[int, list[int], str]:
    """Steps of a round, bytes held after each round, and which line holds most of what was added."""
    actions = RandomActions(world.env.action_space, SEED)
    start_time = time.monotonic()
    world.reset(SEED)
    _play_round(world, actions, FEWEST)
    step_seconds = (time.monotonic() - start_time) / FEWEST
    step_count = max(FEWEST, min(STEPS, int(seconds / (WARM + ROUNDS) / step_seconds)))
    held_bytes = []
    for index in range(WARM + ROUNDS):
        _play_round(world, actions, step_count)
        gc.collect()
        if index >= WARM:
            held_bytes.append(tracemalloc.get_traced_memory()[0])
        if index == WARM:
            snapshot = tracemalloc.take_snapshot()
    for entry in tracemalloc.take_snapshot().compare_to(snapshot, "lineno")[:10]:  # the largest difference first
        origin = entry.traceback[0]
        if entry.size_diff > 0 and is_users(origin.filename):
            return step_count, held_bytes, f", made in {shown(origin.filename, origin.lineno)}"
    return step_count, held_bytes, ""


def _play_round(world: CheckedWorld, actions: RandomActions, step_count: int) -> None:
    observation, info = world.reset()
    for _ in range(step_count):
        observation, _, terminated, truncated, info = world.step(actions.draw(observation, info))
        if terminated or truncated:
            observation, info = world.reset()
    world.reset()
