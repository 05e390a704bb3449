"""Whether memory grows: Python's own, allocation by allocation, with the line that holds on to it."""

import gc
import time
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise

from stride.envs_gym.blame import is_users, shown
from stride.envs_gym.check.catalogue import finding
from stride.envs_gym.check.finding import Finding
from stride.envs_gym.check.study import Actor, Study
from stride.envs_gym.check.world import World

WARM, ROUNDS = 2, 5  # rounds that fill caches; that are compared
STEPS = 300  # of a round, which ends in a reset
LEAST = 40  # bytes a step
FEWEST = 20
SEED = 31
SHARE, TRACED = 0.15, 3.0  # of the time; how many times as long a traced step takes, about


def check_memory(study: Study) -> Iterator[Finding]:
    if study.affordable(SHARE, 2 * (WARM + ROUNDS), STEPS, times=TRACED) < FEWEST:
        yield finding("not-checked", "whether memory grows: steps take too long")
        return
    with study.world() as world:
        gc.collect()
        gc.freeze()  # what is there by now, torch alone makes a million objects, is not looked through again
        tracemalloc.start()
        try:
            steps, held, line = _grown(world, SHARE * study.limits.seconds)
        finally:
            tracemalloc.stop()
            gc.unfreeze()
    growth = [(later - before) / steps for before, later in pairwise(held)]
    if min(growth) > LEAST:
        total = sum(growth) / len(growth)
        seen = f"{total:,.0f} bytes more with each step, over {len(growth)} times {steps} steps and a reset{line}"
        yield finding("memory-grows", seen)


def _round(world: World, actor: Actor, steps: int) -> None:
    obs, info = world.reset()
    for _ in range(steps):
        obs, _, terminated, truncated, info = world.step(actor.draw(obs, info))
        if terminated or truncated:
            obs, info = world.reset()
    world.reset()


def _grown(world: World, seconds: float) -> tuple[int, list[int], str]:
    """Steps of a round, bytes held after each, and which line holds most of what came."""
    actor = Actor(world.env.action_space, SEED)
    began = time.monotonic()
    world.reset(SEED)
    _round(world, actor, FEWEST)
    each_step = (time.monotonic() - began) / FEWEST
    steps = max(FEWEST, min(STEPS, int(seconds / (WARM + ROUNDS) / each_step)))
    held = []
    for each in range(WARM + ROUNDS):
        _round(world, actor, steps)
        gc.collect()
        if each >= WARM:
            held.append(tracemalloc.get_traced_memory()[0])
        if each == WARM:
            before = tracemalloc.take_snapshot()
    after = tracemalloc.take_snapshot()
    most = after.compare_to(before, "lineno")
    lines = [(each.traceback[0].filename, each.traceback[0].lineno) for each in most if each.size_diff > 0]
    own = [shown(file, line) for file, line in lines[:10] if is_users(file)]
    return steps, held, f", made in {own[0]}" if own else ""
