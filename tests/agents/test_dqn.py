"""DQN's targets and losses by hand, its policy, and when its target network moves."""

import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from probe_envs import ChosenReward
from worlds import driven

from stride.agents.dqn import DQN, huber, quantile_loss
from stride.agents.experience.nouns import Transitions
from stride.agents.networks.q_network import QNetworkShape, QPolicy, any_of, best, pick
from stride.agents.off_policy import move_towards
from stride.agents.returns import td_target
from stride.config.schema import DQNConfig
from stride.utils.user_error import UserError


def dqn(world=ChosenReward, n=4, **options):
    config = {"n_envs": n, "hidden_dims": (16,), "max_timesteps": 10**5, "buffer_size": 2000, "learning_starts": 0}
    return DQN(DQNConfig(**{**config, **options}), world(n))


def test_targets_by_hand():
    reward, discount = torch.tensor([1.0, 2.0]), torch.tensor([0.9, 0.0])
    assert td_target(reward, discount, torch.tensor([10.0, 10.0])).tolist() == [10.0, 2.0]
    quantiles = torch.tensor([[0.0, 10.0], [5.0, 5.0]])
    assert td_target(reward, discount, quantiles).tolist() == [[1.0, 10.0], [2.0, 2.0]]


def test_huber_by_hand():
    error = torch.tensor([-3.0, -1.0, 0.5, 2.0])
    assert huber(error, 1.0).tolist() == [2.5, 0.5, 0.125, 1.5]
    assert huber(error, 2.0).tolist() == [4.0, 0.5, 0.125, 2.0]
    assert huber(error, None).tolist() == [4.5, 0.5, 0.125, 2.0]
    torch.testing.assert_close(huber(error, 1.0), torch.nn.functional.huber_loss(error, error * 0, reduction="none"))


@pytest.mark.parametrize("limit", [1.0, 0.5, None])
def test_quantile_loss_against_its_definition(limit):
    quantiles, target = torch.randn(3, 4), torch.randn(3, 5)
    expected = []
    for b in range(3):
        total = 0.0
        for i in range(4):
            for j in range(5):
                u = (target[b, j] - quantiles[b, i]).item()
                size = u * u / 2 if limit is None or abs(u) <= limit else limit * (abs(u) - limit / 2)
                total += abs((i + 0.5) / 4 - (u < 0)) * size / (limit or 1.0) / 5
        expected.append(total)
    assert quantile_loss(quantiles, target, limit).tolist() == pytest.approx(expected, abs=1e-5)


def test_picking_the_actions_that_were_taken():
    values = torch.arange(6.0).view(2, 3)
    assert pick(values, torch.tensor([2, 0])).tolist() == [2.0, 3.0]
    assert pick(torch.arange(12.0).view(2, 3, 2), torch.tensor([2, 0])).tolist() == [[4.0, 5.0], [6.0, 7.0]]


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


def test_dueling_values_are_the_state_and_the_advantages_around_their_mean():
    policy = QPolicy(Box(-1, 1, (3,)), Discrete(4), QNetworkShape((8,), "relu", dueling=True), seed=1)
    network, obs = policy.network, torch.randn(5, 3)
    features = network.torso(obs)
    value, advantage = network.state_value(features), network.advantage(features)
    torch.testing.assert_close(network(obs), value + advantage - advantage.mean(-1, keepdim=True))


@pytest.mark.parametrize("dueling", [False, True])
def test_quantiles_have_a_dimension_of_their_own(dueling):
    network = QPolicy(
        Box(-1, 1, (3,)), Discrete(4), QNetworkShape((8,), "relu", quantiles=7, dueling=dueling), 1
    ).network
    assert network(torch.randn(5, 3)).shape == (5, 4, 7)
    assert network.mean(torch.randn(2, 5, 3)).shape == (2, 5, 4)


# The policy

SEEN = Dict({"x": Box(-1, 1, (3,)), "action_mask": MultiBinary(4)})


def test_what_the_mask_rules_out_is_never_done():
    policy = QPolicy(SEEN, Discrete(4), QNetworkShape((8,), "relu"), seed=1)
    mask = torch.tensor([[0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 0, 1]]).bool().repeat(500, 1)
    obs = {"x": torch.randn(1500, 3), "action_mask": mask}
    for epsilon, greedy in ((0.0, True), (1.0, False), (0.5, False)):
        policy.epsilon = epsilon
        action = policy.act(obs, (), None, torch.rand(1500, 2), greedy).action
        assert mask[torch.arange(1500), action].all() and set(action.tolist()) == {0, 1, 3}
    assert set(best(torch.zeros(3, 4), mask[:3]).tolist()) == {0, 1, 3}


def test_a_random_action_is_each_with_the_same_chance():
    u = (torch.arange(1000) + 0.5) / 1000
    assert torch.bincount(any_of(None, 4, u)).tolist() == [250] * 4
    mask = torch.tensor([True, False, True, True]).expand(1000, 4)
    assert torch.bincount(any_of(mask, 4, u)).tolist() == [333, 0, 334, 333]
    assert any_of(None, 3, torch.tensor([0.0, 1 - 2**-24])).tolist() == [0, 2]
    assert any_of(mask[:2], 4, torch.tensor([0.0, 1 - 2**-24])).tolist() == [0, 3]


def test_epsilon_is_the_share_of_random_actions():
    policy = QPolicy(Box(-1, 1, (3,)), Discrete(4), QNetworkShape((8,), "relu"), seed=1)
    policy.epsilon = 0.3
    obs, noise = torch.randn(1, 3).expand(4000, 3), torch.rand(4000, 2, generator=torch.Generator().manual_seed(1))
    action = policy.act(obs, (), None, noise, False).action
    told = policy.explain(obs[:1], (), None)
    assert told.distribution["probability"].sum().item() == pytest.approx(1)
    share = torch.bincount(action, minlength=4) / 4000
    torch.testing.assert_close(share, told.distribution["probability"][0], atol=0.03, rtol=0)
    assert told.value.item() == policy.network(obs[:1]).max()


def test_continuous_actions_are_refused_by_name():
    with pytest.raises(UserError, match="one discrete action"):
        QPolicy(Box(-1, 1, (3,)), Box(-1, 1, (2,)), QNetworkShape((8,), "relu"), seed=1)


# The hours of the target network


def moved(agent, iterations):
    """After which iterations the target network was another than before."""
    driven(agent)
    hours, before = [], agent.target.advantage.weight.clone()
    for tick in range(iterations):
        agent.training_step(iter([tick]))
        now = agent.target.advantage.weight.clone()
        hours += [] if torch.equal(before, now) else [tick + 1]
        before = now
    return hours


def test_the_target_network_is_copied_by_env_steps():
    """4 worlds x 5 steps are 20 env steps an iteration; every 50 means after 60, 100, 160, 200."""
    agent = dqn(train_freq=5, target_freq=50, policy_lr=1e-2)
    assert moved(agent, 10) == [3, 5, 8, 10]


def test_it_moves_as_often_as_its_hour_struck():
    agent = dqn(train_freq=5, target_freq=10, tau=0.1, gradient_steps=1, policy_lr=1e-2)
    driven(agent, 3)
    fixed(agent, [1.0, 1.0], [0.0, 0.0])
    agent.follow(2)
    assert agent.target.advantage.bias.tolist() == pytest.approx([0.19, 0.19])
    move_towards(agent.target, agent.policy.network, 1.0)
    assert torch.equal(agent.target.advantage.bias, agent.policy.network.advantage.bias)


def test_before_learning_starts_everything_is_random_and_nothing_is_learnt():
    agent = driven(dqn(learning_starts=60, train_freq=5, gradient_steps=-1, epsilon=0.0))
    for tick in range(3):
        agent.training_step(iter([tick]))
        assert agent.policy.epsilon == 1 and agent.progress["updates"] == 0
    agent.training_step(iter([3]))  # 80 env steps: more than 60
    assert agent.policy.epsilon == 0 and agent.progress["updates"] == 20


def test_what_the_errors_were_is_told_to_the_priorities():
    agent = driven(dqn(prioritised=True, train_freq=20, epsilon=0.5), 3)
    tree = agent.memory.priorities.tree
    priorities = tree[tree.numel() // 2 :]
    assert len(set(priorities[priorities > 0].tolist())) > 2
