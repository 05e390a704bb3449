"""Heads against torch.distributions and their frequencies, encoders against NumPy, and what an actor-critic owns."""

import math

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from torch import distributions as dist
from torch import nn
from worlds import weights

from stride.agents.networks.actor_critic import ActorCritic, Plan
from stride.agents.networks.encoders import FlatEncoder, RunningNorm, StaticNorm
from stride.agents.networks.heads import Categorical, Gaussian, MultiCategorical, Normal, head_for
from stride.agents.networks.policies import build_policy
from stride.config.schema import PPOConfig
from stride.utils.counter_rng import ACT, Key, uniforms
from stride.utils.devices import CPU
from stride.utils.user_error import UserError

DRAWS = 100_000
ALPHA = 1e-6
LARGEST = 1 - 2.0**-24  # of the table's uniforms
BOX = Box(-np.inf, np.inf, (3,), np.float32)


def table(draws, n=DRAWS, seed=11):
    return uniforms(Key(seed, ACT), (n, draws))


def p_of_chi_square(counts, expected):
    chi_square = ((counts - expected).square() / expected).sum()
    return torch.special.gammaincc(torch.tensor((len(counts) - 1) / 2, dtype=torch.float64), chi_square / 2).item()


def hidden(*shape, size=5):
    return torch.randn(*shape, size, generator=torch.Generator().manual_seed(0))


def wide(head):
    """Weights large enough that the distribution is far from uniform."""
    for i, parameter in enumerate(head.parameters()):
        nn.init.normal_(parameter, generator=torch.Generator().manual_seed(i))
    return head


# --- heads


@pytest.mark.parametrize("shape", [(7,), (4, 7)])
def test_categorical_equals_torchs(shape):
    head, h = wide(Categorical(5, 3)), hidden(*shape)
    parameters, expected = head(h), dist.Categorical(logits=head.linear(h))
    action = head.sample(parameters, torch.rand(*shape, 1, generator=torch.Generator().manual_seed(1)))
    assert action.shape == shape and action.dtype == torch.int64 and len(action.unique()) > 1
    torch.testing.assert_close(head.log_prob(parameters, action), expected.log_prob(action))
    torch.testing.assert_close(head.entropy(parameters), expected.entropy())
    assert torch.equal(head.mode(parameters), expected.mode)


def test_categorical_frequencies():
    probabilities = torch.tensor([0.5, 0.02, 0.08, 0.1, 0.3], dtype=torch.float64)
    head = Categorical(1, 5)
    action = head.sample(probabilities.log().float().expand(DRAWS, 5), table(1))
    counts = torch.bincount(action, minlength=5).double()
    assert ALPHA < p_of_chi_square(counts, probabilities * DRAWS) < 1 - ALPHA


@pytest.mark.parametrize("n", [1, 2, 3, 7, 18, 1000])
def test_categorical_stays_in_range_at_the_ends_of_the_table(n):
    head = wide(Categorical(5, n))
    parameters = head(hidden(2000))
    ends = torch.tensor([0.0, LARGEST])
    for u, limit in zip(ends, ("low", "high"), strict=True):
        action = head.sample(parameters, u.expand(2000, 1))
        assert action.min() >= 0 and action.max() < n
        assert head.log_prob(parameters, action).isfinite().all()
        if limit == "low":
            assert not action.any()
    uniform = head.sample(torch.zeros(1, n).log_softmax(-1), ends[1:, None])
    assert uniform.item() == n - 1


def test_categorical_never_takes_an_impossible_first_choice():
    """Uniform 0 lies below nothing: an action of probability 0 is passed over."""
    log_probs = torch.tensor([[-math.inf, 0.0, -200.0]])
    assert Categorical(1, 3).sample(log_probs, torch.zeros(1, 1)).item() == 1


def test_categorical_of_extreme_logits_has_finite_numbers_and_gradients():
    head = Categorical(1, 3)
    with torch.no_grad():
        head.linear.weight.copy_(torch.tensor([[300.0], [0.0], [-300.0]]))
    parameters = head(torch.ones(1, 1))
    loss = head.entropy(parameters).sum() + head.log_prob(parameters, torch.tensor([2])).sum()
    loss.backward()
    assert loss.isfinite() and head.linear.weight.grad.isfinite().all()


@pytest.mark.parametrize("shape", [(7,), (4, 7)])
def test_multi_categorical_is_the_product_of_its_parts(shape):
    choices = [2, 5, 3]
    head, h = wide(MultiCategorical(5, choices)), hidden(*shape)
    parameters = head(h)
    expected = [dist.Categorical(logits=logits) for logits in head.linear(h).split(choices, -1)]
    action = head.sample(parameters, torch.rand(*shape, head.draws, generator=torch.Generator().manual_seed(1)))
    assert head.draws == 3 and action.shape == (*shape, 3) and action.dtype == torch.int64
    log_prob = sum(d.log_prob(action[..., i]) for i, d in enumerate(expected))
    torch.testing.assert_close(head.log_prob(parameters, action), log_prob)
    torch.testing.assert_close(head.entropy(parameters), sum(d.entropy() for d in expected))
    assert torch.equal(head.mode(parameters), torch.stack([d.mode for d in expected], -1))


def test_multi_categorical_frequencies_are_independent():
    first, second = torch.tensor([0.3, 0.7]).double(), torch.tensor([0.2, 0.5, 0.3]).double()
    parameters = torch.cat([first, second]).log().float().expand(DRAWS, 5)
    action = MultiCategorical(1, [2, 3]).sample(parameters, table(2))
    counts = torch.bincount(action[:, 0] * 3 + action[:, 1], minlength=6).double()
    assert ALPHA < p_of_chi_square(counts, (first[:, None] * second).flatten() * DRAWS) < 1 - ALPHA


@pytest.mark.parametrize("shape", [(7,), (4, 7)])
def test_gaussian_equals_torchs(shape):
    head, h = Gaussian(5, 2, log_std_init=-0.7), hidden(*shape)
    parameters = head(h)
    expected = dist.Independent(dist.Normal(head.linear(h), torch.full((2,), -0.7).exp()), 1)
    action = head.sample(parameters, torch.rand(*shape, 2, generator=torch.Generator().manual_seed(1)))
    assert action.shape == (*shape, 2) and head.draws == 2
    torch.testing.assert_close(head.log_prob(parameters, action), expected.log_prob(action))
    torch.testing.assert_close(head.entropy(parameters), expected.entropy())
    assert torch.equal(head.mode(parameters), expected.mode)


def test_gaussian_moments_and_shape():
    mean, std = torch.tensor([2.0, -1.0]), torch.tensor([0.5, 3.0])
    parameters = Normal(mean.expand(DRAWS, 2), std.log().expand(DRAWS, 2))
    z = ((Gaussian(1, 2).sample(parameters, table(2)) - mean) / std).double()
    spread = 5 / DRAWS**0.5  # 5 sigma is 6e-7
    assert z.mean(0).abs().max() < spread
    assert (z.square().mean(0) - 1).abs().max() < spread * 2**0.5
    assert z.pow(3).mean(0).abs().max() < spread * 15**0.5
    assert (z.pow(4).mean(0) - 3).abs().max() < spread * 96**0.5
    assert z.prod(1).mean().abs() < spread


def test_gaussian_is_finite_at_the_ends_of_the_table():
    parameters = Normal(torch.zeros(2, 1), torch.zeros(2, 1))
    ends = Gaussian(1, 1).sample(parameters, torch.tensor([[0.0], [LARGEST]])).flatten()
    assert -6 < ends[0] < -5 and 5 < ends[1] < 6


@pytest.mark.parametrize(("init", "bound"), [(9.0, 2.0), (-9.0, -5.0)])
def test_gaussian_deviation_is_bounded(init, bound):
    parameters = Gaussian(5, 2, init)(hidden(3))
    assert torch.equal(parameters.log_std, torch.full((3, 2), bound))


@pytest.mark.parametrize(
    ("space", "kind", "draws"),
    [(Discrete(4), Categorical, 1), (MultiDiscrete([2, 3]), MultiCategorical, 2), (Box(-1, 1, (2, 3)), Gaussian, 6)],
)
def test_head_for(space, kind, draws):
    head = head_for(space, 5)
    assert type(head) is kind and head.draws == draws
    assert head.sample(head(hidden(4)), torch.rand(4, draws)).shape[0] == 4


def test_head_for_an_unknown_space():
    with pytest.raises(TypeError, match="MultiBinary"):
        head_for(MultiBinary(3), 5)


# --- encoders


@pytest.mark.parametrize("cuts", [[1000], [1, 2, 997], [400, 0, 600], [10] * 100])
def test_running_norm_in_chunks_equals_numpy_over_all(cuts):
    if 0 in cuts:
        cuts = [c for c in cuts if c]
    rows = np.random.default_rng(0).normal([100, -3, 0], [0.5, 20, 1e-3], (1000, 3))
    norm, start = RunningNorm(3), 0
    for n in cuts:
        norm.learn(torch.tensor(rows[start : start + n], dtype=torch.float32).view(n, 1, 3))
        start += n
    single = rows.astype(np.float32).astype(np.float64)
    np.testing.assert_allclose(norm.mean, single.mean(0), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(norm.var, single.var(0), rtol=1e-4)
    assert norm.count == 1000
    x = torch.tensor(rows, dtype=torch.float32)
    np.testing.assert_allclose(norm(x).double().std(0), 1, rtol=1e-2)


def test_running_norm_begins_as_identity_and_clips():
    norm = RunningNorm(2)
    x = torch.tensor([[1.0, -2.0], [50.0, -50.0]])
    torch.testing.assert_close(norm(x), torch.tensor([[1.0, -2.0], [10.0, -10.0]]))


def test_running_norm_of_something_constant_is_finite():
    norm = RunningNorm(1)
    for _ in range(3):
        norm.learn(torch.full((5, 1), 7.0))
    assert norm(torch.full((1, 1), 7.0)).item() == 0


def test_running_norm_keeps_its_place_in_memory():
    norm = RunningNorm(2)
    before = [x.data_ptr() for x in norm.buffers()]
    norm.learn(torch.randn(4, 2))
    assert [x.data_ptr() for x in norm.buffers()] == before


def test_static_norm_maps_the_bounds_to_one():
    low, high = np.array([-4.0, 0, 10], np.float32), np.array([4.0, 1, 30], np.float32)
    norm = StaticNorm(Box(low, high), "position")
    middle = torch.tensor((low + high) / 2)
    result = norm(torch.stack([torch.tensor(low), middle, torch.tensor(high)]))
    torch.testing.assert_close(result, torch.tensor([[-1.0], [0.0], [1.0]]).expand(3, 3))


@pytest.mark.parametrize("bound", [np.inf, np.finfo(np.float32).max, 1.0], ids=["inf", "float max", "no width"])
def test_static_norm_refuses_what_has_no_bounds(bound):
    low, high = np.array([-1, -bound if bound > 1 else 1], np.float32), np.array([1, bound], np.float32)
    with pytest.raises(UserError, match=r"position has none at index 1; use rolling"):
        FlatEncoder(Dict({"position": Box(low, high)}), "static")


IMAGE = Box(0, 255, (2, 2, 3), np.uint8)
SPACES = {
    "box": (BOX, 3),
    "scalar": (Box(-1, 1, (), np.float32), 1),
    "matrix": (Box(-1, 1, (2, 4), np.float32), 8),
    "image": (IMAGE, 12),
    "discrete": (Discrete(4), 4),
    "multi-discrete": (MultiDiscrete([2, 5]), 7),
}


def sample(space, *lead):
    """Integers up to the bound, as tensors of the space's kind."""
    generator = torch.Generator().manual_seed(0)
    if isinstance(space, Discrete):
        return torch.randint(0, int(space.n), lead, generator=generator)
    if isinstance(space, MultiDiscrete):
        return torch.stack([torch.randint(0, int(n), lead, generator=generator) for n in space.nvec], -1)
    x = torch.randint(0, 2, (*lead, *space.shape), generator=generator)
    return x.to(torch.uint8 if space.dtype == np.uint8 else torch.float32)


def flat_by_hand(space, x, lead):
    """One vector per instant, in plain loops."""
    rows = []
    for index in np.ndindex(*lead):
        if isinstance(space, Discrete):
            row = [float(i == x[index]) for i in range(int(space.n))]
        elif isinstance(space, MultiDiscrete):
            row = [float(i == x[index][k]) for k, n in enumerate(space.nvec) for i in range(int(n))]
        else:
            row = x[index].float().reshape(-1).tolist()
        rows.append(row)
    return torch.tensor(rows).view(*lead, -1)


@pytest.mark.parametrize("lead", [(6,), (5, 6), (1, 1)])
@pytest.mark.parametrize("name", SPACES)
def test_flat_encoder_of_one_space(name, lead):
    space, width = SPACES[name]
    encoder, x = FlatEncoder(space, False), sample(space, *lead)
    result = encoder(x)
    assert encoder.size == width and result.shape == (*lead, width) and result.dtype == torch.float32
    assert torch.equal(result, flat_by_hand(space, x, lead))


@pytest.mark.parametrize("lead", [(6,), (5, 6)])
@pytest.mark.parametrize("normalize", [False, True, "rolling"])
def test_flat_encoder_of_a_dict(lead, normalize):
    """Normalising starts as the identity, and one-hot leaves have no statistics at all."""
    spaces = {name: space for name, (space, _) in SPACES.items()}
    encoder = FlatEncoder(Dict(spaces), normalize)
    obs = {name: sample(encoder_space, *lead) for name, encoder_space in reversed(spaces.items())}  # found by name
    expected = torch.cat([flat_by_hand(spaces[name], obs[name], lead) for name in encoder.keys], -1)
    assert set(encoder.keys) == set(spaces) and encoder.size == 35
    torch.testing.assert_close(encoder(obs), expected)


@pytest.mark.parametrize("lead", [(6,), (5, 6)])
def test_flat_encoder_learns_boxes_and_nothing_else(lead):
    spaces = {name: space for name, (space, _) in SPACES.items()}
    encoder = FlatEncoder(Dict(spaces), "rolling")
    obs = {name: sample(space, *lead) for name, space in spaces.items()}
    encoder.learn(obs)
    pieces = dict(zip(encoder.keys, encoder(obs).split([SPACES[name][1] for name in encoder.keys], -1), strict=True))
    for name, piece in pieces.items():
        flat = flat_by_hand(spaces[name], obs[name], lead)
        if "discrete" not in name:
            flat = flat.view(-1, flat.shape[-1])
            flat = ((flat - flat.mean(0)) / (flat.var(0, correction=0) + 1e-8).sqrt()).view(*lead, -1)
        torch.testing.assert_close(piece, flat, atol=1e-5, rtol=1e-5)


def test_flat_encoder_static_scales_an_image():
    encoder = FlatEncoder(IMAGE, "static")
    ends = torch.stack([torch.zeros(2, 2, 3), torch.full((2, 2, 3), 255)]).to(torch.uint8)
    torch.testing.assert_close(encoder(ends), torch.tensor([[-1.0], [1.0]]).expand(2, 12))


def test_flat_encoder_refuses_what_it_cannot_read():
    with pytest.raises(UserError, match=r"cannot read words: Text"):
        FlatEncoder(Dict({"words": gym.spaces.Text(5)}), False)


@pytest.mark.parametrize("space", [BOX, Dict({"a": BOX, "b": Discrete(3)})])
def test_the_state_dict_carries_the_statistics(space):
    old, new = FlatEncoder(space, "rolling"), FlatEncoder(space, "rolling")
    obs = BOX_OBS if space is BOX else {"a": BOX_OBS, "b": torch.zeros(20, dtype=torch.long)}
    old.learn(obs)
    assert not torch.equal(old(obs), new(obs))
    new.load_state_dict(old.state_dict())
    assert torch.equal(old(obs), new(obs))
    for encoder in (old, new):
        encoder.learn(obs)
    assert torch.equal(old(obs), new(obs)), "the count went along"


BOX_OBS = torch.randn(20, 3, generator=torch.Generator().manual_seed(4)) * 5 + 2

# --- actor and critic


def actor_critic(**options):
    plan = Plan(BOX, options.pop("action_space", Discrete(4)), hidden_dims=(16, 8))
    own = {"log_std_init": options.pop("log_std_init")} if "log_std_init" in options else {}
    return ActorCritic(plan._replace(**options), **own)


def judged(policy, action=None):
    first = torch.ones(20, dtype=torch.bool)
    return policy.evaluate(BOX_OBS, (), first, torch.zeros(20, dtype=torch.long) if action is None else action)


def test_separate_actor_and_critic_share_no_parameter():
    policy = actor_critic()
    actor, critic = ({id(p) for p in part.parameters()} for part in (policy.actor, policy.critic))
    assert actor and critic and not actor & critic
    assert len(actor | critic) == len(list(policy.parameters())) and policy.parts == ["actor", "critic"]
    judged(policy).value.sum().backward()
    assert all(p.grad is None for p in policy.actor.parameters())


def test_a_shared_trunk_serves_both():
    policy = actor_critic(share_trunk=True)
    sets = [{id(p) for p in part.parameters()} for part in (policy.actor, policy.critic, policy.trunk)]
    assert [len(s) for s in sets] == [2, 2, 4] and len(set.union(*sets)) == 8 == len(list(policy.parameters()))
    assert policy.parts == ["actor", "critic", "trunk"]
    judged(policy).value.sum().backward()
    assert all(p.grad is not None for p in policy.trunk.parameters())
    assert all(p.grad is None for p in policy.actor.parameters())


@pytest.mark.parametrize("share_trunk", [False, True])
def test_without_a_critic_there_is_none(share_trunk):
    policy = actor_critic(critic=False, share_trunk=share_trunk)
    assert policy.critic is None and not [name for name, _ in policy.named_parameters() if "critic" in name]
    assert policy.parts == (["actor", "trunk"] if share_trunk else ["actor"])
    value = judged(policy).value
    assert torch.equal(value, torch.zeros(20)) and not value.requires_grad
    assert torch.equal(policy.value(BOX_OBS[:, None], (), torch.ones(20, 1)), torch.zeros(20, 1))


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
    first = torch.ones(20, dtype=torch.bool)
    noise = uniforms(Key(1, ACT), (20, policy.draws))
    act = policy.act(BOX_OBS, policy.initial(20), first, noise, False)
    again = judged(policy, act.action)
    torch.testing.assert_close(policy.value(BOX_OBS, (), first), again.value)
    assert again.value.shape == again.log_prob.shape == again.entropy.shape == (20,)
    assert (again.log_prob > -30).all()  # what was sampled was possible
    greedy = policy.act(BOX_OBS, (), first, noise, True).action
    assert torch.equal(greedy, policy.act(BOX_OBS, (), first, 1 - noise, True).action)
    assert torch.equal(greedy, policy.head.mode(policy.actor(policy.trunk(policy.encoder(BOX_OBS)))))


class Spaces:
    """All that building a policy looks at."""

    observation_space, action_space, device = BOX, Box(-1, 1, (2,)), CPU


def test_build_policy_reads_the_config():
    config = PPOConfig(
        hidden_dims=(6,),
        activation="relu",
        share_trunk=True,
        normalize_obs="rolling",
        policy_kwargs={"log_std_init": -1},
    )
    policy = build_policy(config, Spaces(), critic=True)
    assert [type(m) for m in policy.trunk] == [nn.Linear, nn.ReLU] and policy.trunk[0].weight.shape == (6, 3)
    assert isinstance(policy.encoder.leaf[0], RunningNorm) and policy.head.log_std.tolist() == [-1, -1]
    assert build_policy(config, Spaces(), critic=False).critic is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"policy": "mpl"}, r"unknown policy 'mpl'; did you mean mlp\?"),
        ({"policy_kwargs": {"log_std": 1}}, r"policy_kwargs: mlp has no 'log_std'; did you mean log_std_init\?"),
    ],
)
def test_build_policy_refuses_unknown_names(options, message):
    with pytest.raises(UserError, match=message):
        build_policy(PPOConfig(**options), Spaces(), critic=True)
