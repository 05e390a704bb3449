"""Worlds do not see how their steps are cut: T steps are twice T / 2 steps are T times one, to the bit."""

from collections.abc import Iterator
from typing import Any

import torch

from lab.gpu.driven import worlds
from lab.gpu.hashes import actions, bits
from lab.gpu.parts import Found, Machine
from stride.agents.experience.nouns import leaves
from stride.envs_fast.registry import WORLDS

SIZE, STEPS = 333, 128


def check(machine: Machine, seconds: float) -> Iterator[Found]:
    """World by world."""
    wrong = list[str]()
    for number, env_id in enumerate(WORLDS, 1):
        whole = played(machine, env_id, [STEPS])
        for cut in ([STEPS // 2] * 2, [1] * STEPS):
            if played(machine, env_id, cut) != whole:
                wrong.append(f"{env_id}: {len(cut)} launches of {cut[0]} steps are not one of {STEPS}")
        yield Found(f"{number} worlds, {STEPS} steps as 1, 2 and {STEPS} launches", {"worlds": number}, wrong)


def played(machine: Machine, env_id: str, cut: list[int]) -> str:
    """The hash of all that was told of every step, and of what a checkpoint would hold."""
    env = worlds(machine, env_id, SIZE)
    env.reset(3)
    given, begin, told = actions(env, 0, STEPS), 0, list[list[Any]]()
    for steps in cut:
        part = env.advance(given[begin : begin + steps])
        ended = part.terminated | part.truncated
        # what is told of an episode's end is rubbish elsewhere
        ends = [torch.where(ended, each, 0) for each in (part.episode_return, part.episode_length)]
        told.append([*leaves(part.obs), part.reward, part.terminated, part.truncated, *ends])
        begin += steps
    state = env.state_dict()
    whole = [torch.cat(column) for column in zip(*told, strict=True)]
    return bits(*whole, *(state[name] for name in ("obs", "state", "ages", "episodes", "returns")))
