"""Where an iteration of the fused engine goes: kernels, the Python around them, Lightning and the callbacks.

    python scripts/profile_train.py --n-envs 8,256,2048 --threads 1,2

A whole training through the Trainer with every callback; each call is timed from outside, medians over its iterations.
"""

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run as a file from anywhere

from agents.engines.fused_cpu.bind import Bound  # noqa: E402
from agents.engines.fused_cpu.learn import RolloutLearn  # noqa: E402
from agents.engines.fused_cpu.play import FusedPlay  # noqa: E402
from agents.engines.fused_cpu.warm import warm  # noqa: E402
from agents.engines.fused_cpu.worlds import CompiledWorlds  # noqa: E402
from agents.ppo import PPO  # noqa: E402
from config.schema import PPOConfig  # noqa: E402
from envs_gym.make import make_envs  # noqa: E402
from scripts.bench_collect import machine, trained  # noqa: E402
from scripts.bench_train import bench_setting, flops, multiply_add_limit  # noqa: E402

Seconds = dict[str, list[float]]
KERNELS = {"play": (CompiledWorlds, "play_on"), "learn": (Bound, "learn")}
OUTER = {"engine": ((FusedPlay, "collect"), (RolloutLearn, "learn")), "tick": ((PPO, "training_step"),)}


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
            warm(make_envs(config, 1), config.algo_id, config.activation)
            table = profile(config, asked.seconds) | {"limit_flops": limit}
            tables.append(table)
            print(text(config, table), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps({"machine": machine(1), "tables": tables}, indent=2) + "\n", encoding="utf-8")
    return 0


def profile(config: PPOConfig, seconds: float) -> dict[str, Any]:
    """Microseconds of an iteration by where they go, from the begin of one to the begin of the next.

    Medians, so that the iterations in which something is evaluated, saved or written are left out.
    """
    count = max(8, round(seconds * 4 / trained(config, 4).seconds))
    found: Seconds = defaultdict(list)
    with timed(found):
        trained(config, count)
    kernels = {name: _typical(found[name], count) for name in KERNELS}
    engine, tick = (_typical(found[name], count) for name in OUTER)
    whole = statistics.median(b - a for a, b in pairwise(found["began"]))
    parts = kernels | {"engine's Python": engine - sum(kernels.values())}
    parts |= {"agent": tick - engine, "Lightning and callbacks": whole - tick}
    return {
        "n_envs": config.n_envs,
        "threads": config.threads,
        "iteration": whole * 1e6,
        "microseconds": {name: value * 1e6 for name, value in parts.items()},
    }


def _typical(seconds: list[float], iterations: int) -> float:
    """Of an iteration, in which the call is made once or a few times."""
    per = max(1, round(len(seconds) / iterations))
    return statistics.median(sum(seconds[i : i + per]) for i in range(0, len(seconds) - per + 1, per))


@contextmanager
def timed(found: Seconds) -> Iterator[None]:
    """While it lasts, every call of the places above is noted."""
    places = {name: (place,) for name, place in KERNELS.items()} | OUTER
    before = [(owner, name, getattr(owner, name)) for group in places.values() for owner, name in group]
    try:
        for label, group in places.items():
            for owner, name in group:
                setattr(owner, name, _noting(getattr(owner, name), found, label))
        yield
    finally:
        for owner, name, own in before:
            setattr(owner, name, own)


def _noting(call: Callable[..., Any], found: Seconds, label: str) -> Callable[..., Any]:
    @wraps(call)
    def noted(*args: Any) -> Any:
        began = time.perf_counter()
        result = call(*args)
        found[label].append(time.perf_counter() - began)
        if label == "tick":
            found["began"].append(began)
        return result

    return noted


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
    sys.exit(main(sys.argv[1:]))
