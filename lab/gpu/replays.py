"""What a captured graph replays is what would be done without it: fresh draws each time, and the same learning.

Rollouts of a policy that stands still, from the same worlds: they differ by what was drawn, and by nothing else.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from lab.gpu.driven import agent_of, ppo, tick
from lab.gpu.hashes import bits
from lab.gpu.parts import ROUNDING, Found, Machine
from stride.agents.base import Agent
from stride.agents.engines.choice import RECIPES
from stride.agents.engines.fused_gpu.engine import fused_gpu
from stride.agents.experience.nouns import copy_into, leaves, tree_map

REPLAYS, ITERATIONS = 6, 6
STILL = 1e-30  # a learning rate that moves no weight
ALONE = "fused_gpu without graphs"
LIKE = {"graphed": "eager", "fused_gpu": ALONE}  # whose rollouts and weights an engine's are


def check(machine: Machine, seconds: float) -> Iterator[Found]:
    """The draws, then the weights."""
    width, captured = 64 if machine.small else 1024, [engine for engine in machine.engines if engine in LIKE]
    names = [*dict.fromkeys(name for engine in captured for name in (LIKE[engine], engine))]
    played = {name: rollouts(machine, name, width) for name in names}
    fresh = {name: len({*each}) for name, each in played.items()}
    wrong = [f"{name}: only {count} of {REPLAYS} rollouts are different"
             for name, count in fresh.items() if count < REPLAYS]  # fmt: skip
    wrong += [f"{name} plays otherwise than {LIKE[name]}" for name in captured if played[name] != played[LIKE[name]]]
    figures: dict[str, object] = {"worlds": width, "rollouts": REPLAYS, "different": fresh, "weights_apart": {}}
    line = f"{min(fresh.values())} of {REPLAYS} rollouts are different"
    yield Found(line, figures, wrong)
    learnt = {name: weights(machine, name, width) for name in names}
    apart = {name: (learnt[name] - learnt[LIKE[name]]).abs().max().item() for name in captured}
    wrong += [f"{name}: after {ITERATIONS} iterations a weight is {size:.2g} from those of {LIKE[name]}"
              for name, size in apart.items() if not size <= ROUNDING]  # fmt: skip
    line += "".join(f"; weights of {name} are within {size:.2g} of {LIKE[name]}" for name, size in apart.items())
    yield Found(line, {**figures, "weights_apart": apart}, wrong)


def agent_for(machine: Machine, name: str, width: int, rate: float) -> Agent:
    """By one of these names, which may be an engine's."""
    agent = agent_of(machine, ppo(machine, "fused_gpu" if name == ALONE else name, width, policy_lr=rate))
    if name == ALONE:
        agent.engine = fused_gpu(RECIPES[type(agent)], agent, None)
    return agent


def rollouts(machine: Machine, name: str, width: int) -> list[str]:
    """The hash of what was done in each of some iterations that all begin in the same worlds."""
    agent, found = agent_for(machine, name, width, STILL), list[str]()
    collector = agent.collector
    worlds, obs = collector.envs.state_dict(), tree_map(torch.clone, collector.obs)
    for _ in range(REPLAYS):
        tick(agent)
        found.append(bits(*leaves(agent.memory.table.obs), agent.memory.table.action))
        collector.envs.load_state_dict(worlds)
        copy_into(collector.obs, obs)
        collector.is_first.fill_(True)
    return found


def weights(machine: Machine, name: str, width: int) -> Tensor:
    """All of them after some iterations that move them."""
    agent = agent_for(machine, name, width, 1e-3)
    for _ in range(ITERATIONS):
        tick(agent)
    return torch.cat([each.detach().double().flatten().cpu() for each in agent.policy.parameters()])
