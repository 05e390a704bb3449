"""Where a training on the fused engine goes: kernels, the Python around them, the agent, Lightning and the callbacks.

    python -m lab.bench.profile --n-envs 8,256,2048 --threads 1,2        PPO; lab.bench.offpolicy does DQN and SAC

A whole training through the Trainer with every callback; each call is timed from outside. Of PPO told are medians over
the iterations, so that those in which something is evaluated, saved or written are left out; of DQN and SAC shares of
the whole, and the pieces of an update by themselves, on one thread.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from lab.bench.limit import multiply_add_limit
from lab.bench.measure import Place, Span, machine, seconds_of, timed, trained
from lab.bench.train import bench_setting, flops
from stride.agents.base import Agent
from stride.agents.engines.fused_cpu.bind import KERNELS, Bound
from stride.agents.engines.fused_cpu.frame import At
from stride.agents.engines.fused_cpu.kernels import nets, replay
from stride.agents.engines.fused_cpu.kernels.optimizer import adam, reduce_parts
from stride.agents.engines.fused_cpu.learn import ReplayLearn, RolloutLearn
from stride.agents.engines.fused_cpu.play import FusedPlay
from stride.agents.engines.fused_cpu.warm import warm
from stride.agents.engines.fused_cpu.worlds import CompiledWorlds
from stride.commands.usage import parser_of
from stride.config.schema import PPOConfig, ReplayConfig
from stride.envs_gym.make import make_envs
from stride.utils import entry
from stride.utils.durable_file import write_json

Places = dict[str, tuple[Place, ...]]
OUTER: Places = {
    "engine": ((FusedPlay, "collect"), (RolloutLearn, "learn"), (ReplayLearn, "learn")),
    "tick": ((Agent, "training_step"),),
}
ROLLOUT: Places = {"play": ((CompiledWorlds, "play_on"),), "learn": ((Bound, "learn"),)}
REPLAY: Places = {"kernels": ((Bound, "run"), (replay, "draw"), (nets, "turn"))}  # not inside one another
CALLS = 30  # of each piece of an update


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--env", default="CartPole-v1", metavar="ID", help="a compiled environment")
    parser.add_argument("--n-envs", default="8,256,2048", metavar="N[,N...]")
    parser.add_argument("--n-steps", type=int, default=128, metavar="N", help="steps of a rollout")
    parser.add_argument("--threads", default="1,2", metavar="N[,N...]")
    parser.add_argument("--seconds", type=float, default=4.0, metavar="S", help="length of one training")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    asked = parser.parse_args(argv)
    tables = []
    for threads in map(int, asked.threads.split(",")):
        limit = multiply_add_limit(threads)
        for n_envs in map(int, asked.n_envs.split(",")):
            config = replace(bench_setting(asked.env, n_envs, asked.n_steps, threads), engine="fused_cpu")
            warm(make_envs(config, 1), config.algo_id, config.activation)  # compiled before any clock runs
            table = iterations(config, asked.seconds) | {"limit_flops": limit}
            tables.append(table)
            print(text(config, table), flush=True)
    if asked.json:
        write_json(asked.json, {"machine": machine(1), "tables": tables})
    return 0


def iterations(config: PPOConfig, seconds: float) -> dict[str, Any]:
    """Microseconds of an iteration of PPO by where they go, from the begin of one to the begin of the next."""
    count = max(8, round(seconds * 4 / seconds_of(config, 4)))
    with timed(ROLLOUT | OUTER) as spans:
        seconds_of(config, count)
    kernels = {name: _of_an_iteration(spans[name], count) for name in ROLLOUT}
    engine, tick = (_of_an_iteration(spans[name], count) for name in OUTER)
    whole = statistics.median(b - a for a, b in pairwise(span.began for span in spans["tick"]))
    parts = kernels | {"engine's Python": engine - sum(kernels.values())}
    parts |= {"agent": tick - engine, "Lightning and callbacks": whole - tick}
    return {
        "n_envs": config.n_envs,
        "threads": config.threads,
        "iteration": whole * 1e6,
        "microseconds": {name: value * 1e6 for name, value in parts.items()},
    }


def _of_an_iteration(spans: Sequence[Span], count: int) -> float:
    """Seconds of an iteration, in which the call is made once or a few times."""
    per = max(1, round(len(spans) / count))
    seconds = [span.seconds for span in spans]
    return statistics.median(sum(seconds[i : i + per]) for i in range(0, len(seconds) - per + 1, per))


def text(config: PPOConfig, table: dict[str, Any]) -> str:
    rate = config.rollout_size / table["iteration"] * 1e6
    share = rate * flops(config) / table["limit_flops"]
    lines = [
        f"\n{config.env_id}, {config.n_envs} envs x {config.n_steps} steps, {table['threads']} thread(s): "
        f"{rate:,.0f} env steps/s, {share:.0%} of {table['limit_flops'] / 1e9:,.0f} GFLOP/s"
    ]
    for name, value in table["microseconds"].items():
        lines.append(f"  {name:<24} {value:>12,.0f} us {value / table['iteration']:>7.1%}")
    return "\n".join(lines)


def whole_training(config: ReplayConfig) -> dict[str, dict[str, float]]:
    """Of a whole training by DQN or SAC the shares of its seconds, and microseconds of an update."""
    with timed(REPLAY | OUTER) as spans:
        agent, elapsed = trained(config)
    kernels, engine, tick = (sum(span.seconds for span in spans[name]) for name in REPLAY | OUTER)
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


if __name__ == "__main__":
    entry.run(main)
