"""PopArt: the maths by hand in float64, worlds that pay a thousand times as much, exact resume, refusals."""

from copy import deepcopy

import probe_envs as probes
import pytest
import torch
from driven import advance, agent_for, continued
from probe_envs import GAMMA, opinions
from refusals import refusal
from torch import nn
from worlds import driven, generator

from stride.agents.dqn import DQN
from stride.agents.engines.fused_gpu.engine import why_not_fused
from stride.agents.engines.plan.on_policy import PPORecipe
from stride.agents.networks.popart import MIN_DEVIATION, PopArt, ValueScale
from stride.agents.off_policy import move_towards
from stride.agents.ppo import PPO
from stride.agents.pqn import PQN
from stride.agents.reinforce import REINFORCE
from stride.agents.sac import SAC
from stride.config import schema
from stride.config.diff import changes
from stride.config.loader import load_config

RATE = 0.1
FEATURES = torch.randn(64, 5, dtype=torch.float64, generator=generator(1))


def layer(seed=0):
    made = nn.Linear(5, 1).double()
    for parameter in made.parameters():
        nn.init.normal_(parameter, generator=generator(seed))
    return PopArt(made, RATE)


def targets(seed, mean, deviation):
    """64 numbers of exactly these moments."""
    x = torch.randn(64, dtype=torch.float64, generator=generator(seed))
    return mean + deviation * (x - x.mean()) / x.std(unbiased=False)


def values(network):
    return network(FEATURES).squeeze(-1)


# --- the maths


def test_the_first_targets_set_the_scale_and_later_ones_move_it_without_moving_a_value():
    network = layer()
    weight = network.layer.weight.clone()
    ValueScale(network).learn(targets(2, 3.0, 2.0))
    assert (network.mean.item(), network.deviation.item()) == pytest.approx((3, 2))
    assert torch.equal(network.layer.weight, weight)
    before = values(network)
    ValueScale(network).learn(targets(3, 1003.0, 4.0))
    step = RATE / (1 - (1 - RATE) ** 2)  # the average of two, the earlier one worth 1 - RATE of the later one
    mean, square = 3 + step * 1000, 13 + step * (1003**2 + 16 - 13)
    assert (network.mean.item(), network.deviation.item()) == pytest.approx((mean, (square - mean**2) ** 0.5))
    assert (values(network) - before).abs().max() < 1e-6
    for _ in range(200):
        ValueScale(network).learn(targets(4, -1000.0, 0.0))
    assert (values(network) - before).abs().max() < 1e-6 and network.deviation < 0.1


def test_the_loss_is_that_of_plain_regression_where_targets_have_mean_0_and_variance_1():
    network = layer()
    scale, target = ValueScale(network), targets(2, 0.0, 1.0)
    scale.learn(target)
    plain = (network.layer(FEATURES).squeeze(-1) - target).square().mean()
    loss = scale.relative(values(network) - target).square().mean()
    assert loss.item() == pytest.approx(plain.item(), rel=1e-12)
    for size in (1, 1000):  # whatever the unit of rewards, the gradient is the same
        other = layer()
        ValueScale(other).learn(size * target)
        error = values(other) - size * target
        ValueScale(other).relative(error.square().mean(), 2).backward()
        (expected,) = torch.autograd.grad(plain, [network.layer.weight], retain_graph=True)
        torch.testing.assert_close(other.layer.weight.grad, expected)


def test_a_target_network_keeps_its_values_and_moves_towards_those_of_the_network():
    network, target = layer(), layer(7)
    scale = ValueScale(network, target)
    scale.learn(targets(2, 5.0, 2.0))
    before = values(target)
    scale.learn(targets(3, 1000.0, 50.0))
    assert (values(target) - before).abs().max() < 1e-6
    expected = torch.lerp(before, values(network), 0.3)
    move_towards(target, network, 0.3)
    torch.testing.assert_close(values(target), expected)


def test_what_is_not_finite_teaches_nothing_and_equal_targets_have_a_least_deviation():
    network = layer()
    scale = ValueScale(network)
    scale.learn(torch.full((8,), 2.0))
    assert network.deviation == MIN_DEVIATION
    state = deepcopy(network.state_dict())
    scale.learn(torch.tensor([1.0, float("nan")]))
    scale.learn(torch.tensor([1.0, float("inf")]))
    assert all(torch.equal(x, state[name]) for name, x in network.state_dict().items())


# --- agents

BASE = {"n_envs": 8, "max_timesteps": 10**6, "gamma": GAMMA, "hidden_dims": (32,)}
ROLLOUT = {**BASE, "n_steps": 16, "policy_lr": 1e-2}
REPLAY = {**BASE, "buffer_size": 4000, "batch_size": 64, "learning_starts": 100, "train_freq": 4, "gradient_steps": 4}
OF_DQN = {**REPLAY, "policy_lr": 3e-3, "target_freq": 64, "epsilon": 0.5}
AGENTS = {
    "ppo": (PPO, schema.PPOConfig, ROLLOUT, 20),
    "lstm": (PPO, schema.PPOConfig, {**ROLLOUT, "policy": "lstm"}, 30),
    "lag": (PPO, schema.PPOConfig, {**ROLLOUT, "lag": 1, "share_trunk": True}, 30),
    "reinforce": (REINFORCE, schema.REINFORCEConfig, {**ROLLOUT, "policy_targets": "advantages", "n_epochs": 4}, 20),
    "pqn": (PQN, schema.PQNConfig, {**ROLLOUT, "epsilon": 0.5}, 20),
    "dqn": (DQN, schema.DQNConfig, {**OF_DQN, "dueling": True}, 60),
    "polyak": (DQN, schema.DQNConfig, {**OF_DQN, "tau": 0.5, "target_freq": 16, "n_step": 2, "prioritised": True}, 60),
    "quantiles": (DQN, schema.DQNConfig, {**OF_DQN, "quantiles": 5}, 60),
    "sac": (SAC, schema.SACConfig, {**REPLAY, "policy_lr": 1e-2, "tau": 0.1, "ent_coef": 10.0}, 90),
}
SIZE = 1000


class Rich(probes.DelayedReward):
    """DelayedReward, and what is paid is 1000 times as much: V = 900, then 1000."""

    def reward(self, action):
        return SIZE * self.age.clone()


class RichAim(probes.Aimed):
    """The nearer to 0.5, the more, up to 1000."""

    def reward(self, action):
        return SIZE * (1 - (action[:, 0] - 0.5).square())


def made(kind, **options):
    agent, config, usual, _ = AGENTS[kind]
    return driven(
        agent(config(**{"value_scale": "popart", **usual, **options}), (RichAim if kind == "sac" else Rich)(8))
    )


def worth(agent):
    """The errors of V, or of Q of the best action, in units of 1000."""
    if isinstance(agent, SAC):
        with torch.no_grad():
            return agent.critics(torch.zeros(1, 1), torch.tensor([[0.5]])).flatten() / SIZE - 1
    return opinions(agent.policy, 0, 1).value / SIZE - torch.tensor([GAMMA, 1])


SLOW = ("lstm", "lag", "polyak", "quantiles")


@pytest.mark.parametrize("kind", [pytest.param(x, marks=[pytest.mark.slow] * (x in SLOW)) for x in AGENTS])
def test_rewards_of_a_thousand_are_learnt_in_the_time_of_those_of_one(kind):
    iterations = AGENTS[kind][-1]
    assert worth(advance(made(kind), iterations)).abs().max() < 0.1
    assert worth(advance(made(kind, value_scale="raw"), iterations)).abs().max() > 0.3


@pytest.mark.parametrize("kind", ["ppo", "lag", "polyak", "sac"])
def test_a_resumed_agent_is_the_uninterrupted_one_to_the_bit(kind):
    straight, half = advance(made(kind), 16), advance(made(kind), 8)
    resumed = advance(continued(half, made(kind)), 8)
    expected, state = straight.state_dict(), resumed.state_dict()
    assert sum(name.endswith(".share") for name in state) >= 1
    assert all(torch.equal(state[name], x) for name, x in expected.items())


def test_each_refusal_is_a_line_that_says_what_to_do():
    popart = "value_scale=popart"

    def load(*words):
        return load_config("CartPole-v1", words[0], [*words[1:], "max_timesteps=1e5"])

    assert "set clip_range_vf=null" in refusal(load, "ppo", popart, "clip_range_vf=0.2")
    assert "set policy_targets=advantages" in refusal(load, "reinforce", popart, "policy_targets=returns")
    assert "set value_scale=popart" in refusal(load, "ppo", "value_scale_rate=0.2")
    assert "value_scale belongs to ppo" in refusal(load, "dreamer", popart)
    assert "does not support value_scale: popart" in refusal(agent_for, "CartPole-v1:dqn", popart, "engine=fused_cpu")
    on_gpu = agent_for("CartPole-v1:ppo", popart, "engine=eager")
    assert why_not_fused(on_gpu.config, on_gpu, PPORecipe) == "it does not support value_scale: popart"
    assert "start a new run" in refusal(changes, load("pqn"), load("pqn", popart))
