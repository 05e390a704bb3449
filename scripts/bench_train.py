"""PPO trainings side by side in one run, taken in turns: the fused engine, eager, and the peers that are installed.

    python scripts/bench_train.py --n-envs 8,256,2048 --threads 2 --json FILE --plot FILE
    python scripts/bench_train.py --env CartPole-v1,Acrobot-v1,Pendulum-v1 --n-envs 256
    python scripts/bench_train.py --pufferlib         PufferLib's setting as well: 4096 envs, one pass, one small net
    python scripts/bench_train.py --solve 20          and train.py CartPole-v1:ppo, from start to solved, seeds 1 to 20
    python scripts/bench_train.py --growth            how the cost grows with worlds, width and threads
    python scripts/bench_train.py --agents dqn,sac    scripts/bench_offpolicy.py, with its options

Ours are whole trainings through the Trainer with every callback; peers are their bare loops on the same work: Stable-
Baselines3, SBX and PureJaxRL's way where they can be imported, CleanRL's way always. Medians of the turns; on a shared
machine only ratios mean something. The limit is what this processor multiplies and adds, measured in the same run.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run as a file from anywhere

from agents.engines.fused_cpu.warm import warm  # noqa: E402
from config.schema import PPOConfig  # noqa: E402
from envs_gym.make import make_envs  # noqa: E402
from scripts import bench_offpolicy  # noqa: E402
from scripts.bench_collect import EPOCHS, machine, setting, stable_baselines, trained  # noqa: E402
from scripts.bench_limit import SIDE, multiply_add_limit  # noqa: E402
from scripts.bench_plot import bars_svg  # noqa: E402
from scripts.peer_cleanrl import seconds as cleanrl_seconds  # noqa: E402
from utils.user_error import UserError  # noqa: E402

MOST_ROWS = 1 << 18  # of a rollout, where the growing worlds are timed
Figures = dict[str, Any]
Contenders = dict[str, Callable[[int], float]]


def main(argv: list[str]) -> int:
    """Exit code."""
    if any(word.startswith("--agents") for word in argv):
        return bench_offpolicy.main(argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw them as an SVG")
    asked = parser.parse_args(argv)
    torch.set_num_threads(asked.threads)
    print(machine(asked.threads), flush=True)
    limit = multiply_add_limit(asked.threads)
    print(f"limit: {limit / 1e9:,.0f} GFLOP/s on {asked.threads} thread(s), products of {SIDE} x {SIDE}", flush=True)
    figures: Figures = {"machine": machine(asked.threads), "limit_flops": limit}
    if asked.growth:
        figures["growth"] = growth(asked.env, asked.n_steps, asked.seconds)
    else:
        figures["tables"] = {}
        for config in settings(asked):
            table = side_by_side(contenders(config, asked.peers), config, asked.seconds, asked.repeats)
            figures["tables"][title(config)] = table
            print(text(config, table, limit), flush=True)
    if asked.solve:
        figures["solve"] = solve(asked.solve)
    figures["peak_memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\npeak memory of this process: {figures['peak_memory_mb']:,.0f} MB")
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if asked.plot and not asked.growth:
        bars = {name: {k: f["median"] for k, f in table.items()} for name, table in figures["tables"].items()}
        asked.plot.write_text(bars_svg("PPO, env steps per second", bars, {"fused_cpu", "eager"}), encoding="utf-8")
    return 0


def bench_setting(env_id: str, n_envs: int, n_steps: int, threads: int) -> PPOConfig:
    """bench_collect's work, with as many rows of metrics as any training has."""
    return replace(setting(env_id, n_envs, n_steps), threads=threads, log_freq_epochs=None)


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
    found: Contenders = {
        engine: lambda count, engine=engine: trained(replace(config, engine=engine), count).seconds  # type: ignore[misc]
        for engine in ("fused_cpu", "eager")
    }
    if not with_peers:
        return found
    sizes = (config.n_envs, config.n_steps, config.n_epochs, config.minibatch_size, config.hidden_dims)
    if find_spec("stable_baselines3"):
        found["sb3, two nets" if config.share_trunk else "sb3"] = lambda count: stable_baselines(config, count)
    if find_spec("sbx") and not config.share_trunk:
        found["sbx"] = sbx_training(config)
    if config.env_id == "CartPole-v1" and not config.share_trunk:
        found["cleanrl style"] = lambda count: cleanrl_seconds(config.env_id, *sizes, count)
        if find_spec("jax"):
            program = import_module("scripts.peer_purejax").Training(*sizes)
            found["purejaxrl style"] = program.seconds
    missing = [name for name, module in (("sbx", "sbx"), ("purejaxrl style", "jax")) if not find_spec(module)]
    if missing:
        print(f"not installed, so left out: {', '.join(missing)}")
    return found


def sbx_training(config: PPOConfig) -> Callable[[int], float]:
    """The same there: seconds of so many iterations more of one training, whose programs are compiled once."""
    sbx, vec_env = import_module("sbx"), import_module("stable_baselines3.common.vec_env")
    envs = vec_env.DummyVecEnv([lambda: gymnasium.make(config.env_id, disable_env_checker=True)] * config.n_envs)
    peer = sbx.PPO("MlpPolicy", envs, n_steps=config.n_steps, batch_size=config.minibatch_size, n_epochs=EPOCHS)

    def seconds(iterations: int) -> float:
        began = time.perf_counter()
        peer.learn(config.rollout_size * iterations, reset_num_timesteps=False)
        return time.perf_counter() - began

    return seconds


def side_by_side(who: Contenders, config: PPOConfig, seconds: float, repeats: int) -> Figures:
    """Env steps per second of each, in turns, and our ratio to the best of the others in the same turn."""
    counts = {}
    for name, run in who.items():
        run(2)  # compiled and warm
        counts[name] = max(2, round(seconds * 4 / run(4)))
        counts[name] = max(2, round(seconds * counts[name] / run(counts[name])))
    rates: dict[str, list[float]] = {name: [] for name in who}
    for _ in range(repeats):
        for name, run in who.items():
            rates[name].append(counts[name] * config.rollout_size / run(counts[name]))
    return {name: {"median": statistics.median(each), "all": each} for name, each in rates.items()}


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
    others = {name: f["median"] for name, f in table.items() if name not in ("fused_cpu", "eager")}
    for name, f in table.items():
        spread = f"{min(f['all']):,.0f} to {max(f['all']):,.0f}"
        share = f"  {f['median'] * flops(config) / limit:5.1%} of the limit" if name == "fused_cpu" else ""
        lines.append(f"  {name:<16} {f['median']:>12,.0f} env steps/s  ({spread}){share}")
    if others:
        best = max(others, key=lambda name: others[name])
        ratios = [a / b for a, b in zip(table["fused_cpu"]["all"], table[best]["all"], strict=True)]
        spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
        lines.append(f"  {'ratio':<16} {statistics.median(ratios):>12.2f} to {best} {spread}")
    return "\n".join(lines)


def solve(seeds: int) -> Figures:
    """train.py as a user runs it, with a warm cache: seconds from the start of the process to its end."""
    command = [sys.executable, str(ROOT / "train.py"), "CartPole-v1:ppo", "-q"]
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="stride-bench-") as folder:
        for seed in range(1, seeds + 1):
            began = time.perf_counter()
            ended = subprocess.run(
                [*command, f"seed={seed}"], env=os.environ | {"STRIDE_RUNS": folder}, capture_output=True, text=True
            )
            seconds, solved = time.perf_counter() - began, ended.stdout.startswith("Solved")
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
        trained(config, 2)
        count = max(2, round(seconds * 2 / trained(config, 2).seconds))
        rate = float(np.median([count * config.rollout_size / trained(config, count).seconds for _ in range(3)]))
        sizes = {"n_envs": n_envs, "n_steps": config.n_steps, "width": width, "threads": threads}
        rows.append({**sizes, "steps_per_second": rate})
        print(f"{n_envs:>8} {config.n_steps:>6} {width:>6} {threads:>8} {rate:>14,.0f}", flush=True)
    return rows


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
