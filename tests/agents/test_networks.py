"""Encoders against NumPy and plain loops, what an actor-critic owns, the fast layer, and the table of policies."""

import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from probe_envs import Spaces, drawn
from refusals import refusals
from torch import nn
from torch.nn import functional as F
from worlds import weights

from stride.agents.networks import layers
from stride.agents.networks.actor_critic import ActorCritic, Plan
from stride.agents.networks.encoders import FlatEncoder, RunningNorm, StaticNorm
from stride.agents.networks.layers import Dense
from stride.agents.networks.policies import build_policy
from stride.config.loader import load_config
from stride.config.schema import PPOConfig
from stride.utils.counter_rng import ACT, Key, uniforms
from stride.utils.user_error import UserError

# --- encoders


@pytest.mark.parametrize("cuts", [[1, 2, 997], [10] * 100])
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


@pytest.mark.parametrize("lead", [(6,), (5, 6)])
@pytest.mark.parametrize("normalize", [False, "rolling"])
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


# --- the fast layer, also where only some gradients are asked for

ACTIVATE = {None: lambda x: x, "relu": torch.relu, "tanh": torch.tanh}


@pytest.mark.parametrize("activation", ACTIVATE)
@pytest.mark.parametrize(("rows", "size_in", "size_out"), [(4, 3, 5), (64, 256, 256), (100, 300, 200), (512, 9, 400)])
def test_values_and_gradients_are_torchs(rows, size_in, size_out, activation):
    layer = Dense(size_in, size_out, activation)
    assert layer._by_onednn(torch.zeros(rows, size_in)) == (
        layers.HAS_ONEDNN and rows * size_in * size_out > layers.MAX_PLAIN_PRODUCTS
    )
    x, up = torch.randn(rows, size_in, requires_grad=True), torch.randn(rows, size_out)
    mine, exact = layer(x), ACTIVATE[activation](F.linear(x, layer.weight, layer.bias))
    results = [(y, *torch.autograd.grad(y, (x, layer.weight, layer.bias), up)) for y in (mine, exact)]
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(layer(x), exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rows", [4, 64])
def test_a_frozen_layer_teaches_its_input_alone(rows):
    layer, x = Dense(256, 256, "relu"), torch.randn(rows, 256, requires_grad=True)
    layer(x, frozen=True).sum().backward()
    assert x.grad is not None and layer.weight.grad is None and layer.bias.grad is None
    x.grad = None
    layer(x.detach()).sum().backward()
    assert x.grad is None and layer.weight.grad is not None


# --- the table of policies: names, options and spaces are checked before training

VECTOR, TWO = Box(-1, 1, (3,), np.float32), Discrete(2)


def built(space=VECTOR, actions=TWO, critic=True, **options):
    return build_policy(PPOConfig(**options), Spaces(space, actions), critic)


def test_the_config_reaches_the_network():
    options = {"hidden_dims": (6,), "activation": "relu", "share_trunk": True, "normalize_obs": "rolling"}
    policy = built(actions=Box(-1, 1, (2,)), policy_kwargs={"log_std_init": -1}, **options)
    assert [type(m) for m in policy.trunk] == [nn.Linear, nn.ReLU] and policy.trunk[0].weight.shape == (6, 3)
    assert isinstance(policy.encoder.leaf[0], RunningNorm) and policy.head.log_std.tolist() == [-1, -1]
    small = built(Box(0, 255, (1, 12, 12), np.uint8), policy="cnn", policy_kwargs={"cnn": "residual", "features": 7},
                  hidden_dims=())  # fmt: skip
    assert small.encoder.size == 7 and small.actor[1].linear.weight.shape == (2, 7)
    usual = built(Box(0, 255, (4, 84, 84), np.uint8), policy="cnn")
    assert usual.encoder.size == 512 and usual.encoder.leaf[0].convolutions[0].kernel_size == (8, 8)
    flat = built(Box(0, 255, (3, 3), np.uint8), policy_kwargs={"flatten_images": True})
    assert flat.encoder.size == 9


SEEN = {
    "vector": VECTOR,
    "screen": Box(0, 255, (3, 84, 84), np.uint8),
    "low": Box(0, 255, (3, 35, 84), np.uint8),
    "grid": Box(0, 1, (5, 5, 3), np.float32),
    "film": Box(0, 255, (2, 3, 40, 40), np.uint8),
    "parts": Dict({"a": VECTOR, "b": Box(0, 255, (9, 9), np.uint8)}),
    **{f"masked{size}": Dict({"action_mask": MultiBinary(size), "at": VECTOR}) for size in (2, 4, 6)},
    "mask": Dict({"action_mask": MultiBinary(3)}),
}
DONE = {"two": TWO, "three": Discrete(3), "pair": MultiDiscrete([2, 3]), "numbers": Box(-1, 1, (2,))}
REFUSED = (
    "vector two policy=mpl", "vector two policy_kwargs.log_std=1", "vector two policy_kwargs.cnn=nature",
    "vector two policy_kwargs.plan=3", "vector two policy_kwargs.log_std_init=hot", "screen two", "parts two",
    "vector two policy=cnn", "low two policy=cnn", "film two policy=cnn",
    "screen two policy=cnn policy_kwargs.cnn=natur",
    "grid two policy=cnn", "grid two policy=cnn policy_kwargs.cnn=small policy_kwargs.kernel=6",
    "grid two policy=cnn policy_kwargs.cnn=small policy_kwargs.channels=[]",
    "grid two policy=cnn policy_kwargs.cnn=small policy_kwargs.channels=[0]",
    "screen two policy=cnn policy_kwargs.channels=[8]",
    "screen two policy=cnn policy_kwargs.feature=3", "screen two policy=cnn policy_kwargs.features=0",
    "masked4 three", "masked6 pair", "masked2 numbers", "mask three",
    "vector two policy=lstm batch_size=24 n_steps=16 n_envs=6",
    "vector two policy=lstm batch_size=0.5 n_steps=16 n_envs=1",
    "vector two policy=lstm hidden_dims=[] batch_size=1.0", "vector two policy=lstm policy_kwargs.hidden_size=0",
)  # fmt: skip


def refused(words):
    seen, done, *overrides = words.split()
    build_policy(load_config("CartPole-v1", "ppo", overrides), Spaces(SEEN[seen], DONE[done]), True)


def test_what_does_not_fit_is_refused_in_one_line(snapshot):
    assert refusals(refused, REFUSED) == snapshot
