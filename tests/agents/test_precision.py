"""`precision: bf16`: the networks' products are bfloat16, and nothing else is; 32 touches nothing."""

from copy import deepcopy

import pytest
import torch
from driven import advance, agent_for
from same_as_eager import everything, weights
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from stride.agents.experience.nouns import leaves
from stride.agents.networks.precision import compute_in
from stride.agents.networks.squashed import SquashedPolicy

PRODUCTS = {"mm", "addmm", "bmm", "convolution", "mkldnn_convolution", "linear", "mkldnn_linear", "_linear_pointwise"}
FLOATS = {torch.float32, torch.float64, torch.bfloat16}
SMALL = ("n_envs=2", "n_steps=8", "batch_size=1.0", "n_epochs=1", "hidden_dims=[16,16]")
IMAGES = ("n_envs=1", *SMALL[1:], "policy=cnn", "obs=pixels")
REPLAY = ("n_envs=2", "buffer_size=1000", "learning_starts=4", "train_freq=4", "batch_size=8", "hidden_dims=[16,16]")
REPLAY += ("gradient_steps=2",)
KINDS = {
    "mlp": ["CartPole-v1:ppo", *SMALL],
    "shared trunk, gaussian": ["Pendulum-v1:ppo", *SMALL, "share_trunk=true", "normalize_obs=true"],
    "cnn": ["CartPole-v1:ppo", *IMAGES, "resize_obs=36", "policy_kwargs.features=16"],
    "residual": ["CartPole-v1:ppo", *IMAGES, "resize_obs=16", "policy_kwargs.cnn=residual"],
    "lstm": ["CartPole-v1:ppo", *SMALL, "policy=lstm"],
    "gru": ["CartPole-v1:reinforce", *SMALL, "policy=gru", "policy_targets=advantages"],
    "mingru": ["CartPole-v1:ppo", *SMALL, "policy=mingru"],
    "transformer": ["CartPole-v1:ppo", *SMALL, "policy=transformer"],
    "pqn": ["CartPole-v1:pqn", *SMALL],
    "dqn": ["CartPole-v1:dqn", *REPLAY, "dueling=true", "quantiles=5", "double_q=true"],
    "sac": ["Pendulum-v1:sac", *REPLAY],
}


class Products(TorchDispatchMode):
    """Notes the types of the numbers that go into products."""

    def __init__(self):
        super().__init__()
        self.types = set()

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        if operation._schema.name.partition("::")[2] in PRODUCTS:
            self.types |= {x.dtype for x in args if isinstance(x, torch.Tensor)}
        return operation(*args, **(kwargs or {}))


def forward(agent):
    """What an agent's networks make of the present observations, float numbers alone."""
    obs, collector = agent.collector.obs, agent.collector
    noise = torch.full((collector.envs.num_envs, agent.policy.draws), 0.3)
    with torch.no_grad():
        act = agent.policy.act(obs, collector.carry, collector.is_first, noise, False)
        explained = agent.policy.explain(obs, collector.carry, collector.is_first)
        outputs = [act.action, *leaves(act.carry), *explained.distribution.values(), explained.entropy]
        outputs += [] if explained.value is None else [explained.value]
        if isinstance(agent.policy, SquashedPolicy):
            outputs += [agent.critics(obs, act.action), *agent.policy.draw(obs, noise)]
    return [x for x in outputs if x.is_floating_point()]


def recorded(agent):
    """The losses that the agent will descend by, as they come."""
    differentiate, losses = agent.differentiate, []

    def noting(optimizer, values, loss="loss"):
        losses.append(values[loss].detach())
        return differentiate(optimizer, values, loss)

    agent.differentiate = noting
    return losses


@pytest.mark.parametrize("name", KINDS)
def test_networks_compute_in_bfloat16_and_nothing_else_does(name):
    agents = [agent_for(*KINDS[name], "engine=eager", f"precision={precision}") for precision in ("bf16", "32")]
    types, answers = [], []
    for agent in agents:
        with Products() as products:
            answers.append(forward(agent))
        types.append(products.types)
    assert types == [{torch.bfloat16}, {torch.float32}]
    assert {x.dtype for x in answers[0]} == {torch.float32}
    assert all(torch.allclose(x, y, atol=0.05) for x, y in zip(*answers, strict=True))
    assert not all(map(torch.equal, *answers))

    for agent in agents:
        losses = recorded(agent)
        advance(agent, 3)
        assert losses and {loss.dtype for loss in losses} == {torch.float32}
        tensors = [x for x in tree_leaves(everything(agent)) if isinstance(x, torch.Tensor)]
        assert {x.dtype for x in tensors} & FLOATS <= {torch.float32, torch.float64}
    low, full = (torch.cat([x.flatten() for x in weights(agent)]) for agent in agents)
    assert torch.isfinite(low).all() and not torch.equal(low, full)


@pytest.mark.parametrize("precision", ["32", "tf32"])
def test_other_precisions_change_nothing_in_an_agent(precision):
    agent = agent_for("CartPole-v1:ppo", *SMALL, "engine=eager")
    compute_in(precision if precision == "tf32" else 32, agent)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in agent.modules())


@pytest.fixture
def layers():
    network = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
    compute_in("bf16", network)
    return network


def test_weights_are_converted_each_time(layers):
    """Also inside somebody's autocast, whose cache would hand out what they were before; so would a CUDA graph's."""
    x = torch.ones(2, 3)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        before = layers(x)
        layers[0].weight += 1
        assert not torch.equal(before, layers(x))


def test_a_network_that_raises_ends_its_region(layers):
    with pytest.raises(RuntimeError):
        layers(torch.ones(2, 4))
    assert not torch.is_autocast_enabled("cpu")
    assert layers(torch.ones(2, 3)).dtype == torch.float32


def test_a_copy_computes_alike(layers):
    copy, x = deepcopy(layers), torch.rand(2, 3)
    with Products() as products:
        assert torch.equal(copy(x), layers(x))
    assert products.types == {torch.bfloat16}
