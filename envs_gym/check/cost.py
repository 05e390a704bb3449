"""What a step costs, and from what cost on worker processes are worth it."""

import statistics
from collections.abc import Iterator

from stride.envs_gym.check.catalogue import finding
from stride.envs_gym.check.finding import NOTE, Finding
from stride.envs_gym.check.study import Study
from stride.utils.resources import cores
from stride.utils.typography import duration

WORLDS = 8  # that a training has
ECHOES = 100
MESSAGE = 0.3  # part of a round trip that each further worker costs whoever waits for all of them
SLOW, VERY_SLOW = 1000.0, 100.0  # steps a second
MILLION = 1e6
RESETS = 2.0  # resets take so many times what steps take


def check_cost(study: Study) -> Iterator[Finding]:
    facts = study.facts
    if facts.step_us is None or facts.steps_per_second is None or facts.reset_us is None:
        return
    if study.echo is not None:
        trips = [study.echo() for _ in range(ECHOES)]
        facts.round_trip_us = 1e6 * statistics.median(trips)
        facts.workers, facts.workers_times = best_workers(facts.step_us, facts.round_trip_us, cores())
    speed = facts.steps_per_second
    if speed < SLOW:
        seen = f"{speed:,.0f} steps a second; a million takes {duration(MILLION / speed)}{_with_workers(study)}"
        yield finding("slow-step", seen, "" if speed < VERY_SLOW else NOTE)
    resets = facts.reset_us * max(1, facts.episodes) / max(1, facts.steps)
    if facts.episodes and resets > RESETS * facts.step_us:
        share = resets / (resets + facts.step_us)
        yield finding("slow-reset", f"a reset takes {facts.reset_us / 1000:.3g} ms: {share:.0%} of all time")


def best_workers(step_us: float, trip_us: float, processors: int) -> tuple[int, float]:
    """How many processes step 8 worlds the fastest (0: this one), and how many times as fast as this one alone."""
    alone = WORLDS * step_us
    taken = {0: alone}
    for workers in range(2, min(processors, WORLDS) + 1):
        waves = -(-WORLDS // workers)
        taken[workers] = waves * step_us + trip_us * (1 + MESSAGE * (workers - 1))
    best = min(taken, key=lambda workers: taken[workers])
    return best, alone / taken[best]


def _with_workers(study: Study) -> str:
    facts = study.facts
    if not facts.workers or facts.workers_times is None:
        return ""
    return f", {WORLDS} worlds in {facts.workers} processes {facts.workers_times:.1f} times as many"
