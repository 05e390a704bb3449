"""Every kernel of an iteration by fused_gpu, waited for one by one: milliseconds, FLOP, and how much of the most fused
multiply-adds that the device makes that is. Then what lower precisions do to the gradient.

PPO on CartPole as in speed.py, without graphs. FLOP are those of the nets; what else a kernel computes is not counted.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lab.gpu.ceilings import PRECISIONS, fma_peak
from lab.gpu.driven import agent_of, compiler, ppo, settle, tick
from lab.gpu.parts import Found, Machine
from stride.agents.base import Agent
from stride.agents.engines.choice import RECIPES
from stride.agents.engines.fused_gpu.engine import fused_gpu
from stride.agents.engines.fused_gpu.learn import FusedLearn
from stride.agents.engines.plan.layout import Layer
from stride.agents.engines.plan.on_policy import OnPolicy
from stride.agents.experience.nouns import Final
from stride.utils.device_source import Compile, Kernels, Source
from stride.utils.devices import prepare
from stride.utils.one_line import describe_error

SIZES, SMALL = (4096, 128), (4, 8)  # worlds, steps
WARM, ITERATIONS = 2, 5


class Clocked:
    """Kernels whose launches are waited for and counted, by name."""

    def __init__(self, kernels: Kernels, device: torch.device, seconds: dict[str, float]) -> None:
        self._kernels, self._device, self._seconds = kernels, device, seconds

    def launch(
        self, kernel: str, threads: int, *arguments: Tensor | np.generic, block: int = 128, shared: int = 0
    ) -> None:
        with_marks = self._device.type == "cuda"
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2)) if with_marks else (None, None)
        settle(self._device)
        began = time.perf_counter()
        if begin and end:
            begin.record()
            self._kernels.launch(kernel, threads, *arguments, block=block, shared=shared)
            end.record()
            settle(self._device)
            self._seconds[kernel] += begin.elapsed_time(end) / 1e3
        else:
            self._kernels.launch(kernel, threads, *arguments, block=block, shared=shared)
            self._seconds[kernel] += time.perf_counter() - began


def check(machine: Machine, seconds: float) -> Iterator[Found]:
    """The kernels, then the precisions."""
    device = torch.device(machine.device)
    prepare(device, 32)
    peak, spent = fma_peak(device, compiler(machine), machine.small), defaultdict[str, float](float)
    agent, turns = launched(clocked(machine, device, spent), 32), list[dict[str, float]]()
    for _ in range(WARM + ITERATIONS):
        spent.clear()
        tick(agent)
        turns.append({**spent})
    flops = flops_of(recipe_of(agent))
    found = {name: {"milliseconds": statistics.median(turn[name] for turn in turns[WARM:]) * 1e3} for name in turns[-1]}
    for name, each in found.items():
        kind = "rollout" if name.endswith("_rollout") else name
        each |= {"flop": flops[kind], "share": flops[kind] / each["milliseconds"] * 1e3 / peak} if kind in flops else {}
    figures: dict[str, Any] = {"fma_flop_per_second": peak, "worlds": agent.memory.num_envs, "kernels": found}
    whole = sum(each["milliseconds"] for each in found.values())
    line = f"{len(found)} kernels, {whole:.2f} ms an iteration, {peak / 1e12:.1f} TFLOP/s at most"
    yield Found(line, figures)
    exact, errors = gradient(machine, 32), dict[str, Any]()
    for precision in PRECISIONS:
        if precision != "32":
            errors[precision] = error_of(machine, precision, exact)
    yield Found(f"{line}; errors of the gradient: {errors}", {**figures, "gradient_errors": errors})


def clocked(machine: Machine, device: torch.device, seconds: dict[str, float]) -> Machine:
    """The same, whose kernels are counted."""
    own = compiler(machine)

    def compiled(source: Source, where: torch.device) -> Kernels:
        return Clocked(own(source, where), device, seconds)

    compile: Compile = compiled
    return machine._replace(compile=compile)


def launched(machine: Machine, precision: str | int) -> Agent:
    """Played and taught by kernels, each launched for itself."""
    agent = agent_of(machine, ppo(machine, "eager", *(SMALL if machine.small else SIZES), precision=precision))
    agent.engine = fused_gpu(RECIPES[type(agent)], agent, None)
    return agent


def recipe_of(agent: Agent) -> OnPolicy:
    learn = agent.engine.learn
    assert isinstance(learn, FusedLearn)
    return learn.of(agent).recipe


def flops_of(recipe: OnPolicy) -> dict[str, int]:
    """Of an iteration's launches together, by kernel."""
    layout, memory, every = recipe.shape.layout, recipe.agent.memory, range(len(recipe.shape.layout.nets))
    first = 2 * sum(int(net[0, Layer.INNER] * net[0, Layer.WIDTH]) for net in layout.nets)  # has no slope below it
    valued = (1 + memory.slots) * memory.num_envs * layout.flops(layout.value_net)
    return {
        "rollout": recipe.rows * layout.flops(0),
        "judge": recipe.rows * layout.flops(*every) + valued,
        "gradient": recipe.agent.config.n_epochs * recipe.rows * (3 * layout.flops(*every) - first),
    }


def gradient(machine: Machine, precision: str | int) -> Tensor:
    """Of the first minibatch of the first rollout, which is the same in every precision."""
    agent = launched(machine, precision)
    agent.collect(agent.memory.rows)
    learn = agent.engine.learn
    assert isinstance(learn, FusedLearn)
    updates = learn.of(agent)
    updates.prepare()
    updates.judge(updates.recipe.reward(agent.memory.rollout((), Final(agent.collector.obs, ()))))
    updates.update(0)
    return updates.gradient.double()


def error_of(machine: Machine, precision: str, exact: Tensor) -> float | str:
    """The largest difference to the gradient in float32, of its largest number; or why there is none."""
    try:
        return float((gradient(machine, precision) - exact).abs().max() / exact.abs().max())
    except (RuntimeError, ValueError) as error:
        return describe_error(error)
