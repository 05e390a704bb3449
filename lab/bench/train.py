"""PPO trainings side by side in one run, taken in turns: the fused engine, eager, and the peers that are installed.

    python -m lab.bench.train --n-envs 8,256,2048 --threads 2 --json FILE --plot FILE
    python -m lab.bench.train --env CartPole-v1,Acrobot-v1,Pendulum-v1 --n-envs 256
    python -m lab.bench.train --pufferlib         PufferLib's setting as well: 4096 envs, one pass, one small net
    python -m lab.bench.train --solve 20          and train.py CartPole-v1:ppo, from start to solved, seeds 1 to 20
    python -m lab.bench.train --growth            how the cost grows with worlds, width and threads
    python -m lab.bench.train --agents dreamer    an update of Dreamer instead: by size, engine, part and threads

Ours are whole trainings through the Trainer with every callback; peers are their bare loops on the same work: Stable-
Baselines3, SBX and PureJaxRL's way where they can be imported, CleanRL's way always. Medians of the turns; on a shared
machine only ratios mean something. The limit is what this processor multiplies and adds, measured in the same run.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from lab.bench import model, peers
from lab.bench.limit import SIDE, multiply_add_limit
from lab.bench.measure import OURS, Contenders, Figures, machine, rates_in_turns, ratio, seconds_of, setting
from lab.bench.plot import bars_svg
from stride.agents.engines.fused_cpu.warm import warm
from stride.commands.usage import parser_of
from stride.config.schema import PPOConfig
from stride.envs_gym.make import make_envs
from stride.utils import entry
from stride.utils.durable_file import write_json
from stride.utils.provenance import PROJECT

MOST_ROWS = 1 << 18  # of a rollout, where the growing worlds are timed


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--env", default="CartPole-v1", metavar="ID[,ID...]", help="compiled environments")
    parser.add_argument("--n-envs", default="8,256,2048", metavar="N[,N...]", help="one table each")
    parser.add_argument("--n-steps", type=int, default=128, metavar="N", help="steps of a rollout")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="CPU threads, for all")
    parser.add_argument("--seconds", type=float, default=2.0, metavar="S", help="length of one timed training")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="turns")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True, help="others beside us")
    parser.add_argument("--pufferlib", action="store_true", help="one more table: PufferLib's setting of CartPole")
    parser.add_argument("--solve", type=int, default=0, metavar="SEEDS", help="time whole commands until solved, too")
    parser.add_argument("--growth", action="store_true", help="fused_cpu alone over worlds, widths and threads")
    parser.add_argument("--agents", choices=("ppo", "dreamer"), default="ppo", help="whose training")
    parser.add_argument("--updates", type=int, default=15, metavar="N", help="of Dreamer that are timed, of each kind")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw them as an SVG")
    asked = parser.parse_args(argv)
    if asked.agents == "dreamer":
        found = model.compared(asked.updates, asked.threads)
        if asked.json:
            write_json(asked.json, found)
        return 0
    torch.set_num_threads(asked.threads)
    print(machine(asked.threads, peers.SB3), flush=True)
    limit = multiply_add_limit(asked.threads)
    print(f"limit: {limit / 1e9:,.0f} GFLOP/s on {asked.threads} thread(s), products of {SIDE} x {SIDE}", flush=True)
    figures: Figures = {"machine": machine(asked.threads, peers.SB3), "limit_flops": limit}
    if asked.growth:
        figures["growth"] = growth(asked.env, asked.n_steps, asked.seconds)
    else:
        figures["tables"] = {}
        for config in settings(asked):
            table = rates_in_turns(contenders(config, asked.peers), config, asked.seconds, asked.repeats)
            figures["tables"][title(config)] = table
            print(text(config, table, limit), flush=True)
    if asked.solve:
        figures["solve"] = solve(asked.solve)
    figures["peak_memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # KiB on Linux
    print(f"\npeak memory of this process: {figures['peak_memory_mb']:,.0f} MB")
    if asked.json:
        write_json(asked.json, figures)
    if asked.plot and not asked.growth:
        bars = {name: {k: f["median"] for k, f in table.items()} for name, table in figures["tables"].items()}
        asked.plot.write_text(bars_svg("PPO, env steps per second", bars, set(OURS)), encoding="utf-8")
    return 0


def bench_setting(env_id: str, n_envs: int, n_steps: int, threads: int) -> PPOConfig:
    """The shared work, with as many rows of metrics as any training has."""
    return replace(setting(env_id, n_envs, n_steps, threads), log_freq_epochs=None)


def settings(asked: argparse.Namespace) -> Iterator[PPOConfig]:
    """What the tables are of, one after the other."""
    for env_id in asked.env.split(","):
        for width in map(int, asked.n_envs.split(",")):
            yield bench_setting(env_id, width, asked.n_steps, asked.threads)
    if asked.pufferlib:
        config = bench_setting("CartPole-v1", 4096, 64, asked.threads)
        yield replace(config, n_epochs=1, batch_size=32768, hidden_dims=(128,), share_trunk=True)


def title(config: PPOConfig) -> str:
    return f"{config.env_id}, {config.n_envs} x {config.n_steps}" + (", one trunk" if config.share_trunk else "")


def contenders(config: PPOConfig, with_peers: bool) -> Contenders:
    """Name -> seconds of a training of so many iterations."""
    warm(make_envs(config, 1), config.algo_id, config.activation)
    found: dict[str, Callable[[int], float]] = {
        engine: partial(seconds_of, replace(config, engine=engine)) for engine in OURS
    }
    if not with_peers:
        return found
    sizes = (config.n_envs, config.n_steps, config.n_epochs, config.minibatch_size, config.hidden_dims)
    if find_spec(peers.SB3):
        found["sb3, two nets" if config.share_trunk else "sb3"] = partial(peers.ppo, config)
    if find_spec(peers.SBX) and not config.share_trunk:  # it has no shared trunk
        found["sbx"] = peers.sbx_ppo(config)
    if config.env_id == "CartPole-v1" and not config.share_trunk:
        found["cleanrl style"] = partial(peers.cleanrl_seconds, config.env_id, *sizes)
        if find_spec("jax"):
            program = import_module("lab.bench.peer_purejax").Training(*sizes)
            found["purejaxrl style"] = program.seconds
    missing = [name for name, module in (("sbx", peers.SBX), ("purejaxrl style", "jax")) if not find_spec(module)]
    if missing:
        print(f"not installed, so left out: {', '.join(missing)}")
    return found


def flops(config: PPOConfig) -> int:
    """Multiplications and additions of one env step: acting, valuing, and three passes in each epoch."""
    envs = make_envs(config, 1)
    actions, observed = envs.action_space, spaces.flatdim(envs.observation_space)
    outputs = int(actions.n) if isinstance(actions, spaces.Discrete) else spaces.flatdim(actions)
    sizes = (observed, *config.hidden_dims)
    torso, trunks = sum(a * b for a, b in pairwise(sizes)), 1 if config.share_trunk else 2
    forward = 2 * (trunks * torso + sizes[-1] * (outputs + 1))
    return forward + config.n_epochs * (3 * forward - trunks * 2 * sizes[0] * sizes[1])


def text(config: PPOConfig, table: Figures, limit: float) -> str:
    nets = "x".join(map(str, config.hidden_dims))
    lines = [
        f"\n{config.env_id}, {config.n_envs} envs x {config.n_steps} steps, {config.n_epochs} epochs x "
        f"{config.rollout_size // config.minibatch_size} minibatches, "
        f"{'shared' if config.share_trunk else 'separate'} {nets} {config.activation}, "
        f"{config.threads} thread(s)"
    ]
    others = {name: f["median"] for name, f in table.items() if name not in OURS}
    for name, f in table.items():
        least, most = min(f["all"]), max(f["all"])
        share = f"  {f['median'] * flops(config) / limit:5.1%} of the limit" if name == "fused_cpu" else ""
        lines.append(f"  {name:<16} {f['median']:>12,.0f} env steps/s  ({least:,.0f} to {most:,.0f}){share}")
    if others:
        best = max(others, key=lambda name: others[name])
        found = ratio(table["fused_cpu"], table[best])
        least, most = min(found["all"]), max(found["all"])
        lines.append(f"  {'ratio':<16} {found['median']:>12.2f} to {best} ({least:.2f} to {most:.2f})")
    return "\n".join(lines)


def solve(seeds: int) -> Figures:
    """train.py as a user runs it, with a warm cache: seconds from the start of the process to its end."""
    command = [sys.executable, str(PROJECT / "train.py"), "CartPole-v1:ppo", "-q"]
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="stride-bench-") as folder:
        for seed in range(1, seeds + 1):
            began = time.perf_counter()
            ended = subprocess.run(
                [*command, f"seed={seed}"], env=os.environ | {"STRIDE_RUNS": folder}, capture_output=True, text=True
            )
            seconds, solved = time.perf_counter() - began, "result=solved " in ended.stdout
            found.append({"seed": seed, "seconds": seconds, "solved": solved})
            print(f"  seed {seed:>2}: {seconds:5.1f} s, {'solved' if solved else 'not solved'}", flush=True)
    median, count = statistics.median(each["seconds"] for each in found), sum(each["solved"] for each in found)
    print(f"\ntrain.py CartPole-v1:ppo -q: {median:.1f} s (median), {count} of {seeds} seeds solved (475)", flush=True)
    return {"median_seconds": median, "solved": count, "seeds": found}


def growth(env_id: str, n_steps: int, seconds: float) -> list[Figures]:
    """The fused engine alone: env steps per second as the work grows, one row each."""
    rows = []
    shapes = [(n, 64, t) for n in (1, 8, 64, 512, 4096, 65536) for t in (1, 2)]
    shapes += [(256, width, t) for width in (16, 32, 128, 256, 512) for t in (1, 2)]
    print(f"\n{'envs':>8} {'steps':>6} {'width':>6} {'threads':>8} {'env steps/s':>14}")
    for n_envs, width, threads in shapes:
        config = bench_setting(env_id, n_envs, min(n_steps, MOST_ROWS // n_envs), threads)
        config = replace(config, engine="fused_cpu", hidden_dims=(width, width))
        if n_envs == 1:
            warm(make_envs(config, 1), config.algo_id, config.activation)
        seconds_of(config, 2)
        count = max(2, round(seconds * 2 / seconds_of(config, 2)))
        rate = float(np.median([count * config.rollout_size / seconds_of(config, count) for _ in range(3)]))
        sizes = {"n_envs": n_envs, "n_steps": config.n_steps, "width": width, "threads": threads}
        rows.append({**sizes, "steps_per_second": rate})
        print(f"{n_envs:>8} {config.n_steps:>6} {width:>6} {threads:>8} {rate:>14,.0f}", flush=True)
    return rows


if __name__ == "__main__":
    entry.run(main)
