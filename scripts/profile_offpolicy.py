"""Where a training of DQN or SAC on the fused engine goes: for scripts/bench_offpolicy.py.

Calls are timed from outside over one whole training; the pieces of an update by themselves, on one thread.
"""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any

import numpy as np

from agents.base import Agent
from agents.engines.fused_cpu.bind import KERNELS, Bound
from agents.engines.fused_cpu.frame import At
from agents.engines.fused_cpu.kernels import nets, replay
from agents.engines.fused_cpu.kernels.optimizer import adam, reduce_parts
from agents.engines.fused_cpu.learn import ReplayLearn
from agents.engines.fused_cpu.play import FusedPlay

PLACES: dict[str, tuple[tuple[Any, str], ...]] = {  # each inside the next; kernels are not inside one another
    "kernels": ((Bound, "run"), (replay, "draw"), (nets, "turn")),
    "engine": ((FusedPlay, "collect"), (ReplayLearn, "learn")),
    "tick": ((Agent, "training_step"),),
}
CALLS = 30  # of each piece
Trained = Callable[[], tuple[Agent, float]]


def profile(train: Trained) -> dict[str, dict[str, float]]:
    """`train` does a whole training on the fused engine: the shares of its seconds, and microseconds of an update."""
    with timed() as spent:
        agent, elapsed = train()
    kernels, engine, tick = (spent[place] for place in PLACES)
    shares = {
        "kernels": kernels,
        "Python around them": engine - kernels,
        "the agent": tick - engine,
        "Lightning, callbacks, begin and end": elapsed - tick,
    }
    assert isinstance(agent.engine.learn, ReplayLearn)
    return {"shares": {name: value / elapsed for name, value in shares.items()}, "update_us": pieces(agent)}


@contextmanager
def timed() -> Iterator[Counter[str]]:
    """While it lasts, seconds spent in the places above."""
    spent: Counter[str] = Counter()
    before = [(owner, name, getattr(owner, name)) for group in PLACES.values() for owner, name in group]
    try:
        for label, group in PLACES.items():
            for owner, name in group:
                setattr(owner, name, _adding(getattr(owner, name), spent, label))
        yield spent
    finally:
        for owner, name, own in before:
            setattr(owner, name, own)


def _adding(call: Callable[..., Any], spent: Counter[str], label: str) -> Callable[..., Any]:
    @wraps(call)
    def added(self: Any, *args: Any, dataloader_iter: Any = None) -> Any:
        began = time.perf_counter()
        answer = call(self, *args) if dataloader_iter is None else call(self, dataloader_iter)
        spent[label] += time.perf_counter() - began  # type: ignore[assignment]  # seconds are counted, not calls
        return answer

    return added


def pieces(agent: Any) -> dict[str, float]:
    """Medians on one thread; the agent's moments are spoilt."""
    bound, memory = agent.engine.learn.bound, agent.memory
    table, address = bound.frame.table, bound.frame.address
    table[At.THREADS] = 1
    size, segments = int(table[At.MINIBATCH]), range(int(table[At.SEGMENTS]))
    list(bound.draws(1, agent.live.gamma))
    still = np.array([1.0, 0.0, 1.0, 1.0])  # a step of no length

    def each(kernel: Any, numbers: range, *more: Any) -> None:
        for number in numbers:
            kernel(address, number, *more)

    gradient = KERNELS[agent.config.algo_id][At.GRADIENT_PART]
    calls: dict[str, Callable[[], Any]] = {
        "drawing": partial(replay.draw, address, memory.written, memory.rows),
        "transposes": partial(each, nets.turn, range(int(table[At.MOVING])), 0, 1),
        "gradient": partial(gradient, address, 0, 0, 0, 0, size),
        "sums of parts": partial(each, reduce_parts, segments),
        "Adam": partial(each, adam, segments, still.ctypes.data),
    }
    return {name: 1e6 * _typical(call) for name, call in calls.items()}


def _typical(call: Callable[[], Any]) -> float:
    seconds = []
    for _ in range(CALLS):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)
