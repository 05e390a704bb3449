"""Measure, at the end of a run, how well a world model predicts stored episodes; the result goes to dreams.json.

A dream predicts later observations from one state and the actions that followed, without seeing observations. Errors
are root mean squares, in standard deviations of each observed quantity: always predicting its mean has error 1.
Shapes: L instants, B sequences, H steps of a dream.
"""

from collections.abc import Iterator
from typing import NamedTuple

import gymnasium as gym
import torch
from torch import Tensor
from torch.nn import functional as F

from stride.agents.base import Agent
from stride.agents.experience.nouns import Sequences, tree_map
from stride.agents.networks.dreamer_policy import Carry, ModelPolicy
from stride.agents.networks.world_model import State
from stride.config.schema import Config
from stride.envs_fast.vec_env import Obs
from stride.envs_gym.spaces import is_image
from stride.runstore.dreams import STEPS, Dreams, write_dreams
from stride.runstore.run_dir import RunDir

OBSERVED_STEPS = 16  # instants that the model observes before the first dream
DREAMS_PER_SEQUENCE = 16  # dreams of each sequence, which begin one instant after the other
SEQUENCES = 64  # drawn from the replay memory

Spaces = dict[str, gym.Space]


class DreamErrors(NamedTuple):
    """Errors of predictions so many steps ahead, [quantities, steps]; NaN if a quantity never changes, or no episode
    lasted so long."""

    names: list[str]
    """of the quantities"""
    dreamt: Tensor
    """[quantities, steps] of the world model's dreams"""
    unchanged: Tensor
    """[quantities, steps] for comparison: of predicting that nothing changes"""
    starts: Tensor
    """[steps] number of dreams that the error is a mean of"""


def judge_dreams(config: Config, agent: Agent, run: RunDir) -> dict[str, float]:
    """Measure the dreams, write dreams.json and return the metrics: {"test/dream/error/1": 0.21, ...}.

    {} if the policy has no world model, or the replay memory holds too little. Call it only when the last checkpoint is
    on disk: it draws from the memory, which changes the memory's count of draws.
    """
    length = OBSERVED_STEPS + DREAMS_PER_SEQUENCE + max(STEPS)
    if not isinstance(agent.policy, ModelPolicy) or not agent.memory.ready(length + 1):
        return {}
    start = agent.stopwatch.begin()
    errors = open_loop(agent.policy, agent.memory.sequences(SEQUENCES, length), STEPS, OBSERVED_STEPS)
    quantity_names = [quantity.name for quantity in config.spec.observations]
    if len(quantity_names) != len(errors.names):
        quantity_names = [quantity_name or "observation" for quantity_name in errors.names]
    starts = tuple(int(count) for count in errors.starts.tolist())
    dreams = Dreams(STEPS, tuple(quantity_names), errors.dreamt.tolist(), errors.unchanged.tolist(), starts)
    write_dreams(run, dreams)
    agent.stopwatch.end("evaluate", start)
    return dreams.metrics()


@torch.no_grad()
def open_loop(policy: ModelPolicy, batch: Sequences, steps: tuple[int, ...], observed: int) -> DreamErrors:
    """Compare dreams that begin at each instant of sequences [L, B, ..] with what was observed.

    `steps`: how many steps ahead, (1, 5, 15). `observed`: instants before the first dream. Sequences begin with an
    empty state. A dream is compared until its episode ends, the final observation included.
    """
    horizon = max(steps)
    spaces = policy.model.senses.leaves
    quantity_names = [quantity_name for quantity_name, _ in quantities(batch.obs, spaces)]
    truth = [numbers.float() for _, numbers in quantities(batch.obs, spaces)]
    spread = torch.stack([x.var((0, 1), unbiased=False).sum() for x in truth])
    # sums of squared errors [2, quantities, steps]
    squares = torch.zeros(2, len(truth), len(steps), dtype=torch.float64, device=spread.device)  # dreamt, unchanged
    starts = torch.zeros(len(steps), device=spread.device)
    for t, state in enumerate(recognised(policy, batch)):
        if not observed <= t < len(batch.reward) - horizon:
            continue
        dream = policy.dream(state, batch.action[t + 1 : t + 1 + horizon].transpose(0, 1))
        dreamt = [numbers.float() for _, numbers in quantities(at_steps(dream.obs, steps), spaces)]
        same_episode = batch.is_first[t + 1 : t + 1 + horizon].cumsum(0) == 0  # [H, B] no episode began after t
        for i, step in enumerate(steps):
            counts = same_episode[step - 1]
            starts[i] += counts.sum()
            for j, x in enumerate(truth):
                squares[0, j, i] += (dreamt[j][:, i] - x[t + step]).square().sum(-1)[counts].sum()
                squares[1, j, i] += (x[t] - x[t + step]).square().sum(-1)[counts].sum()
    scale = torch.where(spread > 0, spread, torch.nan)[:, None] * starts
    dreamt_error, unchanged_error = (squares / scale).sqrt()
    return DreamErrors(quantity_names, dreamt_error, unchanged_error, starts)


def recognised(policy: ModelPolicy, batch: Sequences) -> Iterator[State]:
    """Yield the world model's most likely state [B, ..] at each of the L instants, from the observations up to it."""
    carry = policy.initial(batch.reward.shape[1])
    begins = batch.is_first.clone()
    begins[0] = True
    actions = torch.cat((batch.action[1:], batch.action[:1]))  # [t]: action taken after instant t; the last is not used
    for t in range(len(begins)):
        state = policy.recognise(tree_map(lambda x: x[t], batch.obs), carry, begins[t], None)  # noqa: B023
        yield state
        carry = Carry(*state, policy.actions(actions[t]))


def at_steps(observations: Obs, steps: tuple[int, ...]) -> Obs:
    """Select some steps of dreams: [B, H, ..] -> [B, len(steps), ..]."""
    indices = [step - 1 for step in steps]
    return tree_map(lambda x: x[:, indices], observations)


def quantities(obs: Obs, spaces: Spaces) -> Iterator[tuple[str, Tensor]]:
    """Split an observation with two leading dimensions into quantities that are judged separately.

    Yield name and numbers [.., .., K]. K is 1 for a number, the number of options for a choice (one-hot), and the
    number of pixels for an image. Example: a Box(4) named "obs" gives "obs 0" to "obs 3", each with K = 1.
    """
    for space_name, space in spaces.items():
        value = obs[space_name] if isinstance(obs, dict) else obs
        if is_image(space):
            yield space_name, value.flatten(2)
            continue
        if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
            options = space.n if isinstance(space, gym.spaces.Discrete) else max(space.nvec)
            numbers = F.one_hot(value.flatten(2) if value.dim() > 2 else value[..., None], int(options))
        else:
            numbers = value.flatten(2)[..., None]
        for index, part in enumerate(numbers.unbind(2)):
            yield f"{space_name} {index}".strip() if numbers.shape[2] > 1 else space_name, part
