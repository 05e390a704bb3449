"""What a captured graph replays is what eager does: fresh draws each time, and the same learning.

Rollouts of a policy that stands still, from the same worlds: they differ by what was drawn, and by nothing else.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from agents.experience.nouns import copy_into, leaves, tree_map
from scripts.gpu.driven import agent_of, ppo, tick
from scripts.gpu.hashes import bits
from scripts.gpu.parts import ROUNDING, Found, Machine

REPLAYS, ITERATIONS = 6, 6
STILL = 1e-30  # a learning rate that moves no weight


def check(machine: Machine, seconds: float) -> Iterator[Found]:
    """The draws, then the weights."""
    width, (first, *others) = 64 if machine.small else 1024, machine.engines
    played = {engine: rollouts(machine, engine, width) for engine in machine.engines}
    fresh = {engine: len({*each}) for engine, each in played.items()}
    wrong = [f"{engine}: only {count} of {REPLAYS} rollouts are different"
             for engine, count in fresh.items() if count < REPLAYS]  # fmt: skip
    wrong += [f"{engine} plays otherwise than {first}" for engine in others if played[engine] != played[first]]
    figures: dict[str, object] = {"worlds": width, "rollouts": REPLAYS, "different": fresh, "weights_apart": {}}
    line = f"{min(fresh.values())} of {REPLAYS} rollouts are different"
    yield Found(line, figures, wrong)
    learnt = {engine: weights(machine, engine, width) for engine in machine.engines}
    apart = {engine: (learnt[engine] - learnt[first]).abs().max().item() for engine in others}
    wrong += [f"{engine}: after {ITERATIONS} iterations a weight is {size:.2g} from {first}'s"
              for engine, size in apart.items() if not size <= ROUNDING]  # fmt: skip
    line += "".join(f"; {engine}'s weights are within {size:.2g} of {first}'s" for engine, size in apart.items())
    yield Found(line, {**figures, "weights_apart": apart}, wrong)


def rollouts(machine: Machine, engine: str, width: int) -> list[str]:
    """The hash of what was done in each of some iterations that all begin in the same worlds."""
    agent, found = agent_of(machine, ppo(machine, engine, width, policy_lr=STILL)), list[str]()
    collector = agent.collector
    worlds, obs = collector.envs.state_dict(), tree_map(torch.clone, collector.obs)
    for _ in range(REPLAYS):
        tick(agent)
        found.append(bits(*leaves(agent.memory.table.obs), agent.memory.table.action))
        collector.envs.load_state_dict(worlds)
        copy_into(collector.obs, obs)
        collector.is_first.fill_(True)
    return found


def weights(machine: Machine, engine: str, width: int) -> Tensor:
    """All of them after some iterations that move them."""
    agent = agent_of(machine, ppo(machine, engine, width, policy_lr=1e-3))
    for _ in range(ITERATIONS):
        tick(agent)
    return torch.cat([each.detach().double().flatten().cpu() for each in agent.policy.parameters()])
