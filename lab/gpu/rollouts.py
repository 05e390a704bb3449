"""Does `engine: fused_gpu` do on the device what its kernels do on the host, to the bit? SHA-256 of all that it leaves.

First rollouts alone, then whole iterations, by kernels that learn, too. Where one of these is another, the first
launch of an iteration that does something else is named.

Weights, and statistics of observations, are drawn here: how torch initialises them depends on the processor.
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
Trace = dict[str, np.ndarray]  # "007 gradient 15": what the eighth launch left in its argument 15


def tracing(machine: Machine, trace: Trace) -> Machine:
    launches = iter(range(1000))

    def watch(kernel: str, arguments: Sequence[Tensor | np.generic], launch: Callable[[], None]) -> None:
        given = {place: each for place, each in enumerate(arguments) if isinstance(each, Tensor)}
        before, number = {place: plain(each) for place, each in given.items()}, next(launches)
        launch()
        for place, each in given.items():
            if not np.array_equal(before[place], after := plain(each)):
                trace[f"{number:03} {kernel} {place}"] = after

    return watched(machine, watch)


def plain(tensor: Tensor) -> np.ndarray:
    """A copy of its bits, as whole numbers: NaN is equal to itself."""
    flat = tensor.detach().cpu().contiguous().reshape(-1).clone()
    return flat.numpy().view(f"u{flat.element_size()}")


def first_difference(golden: Trace, found: Trace) -> str:
    """The launch, its kernel, argument and element, "" where all is the same."""
    for name in sorted({*golden, *found}):
        number, kernel, argument = name.split()
        launch = f"launch {int(number)}, {kernel}, argument {argument}"
        if name not in golden or name not in found:
            return f"{launch}: changed by {'this device' if name in found else 'the host'} alone"
        one, other = golden[name], found[name]
        if apart := np.flatnonzero(one != other).tolist() if one.shape == other.shape else [0]:
            host, here = (hex(int(each[apart[0]])) for each in (one, other))
            return f"{launch}: element {apart[0]} is {here}, the host's {host}; {len(apart)} of {one.size} differ"
    return ""


def read_trace(case: str, file: Path = TRACES) -> Trace:
    """What the host left of a case; empty where it was not traced."""
    with np.load(file) as held:
        return {name.partition("/")[2]: held[name] for name in held.files if name.partition("/")[0] == case}


def write_traces(traces: dict[str, Trace], file: Path = TRACES) -> None:
    arrays: dict[str, Any] = {f"{case}/{name}": each for case, trace in traces.items() for name, each in trace.items()}
    np.savez_compressed(file, **arrays)


FILE = PROJECT / "tests" / "agents" / "fused_gpu_hashes.json"
STEPS, LIMIT = 32, 13
AFTER = (1, 2, 10)  # rollouts, or iterations
SHARED = [f"max_episode_steps={LIMIT}", "n_epochs=1", "engine=eager"]
HASHED, TRACED = ("n_envs=48", f"n_steps={STEPS}", "batch_size=768"), ("n_envs=6", "n_steps=16", "batch_size=48")
CASES = {
    "choices": ("CartPole-v1", "ppo"),
    "numbers, normalised": ("Pendulum-v1", "ppo", "normalize_obs=rolling"),
    "one-hot, relu": ("Taxi-v4", "ppo", "activation=relu", "hidden_dims=[48,20]"),
}
LEARNT = {  # without statistics of observations: torch sums these up
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
    """The first launch of a small iteration that is not the host's, "" where all are or nobody has traced the case."""
    held = read_trace(name)
    return first_difference(held, traced(machine, name)) if held else ""


def traced(machine: Machine, name: str) -> Trace:
    found: Trace = {}
    tick(agent_of(tracing(machine, found), name, *TRACED, beside=None))
    return found


def computed(machine: Machine, name: str) -> Hashes:
    agent, found = agent_of(machine, name, *HASHED), Hashes()
    for number in range(1, max(AFTER) + 1):
        tick(agent) if name in LEARNT else agent.collect(STEPS)
        if number in AFTER:
            found |= {f"{what} after {number}": value for what, value in left(agent).items()}
    return found


def agent_of(machine: Machine, name: str, *sizes: str, beside: MakeBeside | None = Beside) -> Agent:
    env_id, variant, *own = (CASES | LEARNT)[name]
    config = load_config(env_id, variant, ["max_timesteps=1e6", *SHARED, *own, *sizes])
    agent = build_agent(replace(config, device=machine.device), worlds(machine, env_id, config.n_envs, LIMIT))
    fill(agent)
    agent.engine = fused_gpu(RECIPES[type(agent)], agent, None, beside)
    return with_optimizer(agent)


@torch.no_grad()
def fill(agent: Agent) -> None:
    """Weights within a quarter, means within a half, variances from a half to one and a half."""
    older = agent.lagging.policy if isinstance(agent, PPO) and agent.lagging else None
    policies = torch.nn.ModuleList([agent.policy, *([older] if older else [])])
    norms = [module for module in policies.modules() if isinstance(module, RunningNorm)]
    drawn: list[tuple[Tensor, float, float]] = [(each, 0.5, -0.25) for each in policies.parameters()]
    drawn += [each for norm in norms for each in ((norm.mean, 1.0, -0.5), (norm.var, 1.0, 0.5))]
    for index, (tensor, factor, least) in enumerate(drawn):  # powers of two, so that nothing is fused or rounded
        tensor.copy_(uniforms(Key(index, EXPLORE), tuple(tensor.shape), tensor.device) * factor + least)


def left(agent: Agent) -> Hashes:
    """What a rollout leaves: rows, observations that limits cut, log-probabilities; worlds and window as they are."""
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
