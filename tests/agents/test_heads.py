"""Action heads against torch.distributions and their frequencies, and masks: what is forbidden is never done."""

import math

import numpy as np
import pytest
import torch
from goodness import ALPHA, chi_square
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from probe_envs import Probe
from torch import distributions as dist
from torch import nn
from worlds import driven, generator

from stride.agents.dqn import DQN
from stride.agents.experience.nouns import Transitions
from stride.agents.networks.actor_critic import ActorCritic, Plan
from stride.agents.networks.heads import Categorical, Gaussian, MultiCategorical, Normal
from stride.agents.ppo import PPO
from stride.agents.reinforce import REINFORCE
from stride.config.schema import DQNConfig, PPOConfig, REINFORCEConfig
from stride.envs_gym.spaces import MASK
from stride.utils.counter_rng import ACT, Key, uniforms

DRAWS = 100_000
LARGEST = 1 - 2.0**-24  # of the table's uniforms
CHOICES = {"one": [4], "several": [2, 5, 3]}


def head_of(choices, std=1.0):
    """Weights large enough that the distribution is far from uniform."""
    head = Categorical(5, *choices) if len(choices) == 1 else MultiCategorical(5, choices)
    for i, parameter in enumerate(head.parameters()):
        nn.init.normal_(parameter, std=std, generator=generator(i))
    return head


def masks(choices, *lead):
    """In each choice something is allowed, and seldom everything."""
    parts = []
    for k, n in enumerate(choices):
        mask = torch.rand(*lead, n, generator=generator(k)) < 0.4
        parts.append(mask.scatter(-1, torch.randint(0, n, (*lead, 1), generator=generator(k + 9)), True))
    return torch.cat(parts, -1)


@pytest.mark.parametrize("shape", [(70,), (4, 70)])
@pytest.mark.parametrize("std", [1.0, 30.0], ids=["wide", "extreme"])
@pytest.mark.parametrize("masked", [False, True], ids=["free", "masked"])
@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
def test_choices_equal_torchs(choices, masked, std, shape):
    head, h = head_of(choices, std), torch.randn(*shape, 5, generator=generator())
    parameters, logits = head(h), head.linear(h)
    if masked:
        mask = masks(choices, *shape)
        parameters, logits = head.restrict(parameters, mask), logits.masked_fill(~mask, -math.inf)
    parts = [dist.Categorical(logits=x) for x in logits.split(choices, -1)]
    action = head.sample(parameters, torch.rand(*shape, head.draws, generator=generator(1)))
    assert action.dtype == torch.int64 and head.draws == len(choices)
    taken = action.view(*shape, len(choices)).unbind(-1)
    close = {"rtol": 1e-4, "atol": 1e-4}
    torch.testing.assert_close(parameters.exp(), torch.cat([part.probs for part in parts], -1), **close)
    log_prob = sum(part.log_prob(choice) for part, choice in zip(parts, taken, strict=True))
    torch.testing.assert_close(head.log_prob(parameters, action), log_prob, **close)
    entropy = sum(-torch.special.xlogy(part.probs, part.probs).sum(-1) for part in parts)
    torch.testing.assert_close(head.entropy(parameters), entropy, **close)
    modes = torch.stack([part.probs.argmax(-1) for part in parts], -1)
    assert torch.equal(head.mode(parameters).view(modes.shape), modes) and all(len(x.unique()) > 1 for x in taken)


@pytest.mark.parametrize(
    ("chances", "allowed"),
    [
        ([[0.5, 0.02, 0.08, 0.1, 0.3]], [True] * 5),
        ([[0.3, 0.7], [0.2, 0.5, 0.3]], [True] * 5),
        ([[0.4, 0.1, 0.3, 0.2]], [False, True, True, False]),
    ],
    ids=["one", "several, independent", "masked"],
)
def test_choices_are_as_frequent_as_they_are_likely(chances, allowed):
    chances, allowed = [torch.tensor(p).double() for p in chances], torch.tensor(allowed)
    head, sizes = head_of([len(p) for p in chances]), [len(p) for p in chances]
    parameters = head.restrict(torch.cat(chances).log().float(), allowed).expand(DRAWS, -1)
    action = head.sample(parameters, uniforms(Key(11, ACT), (DRAWS, len(sizes)))).view(DRAWS, -1)
    joint, cell = torch.ones(1).double(), 0
    for k, (p, part) in enumerate(zip(chances, allowed.split(sizes), strict=True)):
        joint = (joint[:, None] * (p * part / (p * part).sum())).flatten()
        cell = cell * len(p) + action[:, k]
    counts = torch.bincount(cell, minlength=len(joint))
    assert ALPHA < chi_square(counts.numpy(), joint.numpy()) < 1 - ALPHA


@pytest.mark.parametrize("u", [0.0, 2.0**-24, 0.5, 1 - 2.0**-23, LARGEST])
@pytest.mark.parametrize("std", [1.0, 30.0])
@pytest.mark.parametrize("choices", [[9], [2, 4, 3]], ids=["one", "several"])
def test_nothing_forbidden_is_ever_taken(choices, std, u):
    mask = ((torch.arange(512)[:, None] >> torch.arange(9)) & 1).bool()
    mask = mask[torch.stack([part.any(1) for part in mask.split(choices, 1)]).all(0)]
    head = head_of(choices, std)
    parameters = head.restrict(head(torch.randn(len(mask), 5, generator=generator())), mask)
    for action in (head.sample(parameters, torch.full((len(mask), head.draws), u)), head.mode(parameters)):
        for part, choice in zip(mask.split(choices, 1), action.view(len(mask), -1).T, strict=True):
            assert part.gather(1, choice[:, None]).all()
        assert head.log_prob(parameters, action).isfinite().all()


@pytest.mark.parametrize("n", [1, 2, 18, 1000])
def test_the_ends_of_the_table_are_the_first_and_the_last_choice(n):
    head, even = Categorical(5, n), torch.zeros(2, n).log_softmax(-1)
    assert head.sample(even, torch.tensor([[0.0], [LARGEST]])).tolist() == [0, n - 1]
    # uniform 0 is below nothing: an action of probability 0 is passed over
    assert head.sample(torch.tensor([[-math.inf, 0.0, -200.0]]), torch.zeros(1, 1)).item() == 1


@pytest.mark.parametrize("choices", [[4], [2, 3]], ids=["one", "several"])
def test_where_nothing_is_allowed_the_choice_is_uniform_and_teaches_nothing(choices):
    """Never in a row that is acted upon; the observation after the last action may well be such a one."""
    head, nothing = head_of(choices), torch.zeros(6, sum(choices), dtype=torch.bool)
    parameters = head.restrict(head(torch.randn(6, 5, generator=generator())), nothing)
    action = head.sample(parameters, torch.rand(6, head.draws, generator=generator(1)))
    expected = torch.full((6,), sum(math.log(n) for n in choices))
    torch.testing.assert_close(head.entropy(parameters), expected)
    torch.testing.assert_close(head.log_prob(parameters, action), -expected)
    (head.entropy(parameters) + head.log_prob(parameters, action)).sum().backward()
    assert not any(p.grad.any() for p in head.parameters())


@pytest.mark.parametrize("masked", [False, True], ids=["free", "masked"])
def test_gradients_are_finite_and_leave_forbidden_actions_alone(masked):
    head, h = head_of([4], 30.0), torch.randn(200, 5, generator=generator())
    mask = masks([4], 200) | ~torch.tensor(masked)
    mask[:, 2] = not masked
    mask[~mask.any(1), 0] = True
    parameters = head.restrict(head(h), mask) if masked else head(h)
    action = head.sample(parameters, torch.rand(200, 1, generator=generator(1)))
    (head.log_prob(parameters, action).sum() + head.entropy(parameters).sum()).backward()
    gradient = head.linear.weight.grad
    assert gradient.isfinite().all() and gradient[0].any()
    assert (gradient[2].abs().max() > 1e-4 * gradient.abs().max()) == (not masked)


# --- numbers


@pytest.mark.parametrize("shape", [(7,), (4, 7)])
def test_gaussian_equals_torchs(shape):
    head, h = Gaussian(5, 2, log_std_init=-0.7), torch.randn(*shape, 5, generator=generator())
    parameters = head(h)
    expected = dist.Independent(dist.Normal(head.linear(h), torch.full((2,), -0.7).exp()), 1)
    action = head.sample(parameters, torch.rand(*shape, 2, generator=generator(1)))
    assert action.shape == (*shape, 2) and head.draws == 2
    torch.testing.assert_close(head.log_prob(parameters, action), expected.log_prob(action))
    torch.testing.assert_close(head.entropy(parameters), expected.entropy())
    assert torch.equal(head.mode(parameters), expected.mode)


def test_gaussian_moments_and_ends():
    mean, std = torch.tensor([2.0, -1.0]), torch.tensor([0.5, 3.0])
    parameters = Normal(mean.expand(DRAWS, 2), std.log().expand(DRAWS, 2))
    z = ((Gaussian(1, 2).sample(parameters, uniforms(Key(11, ACT), (DRAWS, 2))) - mean) / std).double()
    spread = 5 / DRAWS**0.5  # 5 sigma is 6e-7
    for power, moment, sigma in ((1, 0, 1), (2, 1, 2**0.5), (3, 0, 15**0.5), (4, 3, 96**0.5)):
        assert (z.pow(power).mean(0) - moment).abs().max() < spread * sigma
    assert z.prod(1).mean().abs() < spread
    low, high = Gaussian(1, 1).sample(Normal(*torch.zeros(2, 2, 1)), torch.tensor([[0.0], [LARGEST]])).flatten()
    assert -6 < low < -5 and 5 < high < 6


@pytest.mark.parametrize(("init", "bound"), [(9.0, 2.0), (-9.0, -5.0)])
def test_gaussian_deviation_is_bounded(init, bound):
    assert Gaussian(5, 2, init)(torch.randn(3, 5)).log_std.eq(bound).all()


# --- masks in policies and agents

SEEN = Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.uint8])
def test_a_policy_reads_its_mask_from_the_observation_and_not_as_a_feature(dtype):
    policy = ActorCritic(Plan(Dict({"action_mask": MultiBinary(3), "at": SEEN}), Discrete(3), (8,)))
    assert policy.encoder.keys == ["at"] and policy.encoder.size == 2
    mask = ((torch.arange(50)[:, None] % 7 + 1) >> torch.arange(3)) % 2 == 1
    obs = {"at": torch.randn(50, 2), MASK: mask.to(dtype)}
    first = torch.ones(50, dtype=torch.bool)
    for greedy in (False, True):
        action = policy.act(obs, (), first, uniforms(Key(1, ACT), (50, 1)), greedy).action
        assert mask.gather(1, action[:, None]).all()
    judged = policy.evaluate(obs, (), first, action)
    free = ActorCritic(Plan(SEEN, Discrete(3), (8,)))
    free.load_state_dict(policy.state_dict())
    torch.testing.assert_close(judged.value, free.evaluate(obs["at"], (), first, action).value)
    log_probs = free.actor(free.encoder(obs["at"])).masked_fill(~mask, -math.inf).log_softmax(-1)
    torch.testing.assert_close(judged.log_prob, log_probs.gather(1, action[:, None])[:, 0])
    assert torch.equal(judged.entropy == 0, mask.sum(1) == 1)


class Forbidden(Probe):
    """One step; action 0 pays most and is forbidden, the allowed one of 1 and 2 pays 1, the other would pay 5."""

    number = 1  # of choices at once

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.action_space = Discrete(3) if self.number == 1 else MultiDiscrete([3] * self.number)
        self.observation_space = Dict({"at": self.observation_space, "action_mask": MultiBinary(3 * self.number)})
        self.taken = []

    def sight(self):
        left = self.coin > 0
        part = torch.stack((torch.zeros_like(left), left, ~left), 1)
        return {"at": super().sight(), MASK: part.repeat(1, self.number)}

    def reward(self, action):
        right = torch.where(self.coin > 0, 1, 2)[:, None]
        action = action.view(len(right), -1)
        self.taken.append((action.clone(), right))
        return ((action == right) * 1.0 + (action == 0) * 10.0 + ((action != right) & (action != 0)) * 5.0).mean(1)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(
    ("agent", "config"),
    [
        (PPO, PPOConfig(policy_lr=1e-2, n_envs=8, n_steps=16)),
        (PPO, PPOConfig(policy="gru", hidden_dims=(8,), n_envs=8, n_steps=16)),
        (REINFORCE, REINFORCEConfig(policy_lr=1e-2, n_envs=8, n_steps=16, policy_targets="advantages")),
    ],
    ids=["ppo", "ppo gru", "reinforce"],
)
def test_an_agent_never_does_what_is_forbidden_however_well_it_would_pay(monkeypatch, number, agent, config):
    """So what it does is forced: it has no entropy, and nothing diverges."""
    monkeypatch.setattr(Forbidden, "number", number)
    envs = Forbidden(8)
    row = driven(agent(config, envs), 8).metrics.flush()
    assert all(torch.equal(action, right.expand(8, number)) for action, right in envs.taken)
    assert row["train/policy/entropy"] == pytest.approx(0, abs=1e-6)
    assert agent is REINFORCE or row["train/policy/approx_kl"] == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("double_q", [False, True])
def test_no_future_is_worth_what_is_forbidden_there(double_q):
    """An action is worth the best that is allowed next, whatever was allowed before it."""
    agent = DQN(DQNConfig(n_envs=8, double_q=double_q, buffer_size=800), Forbidden(8))
    at, one = torch.linspace(-1, 1, 6)[:, None], torch.ones(6)
    before = {"at": at, MASK: torch.tensor([[True, False, False]]).expand(6, 3)}
    after = {"at": at.flip(0), MASK: torch.tensor([[False, False, True], [False, True, False]]).repeat(3, 1)}
    batch = Transitions(before, one.long(), one, 0.9 * one, after, one.long(), one)
    with torch.no_grad():
        q = agent.target(after)
    allowed = torch.tensor([2, 1]).repeat(3)[:, None]
    torch.testing.assert_close(agent.judge(batch), 1 + 0.9 * q.gather(1, allowed)[:, 0])
