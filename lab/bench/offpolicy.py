"""DQN and SAC beside Stable-Baselines3 (and SBX where it is installed): the same settings, one run, taken in turns.

    python -m lab.bench.offpolicy --agents dqn,sac --json figures.json --plot figures.svg

Whole trainings are timed, from the first env step on, ours with callbacks and the closing checkpoint; peers run with as
many threads as we and with one. A short first turn warms everything up and is not counted. Medians; on a shared machine
only ratios mean something. The limit is what this processor multiplies and adds, measured in the same run. A line
on stderr tells of each training.
"""

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lab.bench import peers
from lab.bench.limit import SIDE, multiply_add_limit
from lab.bench.measure import OURS, Engine, Figures, machine, median_of, trained
from lab.bench.plot import bars_svg
from lab.bench.profile import whole_training
from stride.agents.engines.fused_cpu.warm import warm
from stride.commands.usage import parser_of
from stride.config.loader import load_config
from stride.config.schema import ReplayConfig
from stride.envs_gym.make import make_envs
from stride.utils import entry
from stride.utils.durable_file import write_json
from stride.utils.user_error import UserError

VARIANTS = {"dqn": ("CartPole-v1", 20_000), "sac": ("Pendulum-v1", 1_000)}  # env steps of one timed training
PEERS = {"sb3": peers.SB3, "sbx": peers.SBX}
WARMING = 100  # env steps with updates, at least
PASSES = {"dqn": 4, "sac": 16}  # products of batch x net per update: forward 1, backward 2 (1 where weights are frozen)


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = parser_of(__doc__)
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
    figures: Figures = {"machine": machine(asked.threads, *PEERS.values()), "limit_flops": limit}
    print(figures["machine"], flush=True)
    print(f"limit: {limit / 1e9:,.0f} GFLOP/s on {asked.threads} thread(s), products of {SIDE} x {SIDE}", flush=True)
    for name in agents:
        config = setting(name, asked.steps, asked.threads)
        warm(make_envs(config, 1), config.algo_id, config.activation)  # compiled before any clock runs
        figures[name] = side_by_side(config, asked.repeats, asked.minutes / len(agents))
        figures[name]["of_limit"] = figures[name]["flops"] / limit
        figures[name]["profile"] = whole_training(replace(config, engine=OURS[0]))
        print(text(name, figures[name]), flush=True)
    if asked.json:
        write_json(asked.json, figures)
    if asked.plot:
        groups = {f"{name} on {VARIANTS[name][0]}": figures[name]["env_steps_per_second"] for name in agents}
        asked.plot.write_text(
            bars_svg("Off-policy training, env steps per second", groups, set(OURS)), encoding="utf-8"
        )
    return 0


def setting(name: str, steps: int | None, threads: int) -> ReplayConfig:
    """The shipped variant, shortened, with nothing that a peer does not do as well."""
    env_id, usual = VARIANTS[name]
    words = [f"max_timesteps={steps or usual}", "eval_freq_epochs=null", "test_episodes=0", f"threads={threads}"]
    config = load_config(env_id, name, [*words, "early_stop_on_eval_threshold=false"])
    assert isinstance(config, ReplayConfig)
    return config


def side_by_side(config: ReplayConfig, repeats: int, minutes: float) -> Figures:
    """Rates of every contender, the ratio to the best peer of each turn, and where our time went.

    At least one turn; after that only what is likely to end within so many minutes.
    """
    shares: list[dict[str, float]] = []
    runs: dict[str, Callable[[ReplayConfig], float]] = {
        engine: partial(ours, engine=engine, shares=shares) for engine in OURS
    }
    for peer, module in PEERS.items():
        for threads in sorted({config.torch_threads, 1}) if find_spec(module) else ():
            name = f"{peer}, {threads} thread{'s' if threads > 1 else ''}"
            runs[name] = partial(peers.off_policy, module=module, threads=threads)
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
    if others := [name for name in runs if name not in OURS]:
        best = [min(all_) for all_ in zip(*(seconds[name] for name in others), strict=True)]
        figures["ratio"] = median_of([peer / mine for peer, mine in zip(best, seconds[OURS[0]], strict=True)])
    return figures


def ours(config: ReplayConfig, engine: Engine, shares: list[dict[str, Any]]) -> float:
    """Seconds of a training, and where they went."""
    agent, elapsed = trained(replace(config, engine=engine))
    parts = {name: seconds / elapsed for name, seconds in agent.seconds.items()}
    own = {"engine": engine, "updates": agent.progress["updates"]}
    shares.append({**parts, "rest": 1 - sum(parts.values()), **own})
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
    entry.run(main)
