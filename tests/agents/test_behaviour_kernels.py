"""A behaviour in kernels against Dreamer's own: the same choices, and losses and gradients within rounding."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from model_cases import assert_near, generator, randomise
from probe_envs import Probe

from stride.agents.dreamer import Dreamer
from stride.agents.engines.fused_cpu.model_losses import DreamLosses, DreamStart
from stride.agents.engines.fused_cpu.model_nets import KernelPool
from stride.agents.engines.fused_cpu.workers import Workers
from stride.agents.networks.world_model import State
from stride.config.schema import DreamerConfig

SPACES = {
    "choice": gym.spaces.Discrete(5),
    "choices": gym.spaces.MultiDiscrete([3, 2, 4]),
    "numbers": gym.spaces.Box(-1, 1, (3,)),
}
SIZES = {"small": {}, "odd": dict(deter=24, stoch=3, classes=5, width=20)}


def agent_of(space, sizes, starts):
    """A Dreamer in whose actions all weights have a part."""
    worlds = Probe(2)
    worlds.action_space = space
    config = DreamerConfig(
        algo_id="dreamer", n_envs=2, max_timesteps=1000, buffer_size=1000, batch_size=4, batch_length=16,
        imagined_starts=starts, horizon=6, **sizes,
    )  # fmt: skip
    agent = Dreamer(config, worlds)
    randomise(agent.policy.parameters(), seed=5)
    return agent


def start_of(agent, starts):
    sizes, g = agent.policy.sizes, generator(7)
    deter = torch.rand(starts, sizes.deter, generator=g) * 2 - 1
    chosen = torch.randint(sizes.classes, (starts, sizes.stoch), generator=g)
    return State(deter, torch.eye(sizes.classes)[chosen].flatten(1))


def kernels_of(agent, threads):
    return DreamLosses(agent, KernelPool(Workers(threads), threads))


def learnt(agent, losses):
    """Losses, metrics and range, then gradients of the loss in which the actor's counts twice."""
    (parts, metrics), policy = losses, agent.policy
    weights = [*policy.torso.parameters(), *policy.head.parameters(), *policy.critic.parameters()]
    gradients = torch.autograd.grad(2 * parts["policy"] + parts["critic"], weights)
    return [*parts.values(), *metrics.values(), agent.range.value.clone()], dict(enumerate(gradients))


@pytest.mark.parametrize("starts", [32, 24])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", SPACES)
def test_what_is_imagined_and_learnt_from_it_is_torchs(kind, sizes, starts):
    results = []
    for threads in (0, 1, 2):
        agent, alive = agent_of(SPACES[kind], SIZES[sizes], starts), torch.ones(starts)
        alive[3] = 0
        losses = kernels_of(agent, threads).losses if threads else agent.behaviour_loss
        results.append(learnt(agent, losses(start_of(agent, starts), alive, agent.draw().guess, agent.draw().action)))
    (numbers, gradients), (mine, slopes), (same, too) = results
    assert all(map(torch.equal, (*mine, *slopes.values()), (*same, *too.values())))
    torch.testing.assert_close(mine, numbers, atol=1e-5, rtol=1e-5)
    assert_near(slopes, gradients, 2e-5)


@pytest.mark.parametrize("kind", SPACES)
def test_the_same_states_are_come_to_by_the_same_choices(kind):
    agent = agent_of(SPACES[kind], SIZES["odd"], 24)
    start, draws = start_of(agent, 24), agent.draw()
    features, actions = agent.imagine(start, draws.guess, draws.action)
    dreamt = kernels_of(agent, 1).imagine(DreamStart(start, torch.ones(24), draws.guess, draws.action))
    torch.testing.assert_close(dreamt.table["features"][:, :24], features, atol=1e-5, rtol=1e-5)
    chosen = dreamt.table["actions"][:, :24].view_as(actions)
    if kind == "numbers":
        torch.testing.assert_close(chosen, actions, atol=1e-5, rtol=1e-5)
    else:
        assert torch.equal(chosen, actions) and len(chosen.unique()) > 1


def test_weights_are_read_from_where_they_are_now():
    agent = agent_of(SPACES["choice"], SIZES["odd"], 16)
    draws, kernels = agent.draw(), kernels_of(agent, 1)
    given = DreamStart(start_of(agent, 16), torch.ones(16), draws.guess, draws.action)
    before = kernels.imagine(given).table["features"]
    layer = agent.policy.head.linear
    layer.weight.data = -layer.weight.data  # memory of its own, as an optimizer's buffer would be
    features, actions = agent.imagine(given.state, draws.guess, draws.action)
    after = kernels.imagine(given).table
    assert torch.equal(after["actions"].view_as(actions), actions) and not np.allclose(after["features"], before)
    torch.testing.assert_close(after["features"], features, atol=1e-5, rtol=1e-5)


def test_a_nan_shows_in_all_losses_and_teaches_no_range():
    """The guard looks at losses: a kernel must not hide its inputs."""
    agent = agent_of(SPACES["choice"], SIZES["odd"], 16)
    draws, start = agent.draw(), start_of(agent, 16)
    start.deter[3, 0] = torch.nan
    losses, _ = kernels_of(agent, 1).losses(start, torch.ones(16), draws.guess, draws.action)
    assert all(loss.isnan() for loss in losses.values()) and agent.range.value == 0
