"""An update of Dreamer in milliseconds, by size, engine and threads, and where they go: for lab.bench.train.

GFLOP are products only, as torch counts them in one eager update. Beside other programs look at the milliseconds of
CPU, which they hardly change, on one thread: threads of torch that wait for one another burn them.
"""

import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import cast

import torch
from torch.utils.flop_counter import FlopCounterMode

from lab.bench.limit import multiply_add_limit
from lab.bench.measure import Figures, median_of
from stride.agents.dreamer import Dreamer
from stride.agents.engines.choice import build_agent
from stride.agents.engines.fused_cpu.model_learn import ModelLearn
from stride.agents.networks.world_model import State
from stride.agents.sockets import Learner
from stride.config.loader import load_config
from stride.envs_gym.make import make_envs
from stride.trainer_callbacks.kept_memory import keep_freed_memory

SIZES: dict[str, tuple[str, ...]] = {
    "small": (),
    "deter 256": ("deter=256", "width=128"),
    "1m": ("size=1m",),
}
ENGINES = {"eager": "eager", "kernels": "auto"}  # which is eager where kernels do not know a size
UPDATES = 15  # that are timed, of each kind
BEFORE = 64  # env steps of each world that sequences are drawn from, at least
Calls = dict[str, Callable[[], object]]


def compared(threads: int) -> Figures:
    """All figures, on one thread and on so many; each line is printed as it is known."""
    keep_freed_memory()  # as every training does
    limits = {count: multiply_add_limit(count) for count in sorted({1, threads})}
    for count, limit in limits.items():
        print(f"peak on {count} thread(s): {limit / 1e9:,.0f} GFLOP/s", flush=True)
    return {name: of_size(name, overrides, limits) for name, overrides in SIZES.items()}


def of_size(name: str, overrides: tuple[str, ...], peaks: dict[int, float]) -> Figures:
    """Every engine that knows it, on each number of threads, of which `peaks` says what they multiply and add."""
    counts = list(peaks)
    wanted = [(name, engine, threads) for name, engine in ENGINES.items() for threads in counts]
    made = {(name, threads): agent_of(engine, overrides, threads) for name, engine, threads in wanted}
    agents = {key: agent for key, agent in made.items() if key[0] == "eager" or agent.engine.name != "eager"}
    plain = agents["eager", 1]
    weights, flops = sum(p.numel() for p in plain.policy.parameters()), flops_of(plain)
    print(f"\n{name}: {weights:,} weights, {flops / 1e9:.2f} GFLOP an update", flush=True)
    rows = {}
    for (engine, threads), agent in agents.items():
        row = rows[f"{engine}, {threads}"] = timed(agent, threads)
        told = ", ".join(f"{part} {part_ms:.1f}" for part, part_ms in row["parts_ms"].items())
        median, least = row["update_ms"]["median"], min(row["update_ms"]["all"])
        share = 1e3 * flops / median / peaks[threads]
        print(
            f"  {engine:<8} {threads} thread(s) {median:7.1f} ms ({least:.1f} at least, {row['cpu_ms']:.1f} of CPU, "
            f"{flops / median / 1e6:.0f} GFLOP/s, {share:.0%} of the peak): {told}",
            flush=True,
        )
    return {"weights": weights, "flops": flops, "rows": rows}


def agent_of(engine: str, overrides: tuple[str, ...], threads: int) -> Dreamer:
    """One that has played a little at random and learnt once."""
    words = [f"engine={engine}", f"threads={threads}", "seed=1", *overrides]
    config = load_config("CartPole-v1", "dreamer", words)
    agent = cast(Dreamer, build_agent(config, make_envs(config, config.n_envs)))
    optimizer = agent.configure_optimizers()
    agent.optimizers = lambda use_pl_optimizer=False: optimizer  # type: ignore[method-assign, assignment]
    agent.policy.at_random = True
    agent.collect(max(BEFORE, 2 * agent.config.batch_length))
    agent.learn_from(1)
    return agent


def flops_of(agent: Dreamer) -> int:
    """Of one update's products."""
    with FlopCounterMode(display=False) as counter:
        agent.learn(1)
    return counter.get_total_flops()


def timed(agent: Dreamer, threads: int) -> Figures:
    """Milliseconds of whole updates, and of their parts one by one."""
    torch.set_num_threads(threads)
    kernels = agent.engine.learn
    if isinstance(kernels, ModelLearn):
        kernels.crew.threads = threads  # as a training does not: it takes one where that is faster just now
    with kernels.lent(cast(Learner, agent)) if isinstance(kernels, ModelLearn) else nullcontext():
        began = time.process_time()
        whole = median_of(each(partial(agent.learn, 1), UPDATES))
        cpu = 1e3 * (time.process_time() - began) / (UPDATES + 1)
        found = {name: statistics.median(each(call, UPDATES)) for name, call in parts(agent).items()}
    return {"update_ms": whole, "cpu_ms": cpu, "parts_ms": found}


def each(call: Callable[[], object], count: int) -> list[float]:
    """Milliseconds of so many calls, and of one before them that is not counted."""
    spent = []
    for _ in range(count + 1):
        began = time.perf_counter()
        call()
        spent.append(1e3 * (time.perf_counter() - began))
    return spent[1:]


def parts(agent: Dreamer) -> Calls:
    """What an update does, each from the same batch; gradients add up and are thrown away."""
    config, memory = agent.config, agent.memory
    batch, draws = memory.sequences(config.batch_size, config.batch_length), agent.draw()
    states = agent.recall_loss(batch, draws.posterior).states
    chosen = draws.starts.topk(config.imagined_starts).indices
    start = State(*(part.detach().flatten(0, 1)[chosen] for part in states))
    alive = torch.ones(config.imagined_starts)

    def behaviour() -> None:
        losses, _ = agent.behaviour_loss(start, alive, draws.guess, draws.action)
        torch.stack([*losses.values()]).sum().backward()

    return {
        "draw": lambda: (memory.sequences(config.batch_size, config.batch_length), agent.draw()),
        "recall": lambda: agent.recall_loss(batch, draws.posterior).loss.backward(),
        "behaviour": behaviour,
        "optimizer": agent.optimizer.step,
    }
