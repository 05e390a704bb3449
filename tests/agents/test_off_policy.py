"""DQN and SAC: targets and losses by hand, how they explore, and when targets move."""

import math

import pytest
import torch
from driven import advance
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from probe_envs import Aimed, ChosenReward
from worlds import driven

from stride.agents.dqn import DQN, huber, quantile_loss
from stride.agents.experience.nouns import Transitions
from stride.agents.networks.heads import Normal
from stride.agents.networks.q_network import QNetworkShape, QPolicy, any_of, best, pick
from stride.agents.networks.squashed import SquashedPolicy, squash_correction, squashed_log_prob
from stride.agents.off_policy import move_towards
from stride.agents.returns import td_target
from stride.agents.sac import SAC, critic_loss, soft_value, temperature_loss
from stride.config.network import NetworkShape
from stride.config.schema import DQNConfig, SACConfig

SEEN, FOUR = Box(-1, 1, (3,)), Discrete(4)


def dqn(**options):
    config = {"n_envs": 4, "hidden_dims": (16,), "max_timesteps": 10**5, "buffer_size": 2000, "learning_starts": 0}
    return driven(DQN(DQNConfig(**{**config, **options}), ChosenReward(4)))


def q_policy(space=SEEN, **shape):
    return QPolicy(space, FOUR, QNetworkShape((8,), "relu", **shape), seed=1)


def test_targets_and_picked_values_by_hand():
    reward, discount = torch.tensor([1.0, 2.0]), torch.tensor([0.9, 0.0])
    assert td_target(reward, discount, torch.tensor([10.0, 10.0])).tolist() == [10.0, 2.0]
    quantiles = torch.tensor([[0.0, 10.0], [5.0, 5.0]])
    assert td_target(reward, discount, quantiles).tolist() == [[1.0, 10.0], [2.0, 2.0]]
    assert pick(torch.arange(6.0).view(2, 3), torch.tensor([2, 0])).tolist() == [2.0, 3.0]
    assert pick(torch.arange(12.0).view(2, 3, 2), torch.tensor([2, 0])).tolist() == [[4.0, 5.0], [6.0, 7.0]]


@pytest.mark.parametrize(
    ("limit", "losses"),
    [(1.0, [2.5, 0.5, 0.125, 1.5]), (2.0, [4.0, 0.5, 0.125, 2.0]), (None, [4.5, 0.5, 0.125, 2.0])],
)
def test_huber_by_hand(limit, losses):
    assert huber(torch.tensor([-3.0, -1.0, 0.5, 2.0]), limit).tolist() == losses


@pytest.mark.parametrize("limit", [1.0, 0.5, None])
def test_quantile_loss_against_its_definition(limit):
    quantiles, target = torch.randn(3, 4), torch.randn(3, 5)
    expected = [0.0, 0.0, 0.0]
    for b, i, j in torch.cartesian_prod(*map(torch.arange, (3, 4, 5))).tolist():
        u = (target[b, j] - quantiles[b, i]).item()
        size = u * u / 2 if limit is None or abs(u) <= limit else limit * (abs(u) - limit / 2)
        expected[b] += abs((i + 0.5) / 4 - (u < 0)) * size / (limit or 1.0) / 5
    assert quantile_loss(quantiles, target, limit).tolist() == pytest.approx(expected, abs=1e-5)


def fixed(agent, online, target):
    """Networks that answer the same everywhere."""
    for network, values in ((agent.policy.network, online), (agent.target, target)):
        with torch.no_grad():
            network.advantage.weight.zero_()
            network.advantage.bias.copy_(torch.tensor(values))


@pytest.mark.parametrize(("double_q", "worth"), [(True, 1.0), (False, 5.0)])
def test_double_q_is_chosen_by_one_network_and_valued_by_the_other(double_q, worth):
    agent = dqn(double_q=double_q)
    fixed(agent, [0.0, 3.0], [5.0, 1.0])
    ones = torch.ones(2)
    batch = Transitions(torch.zeros(2, 1), ones.long(), ones, torch.tensor([0.5, 0.0]), torch.zeros(2, 1), ones, ones)
    assert agent.judge(batch).tolist() == [1 + 0.5 * worth, 1.0]


# --- the policy


def test_what_the_mask_rules_out_is_never_done():
    policy = q_policy(Dict({"x": SEEN, "action_mask": MultiBinary(4)}))
    mask = torch.tensor([[0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 1]]).bool().repeat(500, 1)
    obs = {"x": torch.randn(1500, 3), "action_mask": mask}
    for epsilon, greedy in ((0.0, True), (1.0, False), (0.5, False)):
        policy.epsilon = epsilon
        action = policy.act(obs, (), None, torch.rand(1500, 2), greedy).action
        assert mask[torch.arange(1500), action].all() and set(action.tolist()) == {0, 1, 3}
    assert set(best(torch.zeros(3, 4), mask[:3]).tolist()) == {0, 1, 3}


@pytest.mark.parametrize(("allowed", "counts"), [(None, [250] * 4), ([True, False, True, True], [333, 0, 334, 333])])
def test_a_random_action_is_each_with_the_same_chance(allowed, counts):
    u = (torch.arange(1000) + 0.5) / 1000
    mask = None if allowed is None else torch.tensor(allowed).expand(1000, 4)
    assert torch.bincount(any_of(mask, 4, u)).tolist() == counts
    ends = any_of(mask if mask is None else mask[:2], 4, torch.tensor([0.0, 1 - 2**-24]))
    assert ends.tolist() == [0, 3]


def test_epsilon_is_the_share_of_random_actions():
    policy = q_policy()
    policy.epsilon = 0.3
    obs, noise = torch.randn(1, 3).expand(4000, 3), torch.rand(4000, 2, generator=torch.Generator().manual_seed(1))
    action, opinion = policy.act(obs, (), None, noise, False).action, policy.explain(obs[:1], (), None)
    (chances,) = opinion.distribution["probability"]
    assert chances.sum().item() == pytest.approx(1) and opinion.value.item() == policy.network(obs[:1]).max()
    torch.testing.assert_close(torch.bincount(action, minlength=4) / 4000, chances, atol=0.03, rtol=0)


# --- the hours of the target network


def test_the_target_network_is_copied_by_env_steps():
    """4 worlds x 5 steps are 20 env steps an iteration; every 50 means after 60, 100, 160, 200."""
    agent = dqn(train_freq=5, target_freq=50, policy_lr=1e-2)
    copies = [advance(agent, t > 0).target.advantage.weight.clone() for t in range(11)]
    assert [t for t in range(1, 11) if not torch.equal(copies[t - 1], copies[t])] == [3, 5, 8, 10]


def test_it_moves_as_often_as_its_hour_struck():
    agent = advance(dqn(train_freq=5, target_freq=10, tau=0.1, gradient_steps=1, policy_lr=1e-2), 3)
    fixed(agent, [1.0, 1.0], [0.0, 0.0])
    agent.follow(2)
    assert agent.target.advantage.bias.tolist() == pytest.approx([0.19, 0.19])
    move_towards(agent.target, agent.policy.network, 1.0)
    assert torch.equal(agent.target.advantage.bias, agent.policy.network.advantage.bias)


def test_before_learning_starts_everything_is_random_and_nothing_is_learnt():
    agent = dqn(learning_starts=60, train_freq=5, gradient_steps=-1, epsilon=0.0)
    states = [(agent.policy.epsilon, agent.progress["updates"]) for _ in range(4) if advance(agent, 1)]
    assert states == [(1, 0)] * 3 + [(0, 20)]  # 80 env steps are more than 60


def test_the_errors_reach_the_priorities():
    agent = advance(dqn(prioritised=True, train_freq=20, epsilon=0.5), 3)
    priorities = agent.memory.priorities.state_dict()["leaves"]
    assert len(set(priorities[priorities > 0].tolist())) > 2


# --- SAC


def sac(n=4, **options):
    config = {"n_envs": n, "hidden_dims": (16,), "max_timesteps": 10**5, "buffer_size": 2000, "learning_starts": 0}
    return driven(SAC(SACConfig(**{**config, **options}), Aimed(n)))


def squashed(correlation=0.0, actions=2):
    return SquashedPolicy(SEEN, Box(-1, 1, (actions,)), NetworkShape((16,), "relu"), False, None, 1, correlation)


def test_losses_by_hand():
    q = torch.tensor([[1.0, 4.0], [2.0, 3.0]])
    value = soft_value(q, torch.tensor([-1.0, 2.0]), torch.tensor(0.5))
    assert value.tolist() == [1.5, 2.0]
    assert critic_loss(q, torch.tensor([1.0, 1.0])).item() == ((0 + 9) / 2 + (1 + 4) / 2) / 2
    log_alpha = torch.tensor(0.5, requires_grad=True)
    loss = temperature_loss(log_alpha, torch.tensor([-1.0, 3.0]), -2.0)
    loss.backward()
    assert loss.item() == -0.5 * (1.0 - 2.0)
    assert log_alpha.grad == 1.0, "it shrinks while the entropy, -1, is larger than -2"


def test_log_probabilities_are_those_of_torch():
    mean, log_std, z = torch.randn(3, 50, 2, dtype=torch.float64)
    base = torch.distributions.Normal(mean, log_std.exp())
    exact = torch.distributions.TransformedDistribution(base, torch.distributions.TanhTransform())
    action = mean + log_std.exp() * z
    expected = exact.log_prob(action.tanh().clamp(-1 + 1e-15, 1 - 1e-15)).sum(-1)
    inside = (action.abs() < 8).all(-1)
    log_prob = squashed_log_prob(Normal(mean, log_std), z)
    torch.testing.assert_close(log_prob[inside], expected[inside], atol=1e-6, rtol=1e-6)


def test_the_correction_is_finite_where_tanh_is_one():
    x = torch.tensor([-200.0, -30.0, 0.0, 30.0, 200.0], requires_grad=True)
    y = squash_correction(x)
    y.sum().backward()
    far = [2 * math.log(2) - 2 * size for size in (200, 30)]
    assert y.tolist() == pytest.approx([*far, 0, *far[::-1]], rel=1e-4, abs=1e-6) and x.grad.isfinite().all()


def acted(acting, n, begins):
    """(actions, carries) of steps [T, n] of which those in `begins` open an episode."""
    carry, acts = acting.initial(n), []
    for k in range(6):
        noise = torch.rand(n, 1, generator=torch.Generator().manual_seed(k))
        acts.append(acting.act(torch.zeros(n, 3), carry, torch.full((n,), k in begins), noise, False))
        carry = acts[-1].carry
    return acts


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_random_actions_are_even_also_when_they_are_correlated(correlation):
    acting = squashed(correlation, 1)
    acting.at_random = True
    counts = torch.histc(acted(acting, 4000, (0,))[4].action, 10, -1, 1)
    assert counts.min() > 320 and counts.max() < 480


def test_noise_keeps_its_share_and_stays_standard_normal_and_begins_anew_with_an_episode():
    z = torch.stack([act.carry[:, 0] for act in acted(squashed(0.9, 1), 20000, (0, 4))])
    assert z.std(1).tolist() == pytest.approx([1] * 6, abs=0.03) and z.mean(1).abs().max() < 0.03
    following = [torch.corrcoef(z[k : k + 2])[0, 1].item() for k in range(5)]
    assert following == pytest.approx([0.9, 0.9, 0.9, 0.0, 0.9], abs=0.03)


def test_an_update_is_the_three_losses_apart():
    """One backward pass over the sum gives every part the gradient of its own loss alone."""
    agent = advance(sac(n=1, train_freq=50, gradient_steps=1, policy_lr=1e-3), 1)
    batch = agent.memory.transitions(64, 1, 0.99)
    noise = torch.rand(2, 64, 1)
    together = {}
    agent.optimizer.step = lambda: together.update(
        {p: p.grad.clone() for g in agent.optimizer.param_groups for p in g["params"]}
    )
    target = {name: p.clone() for name, p in agent.target.named_parameters()}
    alpha = agent.log_alpha.detach().exp()
    with torch.no_grad():
        action, log_prob = agent.policy.draw(batch.next_obs, noise[1])
        goal = batch.reward + batch.discount * (agent.target(batch.next_obs, action).amin(0) - alpha * log_prob)
    agent.zero_grad()
    ((agent.critics(batch.obs, batch.action) - goal) ** 2).mean(-1).sum().div(2).backward()
    apart = {p: p.grad.clone() for p in agent.critics.parameters()}
    agent.zero_grad()
    action, log_prob = agent.policy.draw(batch.obs, noise[0])
    (alpha * log_prob - agent.critics(batch.obs, action).amin(0)).mean().backward()
    apart |= {p: p.grad.clone() for p in agent.policy.parameters()}
    apart[agent.log_alpha] = -(log_prob + agent.target_entropy).mean().detach()
    agent.update(batch, noise)
    assert together.keys() == apart.keys()
    for p, gradient in apart.items():
        torch.testing.assert_close(together[p], gradient, atol=1e-6, rtol=1e-4)
    for (name, p), now in zip(agent.target.named_parameters(), agent.critics.parameters(), strict=True):
        torch.testing.assert_close(p, target[name] + 0.005 * (now - target[name]))


def test_a_fixed_temperature_is_not_learnt():
    agent = advance(sac(ent_coef=0.2, train_freq=5), 3)
    assert agent.log_alpha == 0 and agent.metrics.flush()["train/policy/alpha"] == pytest.approx(0.2)


def test_it_acts_at_random_until_learning_starts():
    agent = sac(learning_starts=40, train_freq=5)
    states = [(agent.policy.at_random, agent.progress["updates"]) for _ in range(4) if advance(agent, 1)]
    assert states == [(True, 0), (True, 0), (False, 1), (False, 2)]
