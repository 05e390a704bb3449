"""Where a training of DQN or SAC on the fused engine goes: for lab.bench.offpolicy.

Calls are timed from outside over one whole training; the pieces of an update by themselves, on one thread.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from agents.base import Agent
from agents.engines.fused_cpu.bind import KERNELS, Bound
from agents.engines.fused_cpu.frame import At
from agents.engines.fused_cpu.kernels import nets, replay
from agents.engines.fused_cpu.kernels.optimizer import adam, reduce_parts
from agents.engines.fused_cpu.learn import ReplayLearn
from agents.engines.fused_cpu.play import FusedPlay
from config.schema import ReplayConfig
from lab.bench.measure import Place, timed, trained

PLACES: dict[str, tuple[Place, ...]] = {  # each inside the next; kernels are not inside one another
    "kernels": ((Bound, "run"), (replay, "draw"), (nets, "turn")),
    "engine": ((FusedPlay, "collect"), (ReplayLearn, "learn")),
    "tick": ((Agent, "training_step"),),
}
CALLS = 30  # of each piece


def profile(config: ReplayConfig) -> dict[str, dict[str, float]]:
    """Of a whole training on the fused engine the shares of its seconds, and microseconds of an update."""
    with timed(PLACES) as found:
        agent, elapsed = trained(config)
    kernels, engine, tick = (sum(span.seconds for span in found[place]) for place in PLACES)
    shares = {
        "kernels": kernels,
        "Python around them": engine - kernels,
        "the agent": tick - engine,
        "Lightning, callbacks, begin and end": elapsed - tick,
    }
    return {"shares": {name: value / elapsed for name, value in shares.items()}, "update_us": pieces(agent)}


def pieces(agent: Agent) -> dict[str, float]:
    """Medians on one thread; the agent's moments are spoilt."""
    assert isinstance(agent.engine.learn, ReplayLearn)
    bound, memory = agent.engine.learn.bound, agent.memory
    table, address = bound.frame.table, bound.frame.address
    table[At.THREADS] = 1
    size, segments = int(table[At.MINIBATCH]), range(int(table[At.SEGMENTS]))
    list(bound.draws(1, agent.live.gamma))
    still = np.array([1.0, 0.0, 1.0, 1.0])  # a step of no length

    def each(kernel: Callable[..., object], numbers: range, *more: int) -> None:
        for number in numbers:
            kernel(address, number, *more)

    gradient = KERNELS[agent.config.algo_id][At.GRADIENT_PART]
    calls: dict[str, Callable[[], object]] = {
        "drawing": partial(replay.draw, address, memory.written, memory.rows),
        "transposes": partial(each, nets.turn, range(int(table[At.MOVING])), 0, 1),
        "gradient": partial(gradient, address, 0, 0, 0, 0, size),
        "sums of parts": partial(each, reduce_parts, segments),
        "Adam": partial(each, adam, segments, still.ctypes.data),
    }
    return {name: 1e6 * _typical(call) for name, call in calls.items()}


def _typical(call: Callable[[], object]) -> float:
    seconds = []
    for _ in range(CALLS):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)
