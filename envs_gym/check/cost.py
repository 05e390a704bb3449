"""check-env's tests of speed and memory: how long a step takes, do worker processes help, does memory grow."""

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

WORLDS = 8  # environments of the training that is estimated
ECHO_COUNT = 100  # round trips to another process that are measured
WORKER_COST = 0.3  # what each further worker costs the waiting process, as a fraction of a round trip
SLOW_SPEED, VERY_SLOW_SPEED = 1000.0, 100.0  # steps a second; below these is a note, a warning
MAX_RESET_RATIO = 2.0  # time of all resets / time of all steps; above this is a finding

WARM_ROUNDS, ROUNDS = 2, 5  # rounds that fill caches; rounds that are compared
MAX_STEPS, MIN_STEPS = 300, 20  # steps of a round, which ends in a reset
STEP_BYTES, ROUND_BYTES = 40, 1_800  # growth that is no finding: bytes a step, and bytes a round (caches, threads)
SEED = 31
TIME_FRACTION, TRACED_SLOWDOWN = 0.15, 3.0  # of the check's time; time of a step under tracemalloc / of a usual one


def check_cost(study: Study) -> Findings:
    """Measure a call to another process, estimate the best number of workers, and report slow steps and resets."""
    measurements = study.measurements
    step_us = measurements.step_us
    reset_us = measurements.reset_us
    speed = measurements.steps_per_second
    if step_us is None or reset_us is None or speed is None:
        return
    workers = ""
    if study.echo is not None:
        measurements.round_trip_us = 1e6 * statistics.median(study.echo() for _ in range(ECHO_COUNT))
        measurements.workers, times = best_workers(step_us, measurements.round_trip_us, cores())
        measurements.workers_times = times
        if measurements.workers:
            workers = f", {WORLDS} environments in {measurements.workers} processes: {times:.1f} times as many"
    if speed < SLOW_SPEED:
        evidence = f"{speed:,.0f} steps a second; a million takes {duration(1e6 / speed)}{workers}"
        yield finding("slow-step", evidence, "" if speed < VERY_SLOW_SPEED else NOTE)
    reset_us_per_step = reset_us * max(1, measurements.episodes) / max(1, measurements.steps)
    if measurements.episodes and reset_us_per_step > MAX_RESET_RATIO * step_us:
        time_fraction = reset_us_per_step / (reset_us_per_step + step_us)
        yield finding("slow-reset", f"a reset takes {reset_us / 1000:.3g} ms: {time_fraction:.0%} of all time")


def best_workers(step_us: float, trip_us: float, processors: int) -> tuple[int, float]:
    """Return the number of processes that step 8 worlds the fastest (0: this process alone), and the speed-up by them.

    `step_us`, `trip_us`: microseconds of a step, and of a call to another process and back.
    """
    duration_us = {0: WORLDS * step_us}  # number of workers -> microseconds of a step of all worlds
    for workers in range(2, min(processors, WORLDS) + 1):
        waves = -(-WORLDS // workers)  # worlds that the busiest worker steps one after the other
        duration_us[workers] = waves * step_us + trip_us * (1 + WORKER_COST * (workers - 1))
    best_count = min(duration_us, key=lambda workers: duration_us[workers])
    return best_count, duration_us[0] / duration_us[best_count]


def check_memory(study: Study) -> Findings:
    """Report memory of Python objects that grows with every round of steps."""
    if (
        study.affordable_steps(TIME_FRACTION, 2 * (WARM_ROUNDS + ROUNDS), MAX_STEPS, slowdown=TRACED_SLOWDOWN)
        < MIN_STEPS
    ):
        yield finding("not-checked", "whether memory grows: steps take too long")
        return
    with study.world() as world:
        gc.collect()
        gc.freeze()  # objects that exist already (torch has a million) are left out of later collections
        tracemalloc.start()
        try:
            step_count, held_bytes, line = _play_rounds(world, TIME_FRACTION * study.limits.seconds)
        finally:
            tracemalloc.stop()
            gc.unfreeze()
    growth = [later - earlier for earlier, later in pairwise(held_bytes)]
    if min(growth) > STEP_BYTES * step_count + ROUND_BYTES:
        evidence = f"{statistics.mean(growth) / step_count:,.0f} bytes more with each step"
        yield finding("memory-grows", f"{evidence}, over {len(growth)} times {step_count} steps and a reset{line}")


def _play_rounds(world: CheckedWorld, seconds: float) -> tuple[int, list[int], str]:
    """Play all rounds; return the steps of a round, the bytes held after each, and where most of the growth was made.

    The last is a text for the message with a line of the user's code, ", made in file:line", or "".
    """
    actions = RandomActions(world.env.action_space, SEED)
    start_time = time.monotonic()
    world.reset(SEED)
    _play_round(world, actions, MIN_STEPS)
    step_seconds = (time.monotonic() - start_time) / MIN_STEPS
    step_count = max(MIN_STEPS, min(MAX_STEPS, int(seconds / (WARM_ROUNDS + ROUNDS) / step_seconds)))
    held_bytes = []
    for index in range(WARM_ROUNDS + ROUNDS):
        _play_round(world, actions, step_count)
        gc.collect()
        if index >= WARM_ROUNDS:
            held_bytes.append(tracemalloc.get_traced_memory()[0])
        if index == WARM_ROUNDS:
            snapshot = tracemalloc.take_snapshot()
    for entry in tracemalloc.take_snapshot().compare_to(snapshot, "lineno")[:10]:  # sorted, largest difference first
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
