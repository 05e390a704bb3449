"""Measures the speed of environments and PPO on the device, beside its highest rates of copies and products.

PPO is as in all benchmarks here: two 64 x 64 tanh nets, rollouts of 128 steps, 4 epochs of 4 minibatches, Adam, without
a Trainer and its callbacks. It is also measured in PufferLib's two shapes; for the second, its contributors report
12.9 M env steps/s with another environment (MinGRU, Muon, bf16, RTX 5090). Each iteration is timed until the device has
finished it; figures are medians after some iterations of warm-up. Rollout and update are timed in other iterations,
because this adds waits. Then every kernel is timed alone, without CUDA graphs; only the FLOP of the nets are counted.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from lab.bench.cases import flops
from lab.bench.measure import EPOCHS, MINIBATCHES
from lab.gpu.bits import actions
from lab.gpu.driven import ENV, agent_of, compiler, ppo, settle, tick, waited_for, watched, worlds
from lab.gpu.parts import Found, Machine
from stride.agents.base import Agent
from stride.agents.engines.choice import RECIPES
from stride.agents.engines.fused_gpu.engine import fused_gpu
from stride.agents.engines.fused_gpu.learn import FusedLearn
from stride.agents.engines.plan.on_policy import OnPolicy
from stride.agents.sockets import Learner
from stride.config.schema import PPOConfig
from stride.envs_fast.device_code import with_twin
from stride.utils.cuda_kernels import Compile, read_source
from stride.utils.devices import prepare
from stride.utils.user_error import describe_error

BYTES, SIDE = 4 << 30, 8192  # of a copy; rows of square matrices
SMALL_BYTES, SMALL_SIDE = 1 << 22, 256
PEAK, PEAK_STEPS, PEAK_CHAINS = Path(__file__).with_name("peak.cu"), 1024, 8  # the last two as in peak.cu
THREADS, SMALL_THREADS = 1 << 21, 1 << 8
WARM_CALLS, REPEATS = 3, 10
PRECISIONS = {"32": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16}


def ceilings(device: torch.device, small: bool) -> dict[str, Any]:
    """Return bytes per second of a copy (read and written), and FLOP per second of products by precision."""
    size, side = (SMALL_BYTES, SMALL_SIDE) if small else (BYTES, SIDE)
    source, flops = torch.ones(size // 4, device=device), dict[str, float]()
    copied = 2 * size / seconds_of(device, partial(torch.empty_like(source).copy_, source))
    for precision, dtype in PRECISIONS.items():
        a, b = (torch.randn(side, side, device=device).to(dtype) for _ in range(2))
        torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
        flops[precision] = 2 * side**3 / seconds_of(device, partial(torch.matmul, a, b, out=torch.empty_like(a)))
    torch.backends.cuda.matmul.allow_tf32 = False
    return {"copy_bytes_per_second": copied, "flops": flops, "copy_bytes": size, "side": side}


def fma_peak(device: torch.device, compile: Compile, small: bool) -> float:
    """Return the FLOP per second of fused multiply-adds in registers; each counts as two."""
    threads = SMALL_THREADS if small else THREADS
    kernels, out = compile(read_source(PEAK), device), torch.empty(threads, device=device)
    values = out, np.float32(0.999), np.float32(0.001), np.int32(threads)
    return 2 * threads * PEAK_STEPS * PEAK_CHAINS / seconds_of(device, lambda: kernels.launch("peak", threads, *values))


def seconds_of(device: torch.device, work: Callable[[], object], repeats: int = REPEATS) -> float:
    for _ in range(WARM_CALLS):
        work()
    return statistics.median(waited_for(device, work) for _ in range(repeats))


STEPS, WORLD_STEPS = 128, 32
WIDTHS, SMALL_WIDTHS = (4096, 256, 1024, 16384, 65536), (8, 16)  # the first is compared with other libraries
BY_OTHERS = WIDTHS[::4]  # widths for which eager and graphed are timed, too
WARM, LEAST, TIMED, PHASED = 3, 5, 1.0, 3  # iterations; seconds of iterations that are timed; iterations for phases
MARGIN = 6.0  # seconds: with less time left, no setting is started
SETTING = {
    "env_id": ENV, "n_steps": STEPS, "n_epochs": EPOCHS, "minibatches": MINIBATCHES, "hidden_dims": [64, 64],
    "share_trunk": False, "activation": "tanh", "optimizer": "adam",
}  # fmt: skip
PUFFER: dict[str, dict[str, Any]] = {
    "4096 x 64, 1 pass, minibatch 32,768, one layer of 128": {
        "n_envs": 4096, "n_steps": 64, "n_epochs": 1, "batch_size": 32_768, "hidden_dims": (128,), "share_trunk": True,
    },
    "8192 x 32, 3 passes, minibatch 8,192, one layer of 64": {
        "n_envs": 8192, "n_steps": 32, "n_epochs": 3, "batch_size": 8192, "hidden_dims": (64,), "share_trunk": True,
    },
}  # fmt: skip


class Row(NamedTuple):
    """A setting of PPO that is timed: engine, number of environments, and changes of SETTING."""

    engine: str
    width: int
    changes: Mapping[str, Any] = {}
    shape: str = ""

    def __str__(self) -> str:
        own = [] if self.shape else [f"{key} {value}" for key, value in self.changes.items()]
        return ", ".join([self.engine, self.shape or f"{self.width} worlds", *own])

    def config(self, machine: Machine) -> PPOConfig:
        return replace(ppo(machine, self.engine, self.width, STEPS), **self.changes)


def rows(machine: Machine) -> list[Row]:
    """Return all settings: for each engine the widths, precisions and lag, and PufferLib's shapes."""
    widths, found = SMALL_WIDTHS if machine.small else WIDTHS, list[Row]()
    for engine in reversed(machine.engines):  # the slowest is last: time may not suffice for it
        fused, first = engine == "fused_gpu", widths[0]
        found += [Row(engine, width) for width in widths if fused or machine.small or width in BY_OTHERS]
        found += [Row(engine, first, {"precision": name}) for name in PRECISIONS if name != "32"]
        found += [Row(engine, width, {"lag": 1}) for width in (widths if fused else ())]
        shapes = {} if machine.small else PUFFER
        found += [Row(engine, changes["n_envs"], changes, shape) for shape, changes in shapes.items()]
    return found


def speed(machine: Machine, seconds: float) -> Iterator[Found]:
    """Measure ceilings, environments and PPO; what there is no time for is null."""
    deadline, device = time.monotonic() + seconds, torch.device(machine.device)
    prepare(device, 32)  # before cuBLAS is initialised
    limits = ceilings(device, machine.small)
    settings, widths = {str(row): row for row in rows(machine)}, SMALL_WIDTHS[:1] if machine.small else WIDTHS
    ppos: dict[str, Any] = dict.fromkeys(settings)
    alones: dict[str, dict[str, Any]] = {env_id: dict.fromkeys(map(str, widths)) for env_id in with_twin()}
    figures = {"ceilings": limits, "setting": SETTING, "worlds": alones, "ppo": ppos}
    for env_id in with_twin():
        for width in widths:
            if time.monotonic() < deadline:
                alones[env_id][str(width)] = told(alone, machine, env_id, width, limits)
        yield Found(best(ppos), figures)
    for name, row in settings.items():
        if time.monotonic() < deadline - MARGIN:
            ppos[name] = told(trained, machine, row, limits)
            yield Found(best(ppos), figures)


def told(measure: Any, *arguments: Any) -> dict[str, Any]:
    """Return what `measure` returns, or its error if memory does not suffice or an engine refuses the setting."""
    try:
        result: dict[str, Any] = measure(*arguments)
    except (RuntimeError, ValueError) as error:
        result = {"error": describe_error(error)}
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
    return result


def trained(machine: Machine, row: Row, limits: dict[str, Any]) -> dict[str, Any]:
    device, config = torch.device(machine.device), row.config(machine)
    agent = agent_of(machine, config)
    for _ in range(WARM):
        tick(agent)
    times, ending = list[float](), time.perf_counter() + (0.05 if machine.small else TIMED)
    while len(times) < LEAST or time.perf_counter() < ending:
        times.append(waited_for(device, partial(tick, agent)))
    rate = config.rollout_size / statistics.median(times)
    return {
        "env_steps_per_second": rate,
        "iteration_milliseconds": statistics.median(times) * 1e3,
        "fastest_milliseconds": min(times) * 1e3,
        "slowest_milliseconds": max(times) * 1e3,
        "iterations": len(times),
        **phases(agent, device, config.rollout_size),
        "flop_share": rate * flops(config) / limits["flops"][str(config.precision)],
    }


def phases(agent: Agent, device: torch.device, env_steps: int) -> dict[str, float]:
    collecting, learning = Timed(device, agent.engine.play), Timed(device, agent.engine.learn)
    agent.engine = agent.engine._replace(play=collecting, learn=learning)
    for _ in range(PHASED):
        tick(agent)
    spent = {"rollout": statistics.median(collecting.seconds), "update": statistics.median(learning.seconds)}
    rates = {f"{name}_env_steps_per_second": env_steps / seconds for name, seconds in spent.items()}
    return rates | {f"{name}_milliseconds": seconds * 1e3 for name, seconds in spent.items()}


class Timed:
    """An engine's part that notes the seconds of each call."""

    def __init__(self, device: torch.device, own: Any) -> None:
        self.device, self.own, self.name, self.seconds = device, own, own.name, list[float]()

    def collect(self, learner: Learner, steps: int) -> None:
        self.seconds.append(waited_for(self.device, partial(self.own.collect, learner, steps)))

    def learn(self, learner: Learner, work: object) -> None:
        self.seconds.append(waited_for(self.device, partial(self.own.learn, learner, work)))


def alone(machine: Machine, env_id: str, width: int, limits: dict[str, Any]) -> dict[str, float]:
    """Time environments without a policy: random actions, autoreset, WORLD_STEPS steps a launch, the same buffers."""
    env = worlds(machine, env_id, width)
    env.reset(0)
    random, out = actions(env, 0, WORLD_STEPS), env.trajectory(WORLD_STEPS)
    seconds = seconds_of(env.device, lambda: env.advance(random, out))
    steps = WORLD_STEPS * width
    # bytes that every step reads and writes; episode ends are rare, and the state stays in registers
    moved = sum(tensor.nbytes for tensor in (random, out.reward, out.terminated, out.truncated, out.arrays[0]))
    return {"env_steps_per_second": steps / seconds, "copy_share": moved / seconds / limits["copy_bytes_per_second"]}


def best(found: dict[str, Any]) -> str:
    rates = {name: each["env_steps_per_second"] for name, each in found.items() if each and "error" not in each}
    if not rates:
        return "nothing measured"
    name = max(rates, key=lambda each: rates[each])
    return f"{len(rates)} of {len(found)} settings; {name}: {rates[name]:,.0f} env steps/s"


SIZES, SMALL_SIZES = (4096, 128), (4, 8)  # worlds, steps
WARM_TICKS, TICKS = 2, 5


def clocked(machine: Machine, seconds: dict[str, float]) -> Machine:
    device = torch.device(machine.device)

    def watch(kernel: str, arguments: Sequence[object], launch: Callable[[], None]) -> None:
        if device.type != "cuda":
            seconds[kernel] += waited_for(device, launch)
            return
        settle(device)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        launch()
        end.record()
        settle(device)
        seconds[kernel] += begin.elapsed_time(end) / 1e3

    return watched(machine, watch)


def kernels(machine: Machine, seconds: float) -> Iterator[Found]:
    device = torch.device(machine.device)
    prepare(device, 32)
    peak, spent = fma_peak(device, compiler(machine), machine.small), defaultdict[str, float](float)
    agent, iterations = launched(clocked(machine, spent)), list[dict[str, float]]()
    for _ in range(WARM_TICKS + TICKS):
        spent.clear()
        tick(agent)
        iterations.append({**spent})
    learn = agent.engine.learn
    assert isinstance(learn, FusedLearn)
    flops = flops_of(learn.updates_of(agent).recipe)
    found = dict[str, dict[str, float]]()
    for name in iterations[-1]:
        found[name] = row = {"milliseconds": statistics.median(turn[name] for turn in iterations[WARM_TICKS:]) * 1e3}
        kind = "rollout" if name.endswith("_rollout") else name
        row |= {"flop": flops[kind], "share": flops[kind] / row["milliseconds"] * 1e3 / peak} if kind in flops else {}
    figures: dict[str, Any] = {"fma_flop_per_second": peak, "worlds": agent.memory.num_envs, "kernels": found}
    whole = sum(row["milliseconds"] for row in found.values())
    yield Found(f"{len(found)} kernels, {whole:.2f} ms an iteration, {peak / 1e12:.1f} TFLOP/s at most", figures)


def launched(machine: Machine) -> Agent:
    agent = agent_of(machine, ppo(machine, "eager", *(SMALL_SIZES if machine.small else SIZES)))
    agent.engine = fused_gpu(RECIPES[type(agent)], agent, None)
    return agent


def flops_of(recipe: OnPolicy) -> dict[str, int]:
    """Return kernel -> FLOP of all its launches in an iteration."""
    layout, memory, every = recipe.shape.layout, recipe.agent.memory, range(len(recipe.shape.layout.nets))
    first_layers = layout.nets[:, 0]  # they pass no gradient to a layer below
    first = 2 * int((first_layers["inner"] * first_layers["width"]).sum())
    valued = (1 + memory.slots) * memory.num_envs * layout.flops(layout.value_net)
    return {
        "rollout": recipe.rows * layout.flops(0),
        "judge": recipe.rows * layout.flops(*every) + valued,
        "gradient": recipe.agent.config.n_epochs * recipe.rows * (3 * layout.flops(*every) - first),
    }
