"""The table of policies: a class of one's own is one row, and its options are checked before anything is trained."""

from typing import Any

import pytest
import torch
from gymnasium.spaces import Box, Discrete
from probe_envs import MatchedReward
from worlds import driven

from stride.agents.networks.actor_critic import ActorCritic, Plan
from stride.agents.networks.policies import POLICIES, build_policy, options_of
from stride.agents.networks.recurrent import GRUActorCritic, LSTMActorCritic
from stride.agents.ppo import PPO
from stride.agents.reinforce import REINFORCE
from stride.config.loader import from_plain, load_config, to_plain
from stride.config.schema import PPOConfig, REINFORCEConfig
from stride.utils.devices import CPU
from stride.utils.user_error import UserError


class Spaces:
    """All that building a policy looks at."""

    observation_space, action_space, device = Box(-1, 1, (1,)), Discrete(2), CPU


class Wide(ActorCritic):
    """One wide layer."""

    def __init__(self, plan: Plan, width: int = 16, log_std_init: float = 0.0) -> None:
        super().__init__(plan._replace(hidden_dims=(width,)), log_std_init)


class Calm(Wide):
    """Passes on what it does not know."""

    def __init__(self, plan: Plan, warmth: float = 1.0, **options: Any) -> None:
        super().__init__(plan, **options)
        self.warmth = warmth

    def allowed(self, parameters, obs):
        return (parameters / self.warmth).log_softmax(-1)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """These networks are too small to share."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def table(monkeypatch):
    monkeypatch.setitem(POLICIES, "wide", Wide)
    monkeypatch.setitem(POLICIES, "calm", Calm)


@pytest.mark.parametrize(
    ("name", "kind"), [("mlp", ActorCritic), ("lstm", LSTMActorCritic), ("gru", GRUActorCritic), ("wide", Wide)]
)
def test_a_name_stands_for_a_class(name, kind):
    assert type(build_policy(PPOConfig(policy=name), Spaces(), True)) is kind


def test_a_class_of_ones_own_gets_its_options():
    config = PPOConfig(policy="calm", policy_kwargs={"width": 5, "warmth": 2})
    policy = build_policy(config, Spaces(), True)
    assert type(policy) is Calm and policy.warmth == 2.0 and policy.actor[0][0].out_features == 5
    assert build_policy(PPOConfig(policy="calm"), Spaces(), False).critic is None
    assert options_of(Calm) == {"width": int, "log_std_init": float, "warmth": float}
    assert options_of(Wide) == {"width": int, "log_std_init": float}


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("wid", {}, r"unknown policy 'wid'; did you mean wide\? \(known: mlp, cnn, lstm, gru, .*wide, calm\)"),
        (
            "wide",
            {"wdith": 3},
            r"policy_kwargs: wide has no 'wdith'; did you mean width\? \(it has width, log",
        ),
        ("wide", {"warmth": 3}, r"wide has no 'warmth' \(it has width"),
        ("wide", {"plan": 3}, r"wide has no 'plan'"),
        ("calm", {"self": 3}, r"calm has no 'self'"),
        ("wide", {"width": 2.5}, r"policy_kwargs.width takes a whole number, not 2.5"),
        ("calm", {"warmth": "hot"}, r"policy_kwargs.warmth takes a number, not 'hot'"),
        ("mlp", {"cnn": "nature"}, r"mlp has no 'cnn'"),
    ],
)
def test_wrong_names_and_types_are_one_line(name, options, message):
    with pytest.raises(UserError, match=message) as caught:
        build_policy(PPOConfig(policy=name, policy_kwargs=options), Spaces(), True)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        (PPO, PPOConfig(policy="calm", n_envs=8, n_steps=16, policy_lr=3e-3)),
        (REINFORCE, REINFORCEConfig(policy="calm", n_envs=8, n_steps=16, policy_lr=1e-2, policy_targets="advantages")),
    ],
)
def test_a_class_of_ones_own_learns(kind, config):
    agent = driven(kind(config, MatchedReward(8)), 60)
    assert type(agent.policy) is Calm and agent.collector.window.summary()["ep_rew/mean"] > 0.8


def test_policy_options_come_from_the_command_line_and_survive_config_json():
    words = ["policy=lstm", "policy_kwargs.hidden_size=12", "policy_kwargs.log_std_init=-1"]
    config = load_config("CartPole-v1", "ppo", words)
    again = from_plain(to_plain(config), "config.json")
    policies = [build_policy(each, Spaces(), True) for each in (config, again)]
    assert config == again and policies[0].initial(3)[0][0].shape == (3, 12)
    for mine, other in zip(policies[0].parameters(), policies[1].parameters(), strict=True):
        assert torch.equal(mine, other)
