"""Where an iteration of the fused engine goes: kernels, the Python around them, Lightning and the callbacks.

    python -m lab.bench.profile_train --n-envs 8,256,2048 --threads 1,2

A whole training through the Trainer with every callback; each call is timed from outside, medians over its iterations.
"""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from agents.engines.fused_cpu.bind import Bound
from agents.engines.fused_cpu.learn import RolloutLearn
from agents.engines.fused_cpu.play import FusedPlay
from agents.engines.fused_cpu.warm import warm
from agents.engines.fused_cpu.worlds import CompiledWorlds
from agents.ppo import PPO
from config.schema import PPOConfig
from envs_gym.make import make_envs
from lab.bench.limit import multiply_add_limit
from lab.bench.measure import Place, Span, machine, seconds_of, timed
from lab.bench.train import bench_setting, flops
from scripts.usage import parser_of
from utils import entry
from utils.durable_file import write_json

KERNELS: dict[str, tuple[Place, ...]] = {"play": ((CompiledWorlds, "play_on"),), "learn": ((Bound, "learn"),)}
OUTER: dict[str, tuple[Place, ...]] = {
    "engine": ((FusedPlay, "collect"), (RolloutLearn, "learn")),
    "tick": ((PPO, "training_step"),),
}


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
            table = profile(config, asked.seconds) | {"limit_flops": limit}
            tables.append(table)
            print(text(config, table), flush=True)
    if asked.json:
        write_json(asked.json, {"machine": machine(1), "tables": tables})
    return 0


def profile(config: PPOConfig, seconds: float) -> dict[str, Any]:
    """Microseconds of an iteration by where they go, from the begin of one to the begin of the next.

    Medians, so that the iterations in which something is evaluated, saved or written are left out.
    """
    count = max(8, round(seconds * 4 / seconds_of(config, 4)))
    with timed(KERNELS | OUTER) as found:
        seconds_of(config, count)
    kernels = {name: _typical(found[name], count) for name in KERNELS}
    engine, tick = (_typical(found[name], count) for name in OUTER)
    whole = statistics.median(b - a for a, b in pairwise(span.began for span in found["tick"]))
    parts = kernels | {"engine's Python": engine - sum(kernels.values())}
    parts |= {"agent": tick - engine, "Lightning and callbacks": whole - tick}
    return {
        "n_envs": config.n_envs,
        "threads": config.threads,
        "iteration": whole * 1e6,
        "microseconds": {name: value * 1e6 for name, value in parts.items()},
    }


def _typical(spans: Sequence[Span], iterations: int) -> float:
    """Seconds of an iteration, in which the call is made once or a few times."""
    per = max(1, round(len(spans) / iterations))
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


if __name__ == "__main__":
    entry.run(main)
