"""How far a world model's dreams stray from what was observed, at the end of a run; written to dreams.json.

A dream predicts later instants from a state and the actions that followed, without observing. Errors are root mean
squares in standard deviations of each observed quantity: always predicting its mean would be off by 1.
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

OBSERVED = 16  # instants before the first dream begins
BEGUN = 16  # dreams of each sequence, one after the other
SEQUENCES = 64

Spaces = dict[str, gym.Space]


class DreamErrors(NamedTuple):
    """Errors [quantities, steps], NaN where a quantity never changes or no episode lasted so long."""

    names: list[str]
    dreamt: Tensor
    unchanged: Tensor
    """had everything stayed as it was where the dream began"""
    starts: Tensor
    """[steps] from how many instants"""


def judge_dreams(config: Config, agent: Agent, run: RunDir) -> dict[str, float]:
    """Their metrics, written to the run's folder, too; {} of a policy that does not dream, or remembers too little.

    It takes the memory's next draw: for the end of a run, when its last checkpoint is on the disk.
    """
    length = OBSERVED + BEGUN + max(STEPS)
    if not isinstance(agent.policy, ModelPolicy) or not agent.memory.ready(length + 1):
        return {}
    start = agent.stopwatch.begin()
    errors = open_loop(agent.policy, agent.memory.sequences(SEQUENCES, length), STEPS, OBSERVED)
    metric_names = [quantity.name for quantity in config.spec.observations]
    if len(metric_names) != len(errors.names):
        metric_names = [metric_name or "observation" for metric_name in errors.names]
    starts = tuple(int(count) for count in errors.starts.tolist())
    dreams = Dreams(STEPS, tuple(metric_names), errors.dreamt.tolist(), errors.unchanged.tolist(), starts)
    write_dreams(run, dreams)
    agent.stopwatch.end("evaluate", start)
    return dreams.metrics()


@torch.no_grad()
def open_loop(policy: ModelPolicy, batch: Sequences, steps: tuple[int, ...], observed: int) -> DreamErrors:
    """Of sequences [L, B, ..] that begin with an empty state: `observed` instants come before the first dream.

    A dream is judged as far as its episode goes, the final observation included.
    """
    horizon = max(steps)
    spaces = policy.model.senses.leaves
    metric_names = [metric_name for metric_name, _ in quantities(batch.obs, spaces)]
    truth = [numbers.float() for _, numbers in quantities(batch.obs, spaces)]
    spread = torch.stack([x.var((0, 1), unbiased=False).sum() for x in truth])
    squares = torch.zeros(2, len(truth), len(steps), dtype=torch.float64, device=spread.device)  # dreamt, unchanged
    starts = torch.zeros(len(steps), device=spread.device)
    for t, state in enumerate(recognised(policy, batch)):
        if not observed <= t < len(batch.reward) - horizon:
            continue
        dream = policy.dream(state, batch.action[t + 1 : t + 1 + horizon].transpose(0, 1))
        dreamt = [numbers.float() for _, numbers in quantities(at_steps(dream.obs, steps), spaces)]
        same_episode = batch.is_first[t + 1 : t + 1 + horizon].cumsum(0) == 0  # as at t
        for i, step in enumerate(steps):
            counts = same_episode[step - 1]
            starts[i] += counts.sum()
            for j, x in enumerate(truth):
                squares[0, j, i] += (dreamt[j][:, i] - x[t + step]).square().sum(-1)[counts].sum()
                squares[1, j, i] += (x[t] - x[t + step]).square().sum(-1)[counts].sum()
    scale = torch.where(spread > 0, spread, torch.nan)[:, None] * starts
    dreamt_error, unchanged_error = (squares / scale).sqrt()
    return DreamErrors(metric_names, dreamt_error, unchanged_error, starts)


def recognised(policy: ModelPolicy, batch: Sequences) -> Iterator[State]:
    """The likeliest state at each of L instants, [B, ..]."""
    carry = policy.initial(batch.reward.shape[1])
    begins = batch.is_first.clone()
    begins[0] = True
    actions = torch.cat((batch.action[1:], batch.action[:1]))  # after each instant; the last is not used
    for t in range(len(begins)):
        state = policy.recognise(tree_map(lambda x: x[t], batch.obs), carry, begins[t], None)  # noqa: B023
        yield state
        carry = Carry(*state, policy.actions(actions[t]))


def at_steps(observations: Obs, steps: tuple[int, ...]) -> Obs:
    """[B, H, ..] -> [B, len(steps), ..]"""
    indices = [step - 1 for step in steps]
    return tree_map(lambda x: x[:, indices], observations)


def quantities(obs: Obs, spaces: Spaces) -> Iterator[tuple[str, Tensor]]:
    """Quantities with an error of their own, of an observation with two leading dimensions: name, numbers [.., .., K].

    K is 1 for a number, the count of options of a choice, the pixels of an image.
    """
    for metric_name, space in spaces.items():
        value = obs[metric_name] if isinstance(obs, dict) else obs
        if is_image(space):
            yield metric_name, value.flatten(2)
            continue
        if isinstance(space, gym.spaces.Discrete | gym.spaces.MultiDiscrete):
            options = space.n if isinstance(space, gym.spaces.Discrete) else max(space.nvec)
            numbers = F.one_hot(value.flatten(2) if value.dim() > 2 else value[..., None], int(options))
        else:
            numbers = value.flatten(2)[..., None]
        for index, part in enumerate(numbers.unbind(2)):
            yield f"{metric_name} {index}".strip() if numbers.shape[2] > 1 else metric_name, part
