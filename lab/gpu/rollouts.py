"""Checks that `engine: fused_gpu` leaves the same bits on the device as its kernels on the host, by SHA-256.

First only rollouts are compared, then whole iterations, with kernels that learn. If one differs, the first launch of an
iteration with another result is named.

Weights and statistics of observations are drawn here, because torch initialises them differently on each processor.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lab.gpu.bits import Hashes, bits, differing
from lab.gpu.driven import tick, watched, with_optimizer, worlds
from lab.gpu.parts import Found, Machine
from stride.agents.base import Agent
from stride.agents.engines.choice import RECIPES, build_agent
from stride.agents.engines.fused_gpu.ahead import Ahead, Beside
from stride.agents.engines.fused_gpu.engine import MakeBeside, fused_gpu
from stride.agents.engines.fused_gpu.play import FusedPlay
from stride.agents.experience.nouns import leaves
from stride.agents.networks.encoders import RunningNorm
from stride.agents.ppo import PPO
from stride.config.loader import load_config
from stride.utils.counter_rng import EXPLORE, Key, uniforms
from stride.utils.durable_file import read_json
from stride.utils.provenance import PROJECT

TRACES = PROJECT / "tests" / "agents" / "fused_gpu_trace.npz"
Trace = dict[str, np.ndarray]  # {"007 gradient 15": ..}: argument 15 after the eighth launch, a kernel `gradient`


def tracing(machine: Machine, trace: Trace) -> Machine:
    """Return the machine with kernels that store every argument that a launch changes into `trace`."""

    launches = iter(range(1000))

    def watch(kernel: str, arguments: Sequence[Tensor | np.generic], launch: Callable[[], None]) -> None:
        tensors = {index: tensor for index, tensor in enumerate(arguments) if isinstance(tensor, Tensor)}
        before, number = {index: plain(tensor) for index, tensor in tensors.items()}, next(launches)
        launch()
        for index, tensor in tensors.items():
            if not np.array_equal(before[index], after := plain(tensor)):
                trace[f"{number:03} {kernel} {index}"] = after

    return watched(machine, watch)


def plain(tensor: Tensor) -> np.ndarray:
    """Return a copy of its bits as whole numbers, so that NaN equals itself."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).clone()
    return flat.numpy().view(f"u{flat.element_size()}")


def first_difference(golden: Trace, found: Trace) -> str:
    """Return the launch, kernel, argument and element of the first difference; "" if all is equal."""
    for name in sorted({*golden, *found}):
        number, kernel, argument = name.split()
        launch = f"launch {int(number)}, {kernel}, argument {argument}"
        if name not in golden or name not in found:
            return f"{launch}: changed by {'this device' if name in found else 'the host'} alone"
        expected, actual = golden[name], found[name]
        if apart := np.flatnonzero(expected != actual).tolist() if expected.shape == actual.shape else [0]:
            host, here = (hex(int(values[apart[0]])) for values in (expected, actual))
            return f"{launch}: element {apart[0]} is {here}, the host's {host}; {len(apart)} of {expected.size} differ"
    return ""


def read_trace(case: str, file: Path = TRACES) -> Trace:
    """Return the host's trace of a case; {} if there is none."""
    with np.load(file) as arrays:
        return {name.partition("/")[2]: arrays[name] for name in arrays.files if name.partition("/")[0] == case}


def write_traces(traces: dict[str, Trace], file: Path = TRACES) -> None:
    arrays: dict[str, Any] = {f"{case}/{name}": each for case, trace in traces.items() for name, each in trace.items()}
    np.savez_compressed(file, **arrays)


FILE = PROJECT / "tests" / "agents" / "fused_gpu_hashes.json"
STEPS, LIMIT = 32, 13
AFTER = (1, 2, 10)  # hashes are made after so many rollouts or iterations
SHARED = [f"max_episode_steps={LIMIT}", "n_epochs=1", "engine=eager"]
HASHED, TRACED = ("n_envs=48", f"n_steps={STEPS}", "batch_size=768"), ("n_envs=6", "n_steps=16", "batch_size=48")
CASES = {
    "choices": ("CartPole-v1", "ppo"),
    "numbers, normalised": ("Pendulum-v1", "ppo", "normalize_obs=rolling"),
    "one-hot, relu": ("Taxi-v4", "ppo", "activation=relu", "hidden_dims=[48,20]"),
}
LEARNT = {  # without statistics of observations, which torch computes
    "choices, learnt": ("CartPole-v1", "ppo", "hidden_dims=[16,16]"),
    "numbers, learnt": ("Pendulum-v1", "ppo", "normalize_obs=static", "hidden_dims=[16,16]"),
    "one trunk, relu, learnt": ("Acrobot-v1", "ppo", "activation=relu", "share_trunk=true", "hidden_dims=[16]"),
    "older actor, learnt": ("CartPole-v1", "ppo", "lag=1", "policy_lr=0.01", "hidden_dims=[24]"),
}


def rollouts(machine: Machine, seconds: float) -> Iterator[Found]:
    golden, wrong, count = read_json(FILE), list[str](), 0
    for name in (*CASES, *LEARNT):
        hashes = computed(machine, name)
        if apart := differing(name, golden.get(name, {}), hashes):
            wrong += apart
            wrong += [f"{name}: {first}" for first in [apart_at(machine, name)] if first]
        count += len(hashes)
        line = f"{count} hashes of rollouts, {len(wrong)} lines of what is not the host's"
        yield Found(line, {"compared": count}, wrong)


def apart_at(machine: Machine, name: str) -> str:
    """Return the first launch of a small iteration that differs from the host's; "" if none, or without a trace."""
    golden = read_trace(name)
    return first_difference(golden, traced(machine, name)) if golden else ""


def traced(machine: Machine, name: str) -> Trace:
    trace: Trace = {}
    tick(agent_of(tracing(machine, trace), name, *TRACED, beside=None))
    return trace


def computed(machine: Machine, name: str) -> Hashes:
    agent, hashes = agent_of(machine, name, *HASHED), Hashes()
    for number in range(1, max(AFTER) + 1):
        tick(agent) if name in LEARNT else agent.collect(STEPS)
        if number in AFTER:
            hashes |= {f"{part} after {number}": value for part, value in left(agent).items()}
    return hashes


def agent_of(machine: Machine, name: str, *sizes: str, beside: MakeBeside | None = Beside) -> Agent:
    env_id, variant, *own = (CASES | LEARNT)[name]
    config = load_config(env_id, variant, ["max_timesteps=1e6", *SHARED, *own, *sizes])
    agent = build_agent(replace(config, device=machine.device), worlds(machine, env_id, config.n_envs, LIMIT))
    fill(agent)
    agent.engine = fused_gpu(RECIPES[type(agent)], agent, None, beside)
    return with_optimizer(agent)


@torch.no_grad()
def fill(agent: Agent) -> None:
    """Draw weights in +-1/4, means in +-1/2, and variances between 1/2 and 3/2."""
    older = agent.lagging.policy if isinstance(agent, PPO) and agent.lagging else None
    policies = torch.nn.ModuleList([agent.policy, *([older] if older else [])])
    norms = [module for module in policies.modules() if isinstance(module, RunningNorm)]
    drawn: list[tuple[Tensor, float, float]] = [(each, 0.5, -0.25) for each in policies.parameters()]
    drawn += [each for norm in norms for each in ((norm.mean, 1.0, -0.5), (norm.var, 1.0, 0.5))]
    for index, (tensor, factor, offset) in enumerate(drawn):  # powers of two: nothing is rounded
        tensor.copy_(uniforms(Key(index, EXPLORE), tuple(tensor.shape), tensor.device) * factor + offset)


def left(agent: Agent) -> Hashes:
    """Return the hashes of what a rollout leaves: rows, last observations at a time limit, environments, .."""
    play, table, collector = agent.engine.play, agent.memory.table, agent.collector
    assert isinstance(play, FusedPlay | Ahead)
    step, world = table.truncated.cpu().nonzero().unbind(1)
    slot = table.slot.cpu()[step, world]
    (final,), state = leaves(agent.memory.final.obs), collector.state_dict()
    return {
        "table": bits(*leaves(table)),
        "last observations": bits(final.cpu()[slot, world]),
        "log-probabilities": bits(play.log_prob),
        "parameters": bits(*agent.policy.parameters()),
        "worlds": bits(*(each for each in state["envs"].values() if isinstance(each, torch.Tensor))),
        "window": bits(state["window"]["ring"], state["window"]["count"]),
    }
