"""How far dreams stray: what a world model tells of later instants without looking, against what was seen there.

Errors are root mean squares in deviations of each thing that is seen: always telling its mean would be off by 1.
"""

from collections.abc import Iterator
from typing import NamedTuple

import gymnasium as gym
import torch
from torch import Tensor
from torch.nn import functional as F

from stride.agents.experience.nouns import Sequences, tree_map
from stride.agents.networks.dreamer_policy import Carry, ModelPolicy
from stride.agents.networks.world_model import State
from stride.envs_fast.vec_env import Obs
from stride.envs_gym.spaces import is_image

Leaves = dict[str, gym.Space]


class Part(NamedTuple):
    """Something seen that has an error of its own."""

    name: str
    """of its leaf, and its place there where it is one of several"""
    numbers: Tensor
    """[.., .., K]: a number, the options of a choice, the pixels of an image"""


class Strayed(NamedTuple):
    """Errors [parts, steps], NaN where a part never changes or no episode lasted so long."""

    names: list[str]
    dreamt: Tensor
    unchanged: Tensor
    """had everything stayed as it was where the dream began"""
    starts: Tensor
    """[steps] from how many instants"""


@torch.no_grad()
def open_loop(policy: ModelPolicy, batch: Sequences, steps: tuple[int, ...], known: int) -> Strayed:
    """Of sequences [L, B, ..] that begin with nothing known: `known` instants are seen before the first dream begins.

    A dream is judged as far as its episode goes, the final observation included.
    """
    furthest, leaves = max(steps), policy.model.senses.leaves
    true = [part.numbers.float() for part in parts(batch.obs, leaves)]
    spread = torch.stack([x.var((0, 1), unbiased=False).sum() for x in true])
    off, still = torch.zeros(2, len(true), len(steps), dtype=torch.float64, device=spread.device)
    starts = torch.zeros(len(steps), device=spread.device)
    for t, state in enumerate(recognised(policy, batch)):
        if not known <= t < len(batch.reward) - furthest:
            continue
        dream = policy.dream(state, batch.action[t + 1 : t + 1 + furthest].transpose(0, 1))
        told = [part.numbers.float() for part in parts(at_steps(dream.obs, steps), leaves)]
        same = batch.is_first[t + 1 : t + 1 + furthest].cumsum(0) == 0  # episode as at t
        for i, step in enumerate(steps):
            counts = same[step - 1]
            starts[i] += counts.sum()
            for j, x in enumerate(true):
                off[j, i] += (told[j][:, i] - x[t + step]).square().sum(-1)[counts].sum()
                still[j, i] += (x[t] - x[t + step]).square().sum(-1)[counts].sum()
    scale = torch.where(spread > 0, spread, torch.nan)[:, None] * starts
    names = [part.name for part in parts(batch.obs, leaves)]
    return Strayed(names, (off / scale).sqrt(), (still / scale).sqrt(), starts)


def recognised(policy: ModelPolicy, batch: Sequences) -> Iterator[State]:
    """The likeliest state at each of L instants, [B, ..]."""
    carry, begins = policy.initial(batch.reward.shape[1]), batch.is_first.clone()
    begins[0] = True
    led_on = torch.cat((batch.action[1:], batch.action[:1]))  # what leads on from the last instant is not asked for
    for t in range(len(begins)):
        state = policy.recognise(tree_map(lambda x: x[t], batch.obs), carry, begins[t], None)  # noqa: B023
        yield state
        carry = Carry(*state, policy.actions(led_on[t]))


def at_steps(seen: Obs, steps: tuple[int, ...]) -> Obs:
    """[B, H, ..] -> [B, len(steps), ..]"""
    places = [step - 1 for step in steps]
    return tree_map(lambda x: x[:, places], seen)


def parts(obs: Obs, leaves: Leaves) -> Iterator[Part]:
    """Of an observation with two leading dimensions, in the order of the space's leaves."""
    for name, space in leaves.items():
        leaf = obs[name] if isinstance(obs, dict) else obs
        if is_image(space):
            yield Part(name, leaf.flatten(2))
            continue
        if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
            most = space.n if isinstance(space, gym.spaces.Discrete) else max(space.nvec)
            each = F.one_hot(leaf.flatten(2) if leaf.dim() > 2 else leaf[..., None], int(most))
        else:
            each = leaf.flatten(2)[..., None]
        for place, numbers in enumerate(each.unbind(2)):
            yield Part(f"{name} {place}".strip() if each.shape[2] > 1 else name, numbers)
