"""Imagination in kernels against Dreamer's own: the same choices, features within rounding, for any threads."""

import gymnasium as gym
import numpy as np
import pytest
import torch
from probe_envs import Probe

from agents.dreamer import Dreamer
from agents.engines.fused_cpu.model_learn import KernelUnroll
from agents.networks.world_model import State
from config.schema import DreamerConfig

SPACES = {
    "choice": gym.spaces.Discrete(5),
    "choices": gym.spaces.MultiDiscrete([3, 2, 4]),
    "numbers": gym.spaces.Box(-1, 1, (3,)),
}
SIZES = {
    "small": {},
    "odd": dict(deter=24, stoch=3, classes=5, width=20),
}


def agent_of(space, sizes, starts):
    """A Dreamer in whose actions all weights have a part."""
    worlds = Probe(2)
    worlds.action_space = space
    config = DreamerConfig(
        algo_id="dreamer", n_envs=2, max_timesteps=1000, buffer_size=1000, batch_size=4, batch_length=16,
        imagined_starts=starts, horizon=6, **sizes,
    )  # fmt: skip
    agent, g = Dreamer(config, worlds), torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in agent.policy.parameters():
            rows = parameter.shape[-1] if parameter.dim() > 1 else 4
            parameter.copy_(torch.randn(parameter.shape, generator=g) * rows**-0.5 + (parameter.dim() == 1))
    return agent


def start_of(agent, starts):
    sizes, g = agent.policy.sizes, torch.Generator().manual_seed(7)
    deter = torch.rand(starts, sizes.deter, generator=g) * 2 - 1
    chosen = torch.randint(sizes.classes, (starts, sizes.stoch), generator=g)
    return State(deter, torch.eye(sizes.classes)[chosen].flatten(1))


@pytest.mark.parametrize("starts", [32, 24])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("kind", SPACES)
def test_what_is_imagined_is_what_torch_imagines(kind, sizes, starts):
    agent = agent_of(SPACES[kind], SIZES[sizes], starts)
    start, draws = start_of(agent, starts), agent.draw()
    given = (agent.policy, start, draws.guess, draws.action)
    features, actions = agent.unroll.imagine(*given)
    found = {threads: KernelUnroll(threads).imagine(*given) for threads in (1, 2)}
    for mine, chosen in found.values():
        assert chosen.shape == actions.shape and chosen.dtype == actions.dtype
        if kind == "numbers":
            torch.testing.assert_close(chosen, actions, atol=1e-5, rtol=1e-5)
        else:
            assert torch.equal(chosen, actions)
            assert len(chosen.unique()) > 1
        torch.testing.assert_close(mine, features, atol=1e-5, rtol=1e-5)
    assert torch.equal(found[1][0], found[2][0]) and torch.equal(found[1][1], found[2][1])


def test_weights_are_found_where_they_lie_now():
    agent = agent_of(SPACES["choice"], SIZES["odd"], 16)
    start, draws = start_of(agent, 16), agent.draw()
    given, kernels = (agent.policy, start, draws.guess, draws.action), KernelUnroll(1)
    before, _ = kernels.imagine(*given)
    layer = agent.policy.head.linear
    layer.weight.data = -layer.weight.data  # memory of its own, as an optimizer's buffer would be
    features, actions = agent.unroll.imagine(*given)
    after, chosen = kernels.imagine(*given)
    assert torch.equal(chosen, actions) and not np.allclose(after, before)
    torch.testing.assert_close(after, features, atol=1e-5, rtol=1e-5)
