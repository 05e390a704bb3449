"""Action masks: what is forbidden is never done, and the numbers are those of a distribution over what is allowed."""

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from probe_envs import Probe
from torch import distributions as dist
from torch import nn
from worlds import Scripted, driven, random_tables

from stride.agents.dqn import DQN
from stride.agents.experience.nouns import Transitions
from stride.agents.networks.actor_critic import ActorCritic, Plan
from stride.agents.networks.encoders import FlatEncoder
from stride.agents.networks.heads import Categorical, MultiCategorical
from stride.agents.ppo import PPO
from stride.agents.reinforce import REINFORCE
from stride.config.schema import DQNConfig, PPOConfig, REINFORCEConfig
from stride.envs_gym.spaces import MASK
from stride.utils.counter_rng import ACT, Key, uniforms
from stride.utils.user_error import UserError

LARGEST = 1 - 2.0**-24  # of the table's uniforms


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """These networks are too small to share."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def wide(head, std=1.0):
    for i, parameter in enumerate(head.parameters()):
        nn.init.normal_(parameter, std=std, generator=generator(i))
    return head


def masks(rows, n, seed=3):
    """Every row allows something, and few rows everything."""
    mask = torch.rand(rows, n, generator=generator(seed)) < 0.4
    mask[torch.arange(rows), torch.randint(0, n, (rows,), generator=generator(seed + 1))] = True
    return mask


def all_masks(n):
    """Each set of n actions but the empty one."""
    return ((torch.arange(1, 2**n)[:, None] >> torch.arange(n)) & 1).bool()


def test_three_actions_by_hand():
    """Probabilities 0.5, 0.2, 0.3 without the first: 0.4 and 0.6."""
    head, free = Categorical(1, 3), torch.tensor([[0.5, 0.2, 0.3]]).log()
    parameters = head.restrict(free, torch.tensor([[False, True, True]]))
    torch.testing.assert_close(parameters.exp(), torch.tensor([[0.0, 0.4, 0.6]]))
    entropy = -(0.4 * math.log(0.4) + 0.6 * math.log(0.6))
    assert head.entropy(parameters).item() == pytest.approx(entropy, abs=1e-6)
    assert head.log_prob(parameters, torch.tensor([1])).item() == pytest.approx(math.log(0.4), abs=1e-6)
    assert head.mode(parameters).item() == 2
    u = torch.tensor([[0.0], [0.39], [0.41], [LARGEST]])
    assert head.sample(parameters.expand(4, 3), u).tolist() == [1, 1, 2, 2]


@pytest.mark.parametrize("n", [2, 5, 18])
@pytest.mark.parametrize("std", [1.0, 30.0], ids=["wide", "extreme"])
def test_categorical_equals_torchs_over_the_allowed_logits(n, std):
    head = wide(Categorical(5, n), std)
    h, mask = torch.randn(500, 5, generator=generator()), masks(500, n)
    parameters = head.restrict(head(h), mask)
    expected = dist.Categorical(logits=head.linear(h).masked_fill(~mask, -math.inf))
    action = head.sample(parameters, torch.rand(500, 1, generator=generator(1)))
    torch.testing.assert_close(parameters.exp(), expected.probs, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(head.log_prob(parameters, action), expected.log_prob(action), rtol=1e-4, atol=1e-4)
    by_hand = -torch.special.xlogy(expected.probs, expected.probs).sum(-1)
    torch.testing.assert_close(head.entropy(parameters), by_hand, rtol=1e-4, atol=1e-5)
    assert mask.gather(1, head.mode(parameters)[:, None]).all()
    torch.testing.assert_close(parameters.exp().masked_fill(~mask, 0).sum(-1), torch.ones(500))


@pytest.mark.parametrize("u", [0.0, 2.0**-24, 0.5, 1 - 2.0**-23, LARGEST])
@pytest.mark.parametrize("std", [1.0, 30.0])
def test_nothing_forbidden_is_ever_taken(u, std):
    n = 9
    mask = all_masks(n)
    head = wide(Categorical(5, n), std)
    parameters = head.restrict(head(torch.randn(len(mask), 5, generator=generator())), mask)
    for action in (head.sample(parameters, torch.full((len(mask), 1), u)), head.mode(parameters)):
        assert mask.gather(1, action[:, None]).all()


@pytest.mark.parametrize("u", [0.0, 0.3, LARGEST])
def test_nothing_forbidden_is_taken_in_any_of_several_choices(u):
    choices = [2, 4, 3]
    head = wide(MultiCategorical(5, choices), 3.0)
    mask = torch.cat([masks(300, n, seed=n) for n in choices], 1)
    parameters = head.restrict(head(torch.randn(300, 5, generator=generator())), mask)
    for action in (head.sample(parameters, torch.full((300, 3), u)), head.mode(parameters)):
        for part, chosen in zip(mask.split(choices, 1), action.T, strict=True):
            assert part.gather(1, chosen[:, None]).all()


def test_multi_categorical_is_the_product_of_its_masked_parts():
    choices = [2, 4, 3]
    head, h = wide(MultiCategorical(5, choices)), torch.randn(300, 5, generator=generator())
    mask = torch.cat([masks(300, n, seed=n) for n in choices], 1)
    parameters = head.restrict(head(h), mask)
    logits = head.linear(h).masked_fill(~mask, -math.inf).split(choices, -1)
    parts = [dist.Categorical(logits=x) for x in logits]
    action = head.sample(parameters, torch.rand(300, 3, generator=generator(1)))
    log_prob = sum(part.log_prob(action[:, i]) for i, part in enumerate(parts))
    torch.testing.assert_close(head.log_prob(parameters, action), log_prob, rtol=1e-4, atol=1e-5)
    entropy = sum(-torch.special.xlogy(part.probs, part.probs).sum(-1) for part in parts)
    torch.testing.assert_close(head.entropy(parameters), entropy, rtol=1e-4, atol=1e-5)


def test_frequencies_under_a_mask():
    head, draws = Categorical(1, 4), 100_000
    free = torch.tensor([0.4, 0.1, 0.3, 0.2]).log()
    parameters = head.restrict(free, torch.tensor([False, True, True, False])).expand(draws, 4)
    counts = torch.bincount(head.sample(parameters, uniforms(Key(5, ACT), (draws, 1))), minlength=4)
    assert counts[[0, 3]].tolist() == [0, 0]
    assert abs(counts[1].item() / draws - 0.25) < 5 * (0.25 * 0.75 / draws) ** 0.5


@pytest.mark.parametrize(("head", "parts"), [(Categorical(5, 4), [4]), (MultiCategorical(5, [2, 3]), [2, 3])])
def test_where_nothing_is_allowed_the_choice_is_uniform_and_teaches_nothing(head, parts):
    """Never in a row that is acted upon; the observation after the last action may well be such a one."""
    wide(head)
    mask = torch.zeros(6, sum(parts), dtype=torch.bool)
    parameters = head.restrict(head(torch.randn(6, 5, generator=generator())), mask)
    action = head.sample(parameters, torch.rand(6, head.draws, generator=generator(1)))
    expected = sum(math.log(n) for n in parts)
    torch.testing.assert_close(head.entropy(parameters), torch.full((6,), expected))
    torch.testing.assert_close(head.log_prob(parameters, action), torch.full((6,), -expected))
    (head.entropy(parameters) + head.log_prob(parameters, action)).sum().backward()
    assert not any(p.grad.any() for p in head.parameters())


def test_gradients_are_finite_and_leave_forbidden_actions_alone():
    head = wide(Categorical(5, 4), 30.0)
    h, mask = torch.randn(200, 5, generator=generator()), masks(200, 4)
    mask[:, 2] = False
    mask[~mask.any(1), 0] = True
    parameters = head.restrict(head(h), mask)
    action = head.sample(parameters, torch.rand(200, 1, generator=generator(1)))
    (head.log_prob(parameters, action).sum() + head.entropy(parameters).sum()).backward()
    gradient = head.linear.weight.grad
    assert gradient.isfinite().all() and gradient[0].any()
    torch.testing.assert_close(gradient[2], torch.zeros(5), rtol=0, atol=1e-4 * gradient.abs().max().item())


# --- in a policy

SEEN = Box(-1, 1, (2,), np.float32)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.uint8])
def test_a_policy_reads_its_mask_from_the_observation_and_not_as_a_feature(dtype):
    space = Dict({"action_mask": MultiBinary(3), "at": SEEN})
    policy = ActorCritic(Plan(space, Discrete(3), (8,)))
    assert policy.encoder.keys == ["at"] and policy.encoder.size == 2
    mask = masks(50, 3)
    obs = {"at": torch.randn(50, 2, generator=generator()), MASK: mask.to(dtype)}
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


@pytest.mark.parametrize(
    ("action_space", "mask", "message"),
    [
        (Discrete(3), MultiBinary(4), r"action_mask has the shape \[4\], the actions need \[3\]"),
        (MultiDiscrete([2, 3]), MultiBinary(6), r"action_mask has the shape \[6\], the actions need \[5\]"),
        (Box(-1, 1, (2,)), MultiBinary(2), r"has an action_mask, but only discrete actions can be masked"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(action_space, mask, message):
    with pytest.raises(UserError, match=message):
        ActorCritic(Plan(Dict({"action_mask": mask, "at": SEEN}), action_space, (8,)))


def test_a_mask_alone_is_nothing_to_look_at():
    with pytest.raises(UserError, match="the observation holds nothing beside action_mask"):
        FlatEncoder(Dict({"action_mask": MultiBinary(3)}), False)


class Forbidden(Probe):
    """One step; action 0 pays most and is forbidden, the allowed one of 1 and 2 pays 1, the other would pay 5."""

    choices: tuple[int, ...] = (3,)

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.action_space = Discrete(3) if len(self.choices) == 1 else MultiDiscrete(self.choices)
        seen = {"at": self.observation_space, "action_mask": MultiBinary(sum(self.choices))}
        self.observation_space = Dict(seen)
        self.taken = []

    def _masked(self, at):
        left = self.coin[:, None] > 0
        part = torch.cat((torch.zeros_like(left), left, ~left), 1)
        return {"at": at, MASK: torch.cat([part] * len(self.choices), 1)}

    def reset(self, seed):
        return self._masked(super().reset(seed))

    def step(self, action):
        self.taken.append((action.clone(), self.coin.clone()))
        step = super().step(action)
        return step._replace(obs=self._masked(step.obs), final_obs=self._masked(step.final_obs))

    def reward(self, action):
        right = torch.where(self.coin > 0, 1, 2)[:, None]
        action = action.view(len(right), -1)
        return ((action == right) * 1.0 + (action == 0) * 10.0 + ((action != right) & (action != 0)) * 5.0).mean(1)


class ForbiddenTwice(Forbidden):
    """The same for two choices at once."""

    choices = (3, 3)


@pytest.mark.parametrize("worlds", [Forbidden, ForbiddenTwice])
@pytest.mark.parametrize(
    ("agent", "config"),
    [
        (PPO, PPOConfig(policy_lr=1e-2, n_envs=8, n_steps=16)),
        (PPO, PPOConfig(policy="gru", hidden_dims=(8,), n_envs=8, n_steps=16)),
        (REINFORCE, REINFORCEConfig(policy_lr=1e-2, n_envs=8, n_steps=16, policy_targets="advantages")),
    ],
    ids=["ppo", "ppo gru", "reinforce"],
)
def test_an_agent_never_does_what_is_forbidden_however_well_it_would_pay(worlds, agent, config):
    envs = worlds(8)
    driven(agent(config, envs), 8)
    for action, coin in envs.taken:
        wanted = torch.where(coin > 0, 1, 2)
        assert torch.equal(action.view(8, -1), wanted[:, None].expand(8, len(worlds.choices)))


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


def test_forced_actions_have_no_entropy_and_no_divergence():
    agent = driven(PPO(PPOConfig(n_envs=8, n_steps=16), Forbidden(8)), 3)
    row = agent.metrics.flush()
    assert row["train/policy/entropy"] == pytest.approx(0, abs=1e-6)
    assert row["train/policy/approx_kl"] == pytest.approx(0, abs=1e-6)


def test_masked_worlds_that_cut_episodes_train():
    """Final observations whose mask is rubbish do no harm: no action is ever chosen there."""

    class Masked(Scripted):
        def __init__(self, *tables):
            super().__init__(*tables)
            self.observation_space = Dict({"at": self.observation_space, "action_mask": MultiBinary(3)})

        def reset(self, seed):
            return {"at": super().reset(seed), MASK: torch.ones(self.num_envs, 3, dtype=torch.bool)}

        def step(self, action):
            step = super().step(action)
            allowed = torch.arange(3) != self.now % 3
            obs = {"at": step.obs, MASK: allowed.expand(self.num_envs, 3).clone()}
            return step._replace(obs=obs, final_obs={"at": step.final_obs, MASK: torch.zeros_like(obs[MASK])})

    agent = driven(PPO(PPOConfig(n_envs=4, n_steps=8, normalize_obs="rolling"), Masked(*random_tables(40, 4, 0))), 3)
    assert all(math.isfinite(x) for x in agent.metrics.flush().values())
    row = agent.memory.table
    assert row.obs[MASK].gather(2, row.action[..., None]).all()
