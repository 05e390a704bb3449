"""Encoders against NumPy and plain loops, and what an actor-critic owns."""

import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete
from probe_envs import drawn
from torch import nn
from worlds import weights

from stride.agents.networks.actor_critic import ActorCritic, Plan
from stride.agents.networks.encoders import FlatEncoder, RunningNorm, StaticNorm
from stride.utils.counter_rng import ACT, Key, uniforms
from stride.utils.user_error import UserError

# --- encoders


@pytest.mark.parametrize("cuts", [[1000], [1, 2, 997], [400, 600], [10] * 100])
def test_running_norm_in_chunks_equals_numpy_over_all(cuts):
    rows = torch.tensor(np.random.default_rng(0).normal([100, -3, 0], [0.5, 20, 1e-3], (1000, 3)), dtype=torch.float32)
    norm = RunningNorm(3)
    places = [x.data_ptr() for x in norm.buffers()]
    for chunk in rows.split(cuts):
        norm.learn(chunk[:, None])
    double = rows.double().numpy()
    np.testing.assert_allclose(norm.mean, double.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(norm.var, double.var(0), rtol=1e-4)
    np.testing.assert_allclose(norm(rows).double().std(0), 1, rtol=1e-2)
    assert norm.count == 1000 and [x.data_ptr() for x in norm.buffers()] == places


def test_running_norm_begins_as_identity_and_clips_and_is_finite_where_nothing_varies():
    norm = RunningNorm(1)
    torch.testing.assert_close(norm(torch.tensor([[1.0], [-50.0]])), torch.tensor([[1.0], [-10.0]]))
    for _ in range(3):
        norm.learn(torch.full((5, 1), 7.0))
    assert norm(torch.full((1, 1), 7.0)).item() == 0


def test_static_norm_maps_the_bounds_to_one():
    low, high = np.array([-4.0, 0, 10], np.float32), np.array([4.0, 1, 30], np.float32)
    rows = torch.tensor(np.stack([low, (low + high) / 2, high]))
    expected = torch.tensor([[-1.0], [0.0], [1.0]])
    torch.testing.assert_close(StaticNorm(Box(low, high), "position")(rows), expected.expand(3, 3))
    ends = torch.stack([torch.zeros(2, 2, 3), torch.full((2, 2, 3), 255)]).to(torch.uint8)
    torch.testing.assert_close(FlatEncoder(SPACES["image"], "static")(ends), expected[::2].expand(2, 12))


@pytest.mark.parametrize("bound", [np.inf, np.finfo(np.float32).max, 1.0], ids=["inf", "float max", "no width"])
def test_static_norm_refuses_what_has_no_bounds(bound):
    low, high = np.array([-1, -bound if bound > 1 else 1], np.float32), np.array([1, bound], np.float32)
    with pytest.raises(UserError, match=r"position has none at index 1; use rolling"):
        FlatEncoder(Dict({"position": Box(low, high)}), "static")


SPACES = {
    "box": Box(-np.inf, np.inf, (3,), np.float32),
    "scalar": Box(-1, 1, (), np.float32),
    "matrix": Box(-1, 1, (2, 4), np.float32),
    "image": Box(0, 255, (2, 2, 3), np.uint8),
    "discrete": Discrete(4),
    "multi-discrete": MultiDiscrete([2, 5]),
}
BOX = SPACES["box"]
ALL = Dict(SPACES)


def flat_by_gymnasium(space, obs, learnt=False):
    """One vector per instant; `learnt`: numbers less their mean, over their deviation."""
    if isinstance(space, Dict):
        return torch.cat([flat_by_gymnasium(leaf, obs[name], learnt) for name, leaf in space.items()], -1)
    lead = obs.shape[: obs.dim() - len(space.shape)]
    instants = obs.reshape(-1, *space.shape).numpy()
    flat = torch.tensor(np.stack([gym.spaces.flatten(space, x) for x in instants]), dtype=torch.float32)
    if learnt and isinstance(space, Box):
        flat = (flat - flat.mean(0)) / (flat.var(0, correction=0) + 1e-8).sqrt()
    return flat.view(*lead, -1)


@pytest.mark.parametrize("lead", [(6,), (5, 6), (1, 1)])
@pytest.mark.parametrize("normalize", [False, True, "rolling"])
@pytest.mark.parametrize("space", [*SPACES.values(), ALL], ids=[*SPACES, "all"])
def test_flat_encoder_reads_and_learns_each_space(space, normalize, lead):
    """Normalising starts as the identity, and choices are not normalised at all; a state dict has all of it."""
    encoder, obs = FlatEncoder(space, normalize), drawn(space, *lead)
    if isinstance(space, Dict):
        obs = dict(reversed(obs.items()))  # leaves are found by name
    assert encoder(obs).dtype == torch.float32 and encoder.size == gym.spaces.flatdim(space)
    expected = flat_by_gymnasium(space, obs)
    torch.testing.assert_close(encoder(obs), expected if normalize is False else expected.clamp(-10, 10))
    if normalize:
        encoder.learn(obs)
        torch.testing.assert_close(encoder(obs), flat_by_gymnasium(space, obs, True), atol=1e-5, rtol=1e-5)
    other = FlatEncoder(space, normalize)
    other.load_state_dict(encoder.state_dict())
    for learner in (encoder, other):
        learner.learn(obs)
    assert torch.equal(encoder(obs), other(obs)), "the count went along"


def test_flat_encoder_refuses_what_it_cannot_read():
    with pytest.raises(UserError, match=r"cannot read words: Text"):
        FlatEncoder(Dict({"words": gym.spaces.Text(5)}), False)


# --- actor and critic

BOX_OBS = torch.randn(20, 3, generator=torch.Generator().manual_seed(4)) * 5 + 2
FIRST = torch.ones(20, dtype=torch.bool)
FOUR = Discrete(4)


def actor_critic(action_space=FOUR, log_std_init=0.0, **options):
    return ActorCritic(Plan(BOX, action_space, hidden_dims=(16, 8))._replace(**options), log_std_init)


def judged(policy, action=None):
    return policy.evaluate(BOX_OBS, (), FIRST, torch.zeros(20, dtype=torch.long) if action is None else action)


@pytest.mark.parametrize("share_trunk", [False, True])
@pytest.mark.parametrize("critic", [False, True])
def test_what_actor_critic_and_trunk_own(share_trunk, critic):
    """Separate ones share no parameter, a trunk serves both, and without a critic there is nothing of it."""
    policy = actor_critic(share_trunk=share_trunk, critic=critic)
    names = ["actor", *["critic"] * critic, *["trunk"] * share_trunk]
    parts = [{id(p) for p in getattr(policy, name).parameters()} for name in names]
    assert policy.parts == names and all(parts)
    assert sum(map(len, parts)) == len(set.union(*parts)) == len(list(policy.parameters()))
    value = judged(policy).value
    assert value.requires_grad == critic and (critic or not value.any())
    if critic:
        value.sum().backward()
        assert all(p.grad is None for p in policy.actor.parameters())
        assert all(p.grad is not None for p in policy.trunk.parameters())
    else:
        assert policy.critic is None and not policy.value(BOX_OBS[:, None], (), FIRST[:, None]).any()


@pytest.mark.parametrize("critic", [False, True])
@pytest.mark.parametrize("share_trunk", [False, True])
@pytest.mark.parametrize("action_space", [Discrete(4), Box(-1, 1, (2,))])
def test_gradient_norms_equal_those_computed_part_by_part(share_trunk, critic, action_space):
    policy = actor_critic(share_trunk=share_trunk, critic=critic, action_space=action_space)
    answer = judged(policy, torch.ones(20, 2) if isinstance(action_space, Box) else None)
    (answer.log_prob.sum() * 3 + answer.value.square().sum()).backward()
    norms = policy.gradient_norms(torch.stack([p.grad.norm() for p in policy.parameters()]))
    modules = {"actor": policy.actor, "critic": policy.critic, "trunk": policy.trunk, "total": policy}
    expected = {
        f"train/grad_norm/{name}": torch.cat([p.grad.flatten() for p in module.parameters()]).norm()
        for name, module in modules.items()
        if module is not None and list(module.parameters())
    }
    assert norms.keys() == expected.keys() and len(norms) == 2 + critic + share_trunk
    for name, norm in expected.items():
        assert norm > 0
        torch.testing.assert_close(norms[name], norm)


def test_the_seed_alone_decides_the_weights():
    policies = []
    for torchs, ours in ((0, 7), (1, 7), (0, 8)):
        torch.manual_seed(torchs)
        policies.append(weights(actor_critic(seed=ours)))
    assert torch.equal(policies[0], policies[1]) and not torch.equal(policies[0], policies[2])


@pytest.mark.parametrize("share_trunk", [False, True])
def test_a_new_policy_is_almost_uniform_and_its_layers_are_orthogonal(share_trunk):
    policy = actor_critic(share_trunk=share_trunk)
    answer = judged(policy)
    assert (answer.log_prob.exp() - 0.25).abs().max() < 0.02
    assert (answer.entropy - math.log(4)).abs().max() < 1e-3
    linears = [m for m in policy.modules() if isinstance(m, nn.Linear)]
    assert all(not m.bias.any() for m in linears)
    for m in linears:
        gain = 0.01 if m is policy.head.linear else 1.0 if m is policy.critic[1] else 2**0.5
        w = m.weight if m.out_features <= m.in_features else m.weight.T
        torch.testing.assert_close(w @ w.T, gain**2 * torch.eye(len(w)), atol=1e-5, rtol=1e-4)


def test_a_new_gaussian_policy_is_centred():
    policy = actor_critic(action_space=Box(-1, 1, (2,)), log_std_init=-0.5)
    parameters = policy.actor(policy.encoder(BOX_OBS))
    assert parameters.mean.abs().max() < 0.1 and torch.equal(parameters.log_std, torch.full((20, 2), -0.5))


@pytest.mark.parametrize("action_space", [Discrete(4), MultiDiscrete([2, 3]), Box(-1, 1, (2,))])
@pytest.mark.parametrize("share_trunk", [False, True])
@pytest.mark.parametrize("hidden_dims", [(), (8,), (16, 8)])
def test_act_value_and_evaluate_agree(action_space, share_trunk, hidden_dims):
    policy = actor_critic(action_space=action_space, share_trunk=share_trunk, hidden_dims=hidden_dims)
    noise = uniforms(Key(1, ACT), (20, policy.draws))
    act = policy.act(BOX_OBS, policy.initial(20), FIRST, noise, False)
    again = judged(policy, act.action)
    torch.testing.assert_close(policy.value(BOX_OBS, (), FIRST), again.value)
    assert again.value.shape == again.log_prob.shape == again.entropy.shape == (20,)
    assert (again.log_prob > -30).all()  # what was sampled was possible
    greedy = policy.act(BOX_OBS, (), FIRST, noise, True).action
    assert torch.equal(greedy, policy.act(BOX_OBS, (), FIRST, 1 - noise, True).action)
    assert torch.equal(greedy, policy.head.mode(policy.actor(policy.trunk(policy.encoder(BOX_OBS)))))
