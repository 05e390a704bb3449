"""Times whole trainings in turns: Stride's by each engine, and those of the peers that are installed.

    python -m lab.bench.train                           PPO on CartPole with 8, 256 and 2048 worlds
    python -m lab.bench.train ppo pufferlib --json FILE and PufferLib's setting: 4096 worlds, one pass, one small net
    python -m lab.bench.train dqn sac td3               DQN on CartPole, SAC on Pendulum, TD3 on HalfCheetah
    python -m lab.bench.train pong --threads 1          PPO of Pong from its screen
    python -m lab.bench.train --n-envs 1,64,512 --widths 16,64,256 --without eager,sb,style    how the cost grows
    python -m lab.bench.train dreamer --threads 1       Dreamer on CartPole in three sizes: ms of an update by engine

Each contender has its own process. Stride's are whole calls of stride.train, with every callback and the closing
checkpoint; "fit" is the training in it, without building and loading. Peers are bare loops on the same work, made and
compiled before: Stable-Baselines3, SBX and PureJaxRL's way if they are installed, CleanRL's way always (CleanRL itself
needs a Python before 3.11). Figures are medians of turns, ratios have an interval; on a shared machine only ratios mean
something. The limit is how fast registers multiply and add (limit.py), measured in the same run.
"""

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import torch

from lab.bench import cases, peers
from lab.bench.cases import Case
from lab.bench.limit import limit_of
from lab.bench.measure import OURS, Figures, Place, Span, lasting, machine, trained
from lab.bench.measure import timed as calls_timed
from lab.bench.ratio import MIN_TURNS, Ratio
from lab.bench.turns import Length, in_turns, ratios_of
from stride.agents.base import Agent
from stride.agents.engines.fused_cpu.bind import Bound
from stride.agents.engines.fused_cpu.learn import RolloutLearn
from stride.agents.engines.fused_cpu.play import CompiledWorlds, FusedPlay
from stride.commands.usage import parser_of
from stride.config.schema import Config, PPOConfig
from stride.utils import entry
from stride.utils.durable_file import write_json
from stride.utils.provenance import git_hash
from stride.utils.user_error import UserError, nearest

# name -> functions whose calls are timed; those of ROLLOUT are called inside those of OUTER
Places = dict[str, tuple[Place, ...]]
OUTER: Places = {"engine": ((FusedPlay, "collect"), (RolloutLearn, "learn")), "tick": ((Agent, "training_step"),)}
ROLLOUT: Places = {"play": ((CompiledWorlds, "play_on"),), "learn": ((Bound, "learn"),)}


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("work", nargs="*", metavar="WORK", help=f"of {', '.join(CASES)} (default ppo)")
    parser.add_argument("--env", default="CartPole-v1", metavar="ID[,ID...]", help="compiled environments, for ppo")
    parser.add_argument("--n-envs", default="8,256,2048", metavar="N[,N...]", help="one table each, for ppo")
    parser.add_argument("--widths", default="64", metavar="N[,N...]", help="of two layers, one table each, for ppo")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="CPU threads, for all")
    parser.add_argument("--seconds", type=float, default=2.0, metavar="S", help="length of a timed training of ppo")
    parser.add_argument("--repeats", type=int, default=MIN_TURNS, metavar="N", help="turns")
    parser.add_argument("--without", default="", metavar="WORD[,WORD]", help="leave out who has it in the name: sb3")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    args = parser.parse_args(argv)
    args.work = args.work or ["ppo"]
    if unknown := [word for word in args.work if word not in CASES]:
        raise UserError(f"no work is called {unknown[0]!r}{nearest(unknown[0], CASES)}; there are {', '.join(CASES)}")
    torch.set_num_threads(args.threads)
    figures: Figures = {"machine": machine(args.threads, *peers.PACKAGES), "commit": git_hash(), "tables": {}}
    print(figures["machine"], flush=True)
    if missing := peers.missing():
        print(missing, flush=True)
    limits = [limit_of(count) for count in sorted({1, args.threads})]
    figures["limits"] = [limit._asdict() for limit in limits]
    print("\n".join(f"limit: {limit}" for limit in limits), flush=True)
    for word in args.work:
        for case in CASES[word](args):
            figures["tables"][case.title] = table = timed(case, args)
            print("\n".join(lines_of(case, table, limits[-1].registers)), flush=True)
    if args.json:
        write_json(args.json, figures)
    return 0


def ppo_cases(args: argparse.Namespace) -> Iterator[Case]:
    for env_id in args.env.split(","):
        for n_envs in map(int, args.n_envs.split(",")):
            config = cases.ppo_setting(env_id, n_envs, args.threads)
            for width in map(int, args.widths.split(",")):
                yield cases.ppo_case(replace(config, hidden_dims=(width, width)))


CASES: dict[str, Callable[[argparse.Namespace], Iterator[Case]]] = {
    "ppo": ppo_cases,
    "pufferlib": lambda asked: iter([cases.ppo_case(cases.pufferlib_setting(asked.threads))]),
    "dqn": lambda asked: iter([cases.replay_case("dqn", asked.threads)]),
    "sac": lambda asked: iter([cases.replay_case("sac", asked.threads)]),
    "td3": lambda asked: iter([cases.replay_case("td3", asked.threads, more=("learning_starts=100",))]),
    "pong": lambda asked: iter([cases.pong_case(asked.threads)]),
    "dreamer": lambda asked: cases.dreamer_cases(asked.threads),
}


def timed(case: Case, args: argparse.Namespace) -> Figures:
    """Time a case: figures of all contenders, ratios of Stride's rates to the peers', and parts of Stride's time."""
    first, left_out = next(iter(case.contenders)), [word for word in args.without.split(",") if word]
    names = [name for name in case.contenders if name == first or not any(word in name for word in left_out)]
    contenders = {name: case.contenders[name] for name in names}
    length = Length(case.warm, case.iterations, args.seconds)
    table = in_turns(contenders, case.config.iteration_steps, length, args.threads, args.repeats)
    our_names = [name for name in names if is_ours(name)]
    peer_names = [name for name in names if not is_ours(name)]
    ratios = {name: {peer: ratios_of(table, name, peer) for peer in peer_names} for name in our_names}
    engines = {}
    for engine in OURS:
        if engine in names:
            count = case.iterations or max(8, table[engine]["env_steps"] // case.config.iteration_steps)
            engines[engine] = watched(replace(case.config, engine=engine), count)
    return {"contenders": table, "ratios": ratios, "engines": engines}


def is_ours(name: str) -> bool:
    return name.partition(",")[0] in OURS


def watched(config: Config, count: int) -> Figures:
    """Train `count` iterations and return where the time goes: shares of phases, updates, ms of an update."""
    agent, seconds = trained(lasting(config, count))
    shares = {part: spent / seconds for part, spent in agent.seconds.items() if spent}
    updates = agent.progress["updates"]
    parts = iterations(config, count) if isinstance(config, PPOConfig) and config.engine == "fused_cpu" else {}
    return {
        "shares": shares | {"rest": 1 - sum(shares.values())},
        "updates_an_env_step": updates / (count * config.iteration_steps),
        "update_ms": 1e3 * agent.seconds["learn"] / max(updates, 1),
        "iteration_us": parts,
    }


def iterations(config: PPOConfig, count: int) -> dict[str, float]:
    """Return the microseconds of the parts of one PPO iteration on the fused engine, until the next one begins.

    Each call is timed from outside. Medians leave out the few iterations that evaluate, save or write.
    """
    with calls_timed(ROLLOUT | OUTER) as spans:
        trained(lasting(config, count))
    parts = {name: _of_an_iteration(spans[name], count) for name in ROLLOUT}
    engine, tick = (_of_an_iteration(spans[name], count) for name in OUTER)
    whole = statistics.median(b - a for a, b in pairwise(span.began for span in spans["tick"]))
    parts |= {"engine's Python": engine - sum(parts.values()), "agent": tick - engine}
    parts["Lightning and callbacks"] = whole - tick
    return {name: value * 1e6 for name, value in parts.items()}


def _of_an_iteration(spans: Sequence[Span], count: int) -> float:
    """Return the median seconds that an iteration spends in these calls, of which it makes one or a few."""
    per = max(1, round(len(spans) / count))
    seconds = [span.seconds for span in spans]
    return statistics.median(sum(seconds[i : i + per]) for i in range(0, len(seconds) - per + 1, per))


def lines_of(case: Case, table: Figures, limit: float) -> Iterator[str]:
    """Yield the lines to print of a case: rates, ratios, and for each engine its parts and its share of the limit."""
    contenders = table["contenders"]
    yield f"\n{case.title}"
    for name, figures in contenders.items():
        rates, seconds = figures["whole"], [figures[f"{clock}_seconds"]["median"] for clock in ("whole", "fit", "cpu")]
        wall, fit, cpu = (f"{value:,.2f}" for value in seconds)
        spread = f"({min(rates['all']):,.0f} to {max(rates['all']):,.0f})"
        yield f"  {name:<18} {rates['median']:>12,.0f} env steps/s {spread}; {wall} s, fit {fit} s, CPU {cpu} s"
    for name, ratios in table["ratios"].items():
        for peer, clocks in ratios.items():
            by = {clock: Ratio(**ratio) for clock, ratio in clocks.items()}
            yield f"  {name} has {by['whole']} times the rate of {peer}; fit {by['fit']}, by the CPU {by['cpu']}"
    for name, figures in table["engines"].items():
        rate, updates = contenders[name]["fit"]["median"], figures["updates_an_env_step"]
        where = ", ".join(f"{part} {share:.0%}" for part, share in figures["shares"].items())
        share = rate * case.flops * (updates if case.of_an_update else 1) / limit
        yield f"  {name}: {rate * updates:,.0f} updates/s, {figures['update_ms']:.2f} ms each in learning; {where}"
        if parts := figures["iteration_us"]:
            yield "  us of an iteration: " + ", ".join(f"{part} {value:,.0f}" for part, value in parts.items())
        if case.flops:
            yield f"  {name}: multiplies and adds at {share:.0%} of the limit in fit"


if __name__ == "__main__":
    entry.run(main)
