"""DQN and SAC beside Stable-Baselines3 (and SBX where it is installed): the same settings, one run, taken in turns.

    python scripts/bench_offpolicy.py --agents dqn,sac --json figures.json --plot figures.svg

Whole trainings are timed, from the first env step on, ours with callbacks and the closing checkpoint; peers run with as
many threads as we and with one. A short first turn warms everything up and is not counted. Medians; on a shared machine
only ratios mean something. The limit is what this processor multiplies and adds, measured in the same run. A line
on stderr tells of each training.
"""

import argparse
import importlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium
import torch
from torch import nn

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run as a file from anywhere

from agents.algorithms import build_agent  # noqa: E402
from agents.base import Agent  # noqa: E402
from agents.engines.fused_cpu.warm import warm  # noqa: E402
from config.loader import load_config  # noqa: E402
from config.schedule import Schedule  # noqa: E402
from config.schema import DQNConfig, ReplayConfig, SACConfig  # noqa: E402
from envs_gym.make import make_envs  # noqa: E402
from report.metrics_csv import MetricsCsv  # noqa: E402
from scripts.bench_collect import machine  # noqa: E402
from scripts.bench_limit import SIDE, multiply_add_limit  # noqa: E402
from scripts.bench_plot import bars_svg  # noqa: E402
from scripts.profile_offpolicy import profile  # noqa: E402
from trainer_callbacks.session import fit  # noqa: E402
from utils.run_dir import RunDir  # noqa: E402
from utils.user_error import UserError  # noqa: E402

VARIANTS = {"dqn": ("CartPole-v1", 20_000), "sac": ("Pendulum-v1", 1_000)}  # env steps of one timed training
PEERS = {"sb3": "stable_baselines3", "sbx": "sbx"}
OURS = ("fused_cpu", "eager")
WARMING = 100  # env steps with updates, at least
PASSES = {"dqn": 4, "sac": 16}  # products of batch x net per update: forward 1, backward 2 (1 where weights are frozen)
Figures = dict[str, Any]


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", default="dqn,sac", metavar="A[,A]", help="dqn on CartPole, sac on Pendulum")
    parser.add_argument("--steps", type=int, metavar="N", help="env steps of one training (default 20,000 and 1,000)")
    parser.add_argument("--repeats", type=int, default=3, metavar="N", help="counted turns, where there is time")
    parser.add_argument("--minutes", type=float, default=4.5, metavar="M", help="for everything, about")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="CPU threads, for all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw them as an SVG")
    asked = parser.parse_args(argv)
    agents = asked.agents.split(",")
    if wrong := [name for name in agents if name not in VARIANTS]:
        raise UserError(f"--agents takes {' and '.join(VARIANTS)}, not {wrong[0]!r}")
    limit = multiply_add_limit(asked.threads)
    figures: Figures = {"machine": machine(asked.threads), "limit_flops": limit}
    print(figures["machine"], flush=True)
    print(f"limit: {limit / 1e9:,.0f} GFLOP/s on {asked.threads} thread(s), products of {SIDE} x {SIDE}", flush=True)
    for name in agents:
        config = setting(name, asked.steps, asked.threads)
        warm(make_envs(config, 1), config.algo_id, config.activation)
        figures[name] = side_by_side(config, asked.repeats, asked.minutes / len(agents))
        figures[name]["of_limit"] = figures[name]["flops"] / limit
        figures[name]["profile"] = profile(lambda config=config: trained(replace(config, engine=OURS[0])))  # type: ignore[misc]
        print(text(name, figures[name]), flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if asked.plot:
        groups = {f"{name} on {VARIANTS[name][0]}": figures[name]["env_steps_per_second"] for name in agents}
        asked.plot.write_text(
            bars_svg("Off-policy training, env steps per second", groups, set(OURS)), encoding="utf-8"
        )
    return 0


def setting(name: str, steps: int | None, threads: int) -> ReplayConfig:
    """The shipped variant, shortened, with nothing that a peer does not do as well."""
    env_id, usual = VARIANTS[name]
    words = [f"max_timesteps={steps or usual}", "eval_freq_epochs=null", "early_stop_on_eval_threshold=false"]
    config = load_config(env_id, name, [*words, f"threads={threads}"])
    assert isinstance(config, ReplayConfig)
    return config


def side_by_side(config: ReplayConfig, repeats: int, minutes: float) -> Figures:
    """Rates of every contender, the ratio to the best peer of each turn, and where our time went.

    At least one turn; after that only what is likely to end within so many minutes.
    """
    shares: list[dict[str, float]] = []
    runs: dict[str, Callable[[ReplayConfig], float]] = {
        engine: lambda config, engine=engine: ours(replace(config, engine=engine), shares)  # type: ignore[misc]
        for engine in OURS
    }
    for peer, module in PEERS.items():
        for threads in sorted({config.threads, 1}) if find_spec(module) else ():
            name = f"{peer}, {threads} thread{'s' if threads > 1 else ''}"
            runs[name] = lambda config, module=module, threads=threads: theirs(config, module, threads)  # type: ignore[misc]
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    short = replace(config, max_timesteps=config.learning_starts + max(WARMING, 2 * config.train_freq))
    end, length = time.monotonic() + 60 * minutes, 0.0
    for turn in range(repeats + 1):
        began = time.monotonic()
        if turn > 1 and began + length > end:
            print(f"{config.algo_id}: no time for turn {turn}", file=sys.stderr, flush=True)
            break
        for name, run in runs.items():
            elapsed = run(config if turn else short)
            seconds[name] += [elapsed] if turn else []
            told = f"turn {turn} of {repeats}" if turn else "warming up"
            print(f"{config.algo_id}, {told}, {name}: {elapsed:.1f} s", file=sys.stderr, flush=True)
        length = time.monotonic() - began
    medians = {name: statistics.median(all_) for name, all_ in seconds.items()}
    rates = {name: config.max_timesteps / each for name, each in medians.items()}
    figures: Figures = {"env_steps_per_second": rates, "seconds": seconds}
    figures["shares"] = [share for share in shares if share["engine"] == OURS[0]][1:]
    updates = figures["shares"][-1]["updates"]
    figures["updates_per_second"] = {name: updates / each for name, each in medians.items()}
    figures["flops"] = flops(config) * figures["updates_per_second"][OURS[0]]
    if peers := [name for name in runs if name not in OURS]:
        best = [min(all_) for all_ in zip(*(seconds[name] for name in peers), strict=True)]
        ratios = [peer / mine for peer, mine in zip(best, seconds[OURS[0]], strict=True)]
        figures["ratio"] = {"median": statistics.median(ratios), "all": ratios}
    return figures


def ours(config: ReplayConfig, shares: list[dict[str, Any]]) -> float:
    """Seconds of a training, and where they went."""
    agent, elapsed = trained(config)
    parts = {name: seconds / elapsed for name, seconds in agent.seconds.items()}
    own = {"engine": config.engine, "updates": agent.progress["updates"]}
    shares.append({**parts, "rest": 1 - sum(parts.values()), **own})
    return elapsed


def trained(config: ReplayConfig) -> tuple[Agent, float]:
    """An agent after train.py's own `fit` in a temporary run folder, and its seconds."""
    torch.set_num_threads(config.threads)
    agent = build_agent(config, make_envs(config, config.n_envs))
    with tempfile.TemporaryDirectory(prefix="stride-bench-") as folder:
        run = RunDir(Path(folder))
        run.checkpoints.mkdir()
        began = time.perf_counter()
        fit(config, agent, None, run, [MetricsCsv(run.metrics_csv)])
        return agent, time.perf_counter() - began


def theirs(config: ReplayConfig, module: str, threads: int) -> float:
    """Seconds of the same training there: one plain environment, no Monitor, no checker, no progress bar."""
    torch.set_num_threads(threads)
    library, vec_env = importlib.import_module(module), importlib.import_module("stable_baselines3.common.vec_env")
    envs = vec_env.DummyVecEnv([lambda: gymnasium.make(config.env_id, disable_env_checker=True)] * config.n_envs)
    lr = config.policy_lr
    assert not isinstance(lr, Schedule)
    common: dict[str, Any] = {
        "learning_rate": lr, "buffer_size": config.buffer_size, "batch_size": config.batch_size,
        "learning_starts": config.learning_starts, "train_freq": config.train_freq, "gamma": config.gamma,
        "gradient_steps": config.gradient_steps, "seed": config.seed,
        "policy_kwargs": {"net_arch": [*config.hidden_dims]},
    }  # fmt: skip
    if module == "stable_baselines3":
        common["device"] = "cpu"
        common["policy_kwargs"]["activation_fn"] = nn.ReLU
    if isinstance(config, DQNConfig):
        explored = config.epsilon if isinstance(config.epsilon, Schedule) else Schedule("linear", 1.0, config.epsilon)
        common |= {"target_update_interval": config.target_freq, "exploration_fraction": explored.end}
        peer = library.DQN("MlpPolicy", envs, exploration_final_eps=explored.end_value, **common)
    else:
        assert isinstance(config, SACConfig)
        peer = library.SAC("MlpPolicy", envs, tau=config.tau, ent_coef="auto", **common)
    began = time.perf_counter()
    peer.learn(config.max_timesteps)
    elapsed = time.perf_counter() - began
    envs.close()
    return elapsed


def flops(config: ReplayConfig) -> float:
    """Of one update, the hidden layers alone."""
    inside = sum(a * b for a, b in zip(config.hidden_dims, config.hidden_dims[1:], strict=False))
    return 2.0 * PASSES[config.algo_id] * config.batch_size * inside


def text(name: str, figures: Figures) -> str:
    share = figures["shares"][-1]
    lines = ["", f"{name} on {VARIANTS[name][0]}, whole trainings"]
    for who, rate in figures["env_steps_per_second"].items():
        lines.append(f"  {who:<16} {rate:>10,.0f} env steps/s {figures['updates_per_second'][who]:>10,.0f} updates/s")
    if "ratio" in figures:
        every = figures["ratio"]["all"]
        lines.append(f"  {'ratio':<16} {figures['ratio']['median']:>10.2f} ({min(every):.2f} to {max(every):.2f})")
    where = f"collect {share['collect']:.0%}, learn {share['learn']:.0%}, rest {share['rest']:.0%}"
    lines.append(f"  of {OURS[0]:<13} {where}; {figures['of_limit']:.0%} of the limit, in whole trainings")
    parts, pieces = figures["profile"]["shares"], figures["profile"]["update_us"]
    lines.append(f"  {'its seconds':<18} " + ", ".join(f"{part} {value:.1%}" for part, value in parts.items()))
    each = ", ".join(f"{piece} {value:,.0f}" for piece, value in pieces.items())
    lines.append(f"  {'an update, us':<18} {each} (one thread)")
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
