"""Does `engine: fused_gpu` do on the device what its kernels do on the host, to the bit? SHA-256 of all that it leaves.

First rollouts alone, then whole iterations, by kernels that learn, too. Where one of these is another, the first
launch of an iteration that does something else is named (trace.py).

Weights, and statistics of observations, are drawn here: how torch initialises them depends on the processor.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch

from lab.gpu import trace
from lab.gpu.driven import tick, worlds
from lab.gpu.hashes import Hashes, bits, differing
from lab.gpu.parts import Found, Machine
from lab.gpu.trace import Trace
from stride.agents.base import Agent
from stride.agents.engines.choice import RECIPES, build_agent
from stride.agents.engines.fused_gpu.ahead import Ahead, Beside
from stride.agents.engines.fused_gpu.engine import MakeBeside, fused_gpu
from stride.agents.engines.fused_gpu.play import FusedPlay
from stride.agents.experience.nouns import leaves
from stride.agents.networks.encoders import RunningNorm
from stride.config.loader import load_config
from stride.utils.counter_rng import EXPLORE, Key, uniforms
from stride.utils.durable_file import read_json
from stride.utils.provenance import PROJECT

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


def check(machine: Machine, seconds: float) -> Iterator[Found]:
    """Case by case; what differs is named with how many rollouts there were before."""
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
    held = trace.read(name)
    return trace.first_difference(held, traced(machine, name)) if held else ""


def traced(machine: Machine, name: str) -> Trace:
    """All launches of an iteration, small."""
    found: Trace = {}
    tick(agent_of(machine._replace(compile=trace.traced(machine, found)), name, *TRACED, beside=None))
    return found


def computed(machine: Machine, name: str) -> Hashes:
    """All of one case."""
    agent, found = agent_of(machine, name, *HASHED), Hashes()
    for number in range(1, max(AFTER) + 1):
        tick(agent) if name in LEARNT else agent.collect(STEPS)
        if number in AFTER:
            found |= {f"{what} after {number}": value for what, value in left(agent).items()}
    return found


def agent_of(machine: Machine, name: str, *sizes: str, beside: MakeBeside | None = Beside) -> Agent:
    """Of a case, on worlds that have just begun."""
    env_id, variant, *own = (CASES | LEARNT)[name]
    config = load_config(env_id, variant, ["max_timesteps=1e6", *SHARED, *own, *sizes])
    agent = build_agent(replace(config, device=machine.device), worlds(machine, env_id, config.n_envs, LIMIT))
    fill(agent)
    agent.engine = fused_gpu(RECIPES[type(agent)], agent, None, beside)
    optimizer = agent.configure_optimizers()
    agent.optimizers = lambda use_pl_optimizer=False: optimizer  # type: ignore[method-assign,assignment]
    return agent


@torch.no_grad()
def fill(agent: Agent) -> None:
    """Weights within a quarter, means within a half, variances from a half to one and a half."""
    norms = [module for module in agent.policy.modules() if isinstance(module, RunningNorm)]
    drawn: list[tuple[torch.Tensor, float, float]] = [
        (parameter, 0.5, -0.25) for parameter in agent.policy.parameters()
    ]
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
