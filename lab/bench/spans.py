"""Where a training by PPO on the fused engine goes: for lab.bench.train.

Each call is timed from outside. Told are medians over the iterations, so that those in which something is evaluated,
saved or written are left out.
"""

import statistics
from collections.abc import Sequence
from itertools import pairwise

from lab.bench.measure import Place, Span, lasting, timed, trained
from stride.agents.base import Agent
from stride.agents.engines.fused_cpu.bind import Bound
from stride.agents.engines.fused_cpu.learn import RolloutLearn
from stride.agents.engines.fused_cpu.play import CompiledWorlds, FusedPlay
from stride.config.schema import PPOConfig

Places = dict[str, tuple[Place, ...]]
OUTER: Places = {"engine": ((FusedPlay, "collect"), (RolloutLearn, "learn")), "tick": ((Agent, "training_step"),)}
ROLLOUT: Places = {"play": ((CompiledWorlds, "play_on"),), "learn": ((Bound, "learn"),)}


def iterations(config: PPOConfig, count: int) -> dict[str, float]:
    """Microseconds of an iteration by where they go, from the begin of one to the begin of the next."""
    with timed(ROLLOUT | OUTER) as spans:
        trained(lasting(config, count))
    parts = {name: _of_an_iteration(spans[name], count) for name in ROLLOUT}
    engine, tick = (_of_an_iteration(spans[name], count) for name in OUTER)
    whole = statistics.median(b - a for a, b in pairwise(span.began for span in spans["tick"]))
    parts |= {"engine's Python": engine - sum(parts.values()), "agent": tick - engine}
    parts["Lightning and callbacks"] = whole - tick
    return {name: value * 1e6 for name, value in parts.items()}


def _of_an_iteration(spans: Sequence[Span], count: int) -> float:
    """Seconds of an iteration, in which the call is made once or a few times."""
    per = max(1, round(len(spans) / count))
    seconds = [span.seconds for span in spans]
    return statistics.median(sum(seconds[i : i + per]) for i in range(0, len(seconds) - per + 1, per))
