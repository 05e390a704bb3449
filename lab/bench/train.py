"""Whole trainings side by side in one run, taken in turns: ours by each engine, and the peers that are installed.

    python -m lab.bench.train                           PPO on CartPole with 8, 256 and 2048 worlds
    python -m lab.bench.train ppo pufferlib --json FILE and PufferLib's setting: 4096 worlds, one pass, one small net
    python -m lab.bench.train dqn sac                   DQN on CartPole and SAC on Pendulum, as shipped
    python -m lab.bench.train pong --threads 1          PPO of Pong from its screen
    python -m lab.bench.train --n-envs 1,64,512 --widths 16,64,256 --without eager,sb,style    how the cost grows
    python -m lab.bench.train dreamer --threads 1       Dreamer on CartPole in three sizes: ms of an update by engine

Ours have every callback and the closing checkpoint; peers are their bare loops on the same work: Stable-Baselines3, SBX
and PureJaxRL's way where they can be imported, CleanRL's way always (CleanRL itself wants a Python before 3.11).
Of Pong each runs in a process of its own, and an env step is four frames. Figures are medians of the turns; on a shared
machine only ratios mean something. The limit is what this processor multiplies and adds, measured in the same run.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import torch
from gymnasium import spaces

from lab.bench import peers
from lab.bench.limit import SIDE, multiply_add_limit
from lab.bench.measure import OURS, Figures, Place, Span, lasting, machine, median_of, ratio, setting, trained
from lab.bench.measure import timed as calls_timed
from lab.bench.peers import Ready
from stride.agents.base import Agent
from stride.agents.engines.choice import build_agent
from stride.agents.engines.fused_cpu.bind import Bound
from stride.agents.engines.fused_cpu.learn import RolloutLearn
from stride.agents.engines.fused_cpu.play import CompiledWorlds, FusedPlay
from stride.agents.engines.fused_cpu.warm import warm
from stride.commands.usage import parser_of
from stride.config.general import load_general
from stride.config.loader import load_config
from stride.config.schema import Config, PPOConfig, ReplayConfig
from stride.envs_gym.make import make_envs
from stride.envs_gym.task import task_of
from stride.utils import entry
from stride.utils.durable_file import write_json
from stride.utils.user_error import UserError, nearest

N_STEPS = 128  # of a rollout
MOST_ROWS = 1 << 18  # of a rollout; more worlds take fewer steps
PLAIN = ("eval_freq_epochs=null", "test_episodes=0", "early_stop_on_eval_threshold=false")
REPLAY = {"dqn": ("CartPole-v1", 20_000), "sac": ("Pendulum-v1", 1_000)}  # env steps of one timed training
WARMING = 100  # env steps with updates before anything is counted, at least
PASSES = {"dqn": 4, "sac": 16}  # products of batch x net per update: forward 1, backward 2 (1 where weights are frozen)
DREAMER: dict[str, tuple[tuple[str, ...], float]] = {  # what is not as shipped; products of an update, as torch counts
    "0.19 M weights": ((), 1.47e9),
    "0.66 M weights": (("deter=256", "width=128"), 5.16e9),
    "size 1m": (("size=1m",), 0),
}
PONG, PONG_SIZES = "ALE/Pong-v5", ("n_envs=8", "n_steps=128", "n_epochs=4", "batch_size=0.25")
IMAGES: tuple[str, ...] = ("policy=cnn", "hidden_dims=[]", "optimizer=adam", "policy_lr=3e-4", "clip_range=0.2")
IMAGES += ("ent_coef=0", "normalize_reward=false", "engine=eager", "log_freq_epochs=1")
# multiply-adds of an image: three convolutions and the layer that joins, all of 4 x 84 x 84
FORWARD = 400 * 256 * 32 + 81 * 512 * 64 + 49 * 576 * 64 + 3136 * 512
FIRST = 400 * 256 * 32  # whose input has no gradient
Places = dict[str, tuple[Place, ...]]
OUTER: Places = {"engine": ((FusedPlay, "collect"), (RolloutLearn, "learn")), "tick": ((Agent, "training_step"),)}
ROLLOUT: Places = {"play": ((CompiledWorlds, "play_on"),), "learn": ((Bound, "learn"),)}
Prepare = Callable[[int], Ready]  # a training of so many iterations


class Spent(NamedTuple):
    wall: float
    cpu: float


Run = Callable[[int], Spent]


class Case(NamedTuple):
    title: str
    config: Config
    contenders: Mapping[str, Prepare]
    flops: float  # multiplications and additions of an env step, or of an update; 0: not known
    of_an_update: bool = False
    iterations: int = 0  # of a timed training; 0: as many as last the seconds that are asked for
    warm: int = 2  # iterations before anything is counted
    apart: bool = False  # each contender in a process of its own


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("work", nargs="*", metavar="WORK", help=f"of {', '.join(CASES)} (default ppo)")
    parser.add_argument("--env", default="CartPole-v1", metavar="ID[,ID...]", help="compiled environments, for ppo")
    parser.add_argument("--n-envs", default="8,256,2048", metavar="N[,N...]", help="one table each, for ppo")
    parser.add_argument("--widths", default="64", metavar="N[,N...]", help="of two layers, one table each, for ppo")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="CPU threads, for all")
    parser.add_argument("--seconds", type=float, default=2.0, metavar="S", help="length of one timed training of ppo")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="turns")
    parser.add_argument("--without", default="", metavar="WORD[,WORD]", help="leave out who has it in the name: sb3")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    asked = parser.parse_args(argv)
    asked.work = asked.work or ["ppo"]
    if wrong := [word for word in asked.work if word not in CASES]:
        raise UserError(f"no work is called {wrong[0]!r}{nearest(wrong[0], CASES)}; there are {', '.join(CASES)}")
    torch.set_num_threads(asked.threads)
    limit = multiply_add_limit(asked.threads)
    figures: Figures = {"machine": machine(asked.threads, *peers.PACKAGES), "limit_flops": limit, "tables": {}}
    print(figures["machine"], flush=True)
    print(f"limit: {limit / 1e9:,.0f} GFLOP/s on {asked.threads} thread(s), products of {SIDE} x {SIDE}", flush=True)
    for word in asked.work:
        for case in CASES[word](asked):
            figures["tables"][case.title] = table = timed(case, asked)
            print("\n".join(lines_of(case, table, limit)), flush=True)
    if asked.json:
        write_json(asked.json, figures)
    return 0


def ppo_cases(asked: argparse.Namespace) -> Iterator[Case]:
    for env_id in asked.env.split(","):
        for n_envs in map(int, asked.n_envs.split(",")):
            config = bench_setting(env_id, n_envs, min(N_STEPS, MOST_ROWS // n_envs), asked.threads)
            for width in map(int, asked.widths.split(",")):
                yield ppo_case(replace(config, hidden_dims=(width, width)))


def pufferlib_case(asked: argparse.Namespace) -> Iterator[Case]:
    config = bench_setting("CartPole-v1", 4096, 64, asked.threads)
    yield ppo_case(replace(config, n_epochs=1, batch_size=32768, hidden_dims=(128,), share_trunk=True))


def bench_setting(env_id: str, n_envs: int, n_steps: int, threads: int) -> PPOConfig:
    return replace(setting(env_id, n_envs, n_steps, threads), log_freq_epochs=None)


def ppo_case(config: PPOConfig) -> Case:
    """SB3 and SBX have no shared trunk: the one has two networks there, the other is left out, as are those loops."""
    who = our_engines(config)
    if find_spec(peers.SB3):
        who["sb3, two nets" if config.share_trunk else "sb3"] = partial(peers.library, config, peers.SB3)
    if find_spec(peers.SBX) and not config.share_trunk:
        who["sbx"] = peers.sbx_ppo(config)
    if config.env_id == "CartPole-v1" and not config.share_trunk:
        who["cleanrl style"] = partial(peers.cleanrl, config)
        if find_spec("jax"):
            who["purejaxrl style"] = import_module("lab.bench.peer_purejax").Training(config).ready
    nets = f"{'shared' if config.share_trunk else 'separate'} {'x'.join(map(str, config.hidden_dims))}"
    return Case(title_of(config, f"{nets} {config.activation}"), config, who, flops(config))


def replay_case(algo_id: str, asked: argparse.Namespace) -> Iterator[Case]:
    """The shipped variant, shortened, with nothing that a peer does not do as well; peers with one thread, too."""
    env_id, steps = REPLAY[algo_id]
    config = load_config(env_id, algo_id, [*PLAIN, f"max_timesteps={steps}", f"threads={asked.threads}"])
    assert isinstance(config, ReplayConfig)
    who = our_engines(config)
    for name, module in (("sb3", peers.SB3), ("sbx", peers.SBX)):
        for threads in sorted({config.torch_threads, 1}) if find_spec(module) else ():
            who[f"{name}, {threads} thread(s)"] = partial(peers.library, config, module, threads=threads)
    warm_steps = config.learning_starts + max(WARMING, 2 * config.train_freq)
    whole, first = (-(-count // config.iteration_steps) for count in (steps, warm_steps))
    title = f"{algo_id} on {env_id}, {config.threads} thread(s)"
    hidden_layers = sum(a * b for a, b in pairwise(config.hidden_dims))  # multiply-adds of an update, these alone
    flops_of_update = 2.0 * PASSES[algo_id] * config.batch_size * hidden_layers
    yield Case(title, config, who, flops_of_update, True, whole, first)


def dreamer_cases(asked: argparse.Namespace) -> Iterator[Case]:
    """Kernels do not know the blocks of the largest."""
    for size, (overrides, flops_of_update) in DREAMER.items():
        config = load_config("CartPole-v1", "dreamer", [*PLAIN, *overrides, f"threads={asked.threads}"])
        assert isinstance(config, ReplayConfig)
        engines = OURS if flops_of_update else OURS[1:]
        who: dict[str, Prepare] = {engine: partial(ours, replace(config, engine=engine)) for engine in engines}
        whole, first = (-(-(config.learning_starts + more) // config.iteration_steps) for more in (256, 32))
        title = f"dreamer on CartPole-v1, {size}, {config.threads} thread(s)"
        yield Case(title, config, who, flops_of_update, True, whole, first)


def pong_case(asked: argparse.Namespace) -> Iterator[Case]:
    """The nature network of 512 features for all."""
    config = pong_setting(asked.threads)
    who: dict[str, Prepare] = {"eager": partial(ours, config)}
    who["eager, bf16"] = partial(ours, replace(config, precision="bf16"))
    if find_spec(peers.SB3):
        who["sb3"] = partial(peers.library, config, peers.SB3)
    who["cleanrl style"] = partial(peers.cleanrl, config)
    title = title_of(config, "nature network of 512 features")
    yield Case(title, config, who, image_flops(config), iterations=2, warm=1, apart=True)


def pong_setting(threads: int) -> PPOConfig:
    config = load_general(f"{PONG}:ppo", [*PONG_SIZES, *IMAGES, *PLAIN, f"threads={threads}"], task_of)
    assert isinstance(config, PPOConfig)
    return config


CASES: dict[str, Callable[[argparse.Namespace], Iterator[Case]]] = {
    "ppo": ppo_cases, "pufferlib": pufferlib_case, **{word: partial(replay_case, word) for word in REPLAY},
    "pong": pong_case, "dreamer": dreamer_cases,
}  # fmt: skip


def title_of(config: PPOConfig, nets: str) -> str:
    minibatches = config.rollout_size // config.minibatch_size
    work = f"{config.n_envs} worlds x {config.n_steps} steps, {config.n_epochs} epochs x {minibatches} minibatches"
    return f"{config.env_id}, {work}, {nets}, {config.threads} thread(s)"


def our_engines(config: Config) -> dict[str, Prepare]:
    warm(make_envs(config, 1), config.algo_id, config.activation)
    return {engine: partial(ours, replace(config, engine=engine)) for engine in OURS}


def ours(config: Config, iterations: int) -> Ready:
    whole = lasting(config, iterations)
    torch.set_num_threads(whole.torch_threads)
    envs = make_envs(whole, whole.n_envs)
    agent = build_agent(whole, envs)
    return Ready(lambda: trained(whole, agent), envs.close)


def timed(case: Case, asked: argparse.Namespace) -> Figures:
    """Env steps per second of everybody by both clocks, and where the time of our first one goes."""
    first, left_out = next(iter(case.contenders)), [word for word in asked.without.split(",") if word]
    names = [name for name in case.contenders if name == first or not any(word in name for word in left_out)]
    with ExitStack() as stack:  # a process that does nothing else: what one asks of its memory is none of the others'
        begin = partial(ProcessPoolExecutor, 1, get_context("spawn"), torch.set_num_threads, (asked.threads,))
        runs: dict[str, Run] = {}
        for name in names:
            run = partial(spent, case.contenders[name])
            runs[name] = partial(waited_for, stack.enter_context(begin()), run) if case.apart else run
        table = in_turns(case, runs, asked.seconds, asked.repeats) | {"engines": {}}
    for engine in OURS:
        if engine in names:
            count = round(asked.seconds * table["wall"][engine]["median"] / case.config.iteration_steps)
            table["engines"][engine] = watched(replace(case.config, engine=engine), case.iterations or max(8, count))
    return table


def watched(config: Config, count: int) -> Figures:
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
    """Microseconds of an iteration of PPO on the fused engine by where they go, from its begin to that of the next.

    Each call is timed from outside; medians leave out the iterations that evaluate, save or write.
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
    """Seconds of an iteration, in which the call is made once or a few times."""
    per = max(1, round(len(spans) / count))
    seconds = [span.seconds for span in spans]
    return statistics.median(sum(seconds[i : i + per]) for i in range(0, len(seconds) - per + 1, per))


def waited_for(pool: ProcessPoolExecutor, run: Run, iterations: int) -> Spent:
    return pool.submit(run, iterations).result()


def spent(prepare: Prepare, iterations: int) -> Spent:
    ready = prepare(iterations)
    wall, cpu = time.perf_counter(), time.process_time()
    ready.run()
    seconds = Spent(time.perf_counter() - wall, time.process_time() - cpu)
    ready.close()
    return seconds


def in_turns(case: Case, runs: Mapping[str, Run], seconds: float, repeats: int) -> Figures:
    counts = {}
    for name, run in runs.items():
        run(case.warm)
        counts[name] = case.iterations
        if not counts[name]:
            count = max(2, round(seconds * 4 / run(4).wall))
            counts[name] = max(2, round(seconds * count / run(count).wall))
        print(f"  {name} is ready", flush=True)
    turns: dict[str, list[Spent]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            turns[name].append(run(counts[name]))
    steps = {name: case.config.iteration_steps * count for name, count in counts.items()}
    return {
        clock: {name: median_of([steps[name] / getattr(turn, clock) for turn in all_]) for name, all_ in turns.items()}
        for clock in Spent._fields
    }


def flops(config: PPOConfig) -> int:
    """Multiplications and additions of one env step: acting, valuing, and three passes in each epoch."""
    envs = make_envs(config, 1)
    actions, observed = envs.action_space, spaces.flatdim(envs.observation_space)
    outputs = int(actions.n) if isinstance(actions, spaces.Discrete) else spaces.flatdim(actions)
    sizes = (observed, *config.hidden_dims)
    torso, trunks = sum(a * b for a, b in pairwise(sizes)), 1 if config.share_trunk else 2
    forward = 2 * (trunks * torso + sizes[-1] * (outputs + 1))
    return forward + config.n_epochs * (3 * forward - trunks * 2 * sizes[0] * sizes[1])


def image_flops(config: PPOConfig) -> int:
    return 2 * (FORWARD * 2 + config.n_epochs * (3 * FORWARD - FIRST))


def lines_of(case: Case, table: Figures, limit: float) -> Iterator[str]:
    """Rates, how many times theirs ours are, how near to the limit the first is and where its time goes."""
    walls, cpus = table["wall"], table["cpu"]
    yield f"\n{case.title}"
    for name, rate in walls.items():
        least, most = min(rate["all"]), max(rate["all"])
        by_cpu = f"{cpus[name]['median']:,.0f} by the CPU"
        yield f"  {name:<18} {rate['median']:>12,.0f} env steps/s ({least:,.0f} to {most:,.0f}), {by_cpu}"
    mine = [name for name in walls if name.partition(",")[0] in OURS]
    for peer in (name for name in walls if name not in mine):
        for name in mine:
            both = [ratio(clock[name], clock[peer]) for clock in (walls, cpus)]
            wall, cpu = (f"{each['median']:.2f} ({min(each['all']):.2f} to {max(each['all']):.2f})" for each in both)
            yield f"  {name} has {wall} times the rate of {peer}, by the CPU {cpu}"
    for name, figures in table["engines"].items():
        rate, updates = walls[name]["median"], figures["updates_an_env_step"]
        where = ", ".join(f"{part} {share:.0%}" for part, share in figures["shares"].items())
        share = rate * case.flops * (updates if case.of_an_update else 1) / limit
        yield f"  {name}: {rate * updates:,.0f} updates/s, {figures['update_ms']:.2f} ms each in learning; {where}"
        if parts := figures["iteration_us"]:
            yield "  us of an iteration: " + ", ".join(f"{part} {value:,.0f}" for part, value in parts.items())
        if case.flops:
            yield f"  {name}: multiplies and adds at {share:.0%} of the limit"


if __name__ == "__main__":
    entry.run(main)
