"""The table of policies: a class of one's own is one row, and names, options and spaces are checked before training."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from probe_envs import MatchedReward, Spaces, choices
from torch import nn
from worlds import driven

from stride.agents.networks.actor_critic import ActorCritic, Plan
from stride.agents.networks.encoders import RunningNorm
from stride.agents.networks.policies import POLICIES, build_policy, options_of
from stride.agents.networks.recurrent import GRUActorCritic, LSTMActorCritic
from stride.agents.ppo import PPO
from stride.config.loader import from_plain, load_config, to_plain
from stride.config.schema import PPOConfig
from stride.utils.user_error import UserError

pytestmark = pytest.mark.usefixtures("one_thread")
VECTOR, TWO, THREE = Box(-1, 1, (3,), np.float32), Discrete(2), Discrete(3)
SCREEN = Box(0, 255, (3, 84, 84), np.uint8)


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


@pytest.fixture(autouse=True)
def table(monkeypatch):
    monkeypatch.setitem(POLICIES, "wide", Wide)
    monkeypatch.setitem(POLICIES, "calm", Calm)


def built(space=VECTOR, actions=TWO, critic=True, **options):
    return build_policy(PPOConfig(**options), Spaces(space, actions), critic)


@pytest.mark.parametrize(
    ("name", "kind"), [("mlp", ActorCritic), ("lstm", LSTMActorCritic), ("gru", GRUActorCritic), ("wide", Wide)]
)
def test_a_name_stands_for_a_class(name, kind):
    assert type(built(policy=name)) is kind


def test_a_class_of_ones_own_gets_its_options():
    policy = built(policy="calm", policy_kwargs={"width": 5, "warmth": 2})
    assert type(policy) is Calm and policy.warmth == 2.0 and policy.actor[0][0].out_features == 5
    assert built(policy="calm", critic=False).critic is None
    assert options_of(Calm) == {"width": int, "log_std_init": float, "warmth": float}
    assert options_of(Wide) == {"width": int, "log_std_init": float}


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


def masked(size):
    return Dict({"action_mask": MultiBinary(size), "at": VECTOR})


def lstm(**options):
    return {"policy": "lstm", **options}


@pytest.mark.parametrize(
    ("options", "space", "actions", "message"),
    [
        ({"policy": "mpl"}, VECTOR, TWO, r"unknown policy 'mpl'; did you mean mlp\? \(known: mlp, cnn,.* wide, calm\)"),
        ({"policy_kwargs": {"log_std": 1}}, VECTOR, TWO, r"policy_kwargs: mlp has no 'log_std'.*mean log_std_init\?"),
        ({"policy_kwargs": {"cnn": "nature"}}, VECTOR, TWO, r"mlp has no 'cnn'"),
        ({"policy": "wide", "policy_kwargs": {"warmth": 3}}, VECTOR, TWO, r"wide has no 'warmth' \(it has width"),
        ({"policy": "wide", "policy_kwargs": {"plan": 3}}, VECTOR, TWO, r"wide has no 'plan'"),
        ({"policy": "calm", "policy_kwargs": {"self": 3}}, VECTOR, TWO, r"calm has no 'self'"),
        ({"policy": "wide", "policy_kwargs": {"width": 2.5}}, VECTOR, TWO, r"kwargs.width takes a whole number.* 2.5"),
        ({"policy": "calm", "policy_kwargs": {"warmth": "hot"}}, VECTOR, TWO, r"kwargs.warmth takes a number.*'hot'"),
        ({}, SCREEN, TWO, r"mlp does not read images.*one \[3, 84, 84\]; take policy=cnn"),
        ({}, Dict({"a": VECTOR, "b": Box(0, 255, (9, 9), np.uint8)}), TWO, r"mlp does not read images"),
        ({"policy": "cnn"}, VECTOR, TWO, r"cnn reads images, but the observation is Box.*; take policy=mlp"),
        ({"policy": "cnn"}, Box(0, 255, (3, 35, 84), np.uint8), TWO, r"needs 36x36 pixels.*35x84; .*cnn=residual"),
        ({"policy": "cnn"}, Box(0, 255, (2, 3, 40, 40), np.uint8), TWO, r"\[2, 3, 40, 40\] is no image"),
        ({"policy": "cnn", "policy_kwargs": {"cnn": "natur"}}, SCREEN, TWO, r"takes nature, residual.* mean nature\?"),
        ({"policy": "cnn", "policy_kwargs": {"feature": 3}}, SCREEN, TWO, r"no 'feature'; did you mean features\?"),
        ({"policy": "cnn", "policy_kwargs": {"features": 0}}, SCREEN, TWO, r"features must be at least 1 .*, not 0"),
        ({}, masked(4), THREE, r"action_mask has the shape \[4\], the actions need \[3\]"),
        ({}, masked(6), MultiDiscrete([2, 3]), r"action_mask has the shape \[6\], the actions need \[5\]"),
        ({}, masked(2), Box(-1, 1, (2,)), r"has an action_mask, but only discrete actions can be masked"),
        ({}, Dict({"action_mask": MultiBinary(3)}), THREE, r"the observation holds nothing beside action_mask"),
        (lstm(batch_size=24, n_steps=16, n_envs=6), VECTOR, TWO, r"24 \(24 rows\) cuts .* = 16 rows; 16 or 32 does"),
        (lstm(batch_size=0.5, n_steps=16, n_envs=1), VECTOR, TWO, r"\(8 rows\) cuts .*; 16 does"),
        (lstm(hidden_dims=(), batch_size=1.0), VECTOR, TWO, r"hidden_dims=\[\] needs policy_kwargs.hidden_size"),
        (lstm(policy_kwargs={"hidden_size": 0}), VECTOR, TWO, r"hidden_size must be at least 1 and .*, not 0"),
        (lstm(policy_kwargs={"hiden_size": 8}), VECTOR, TWO, r"no 'hiden_size'; did you mean hidden_size\?"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(options, space, actions, message):
    with pytest.raises(UserError, match=message) as caught:
        built(space, actions, **options)
    assert "\n" not in str(caught.value)


def test_a_class_of_ones_own_learns():
    agent = driven(PPO(PPOConfig(policy="calm", n_envs=8, n_steps=16, policy_lr=1e-2), MatchedReward(8)), 15)
    assert type(agent.policy) is Calm and choices(agent.policy, 1, -1) == [1, 0]


def test_policy_options_come_from_the_command_line_and_survive_config_json():
    words = ["policy=lstm", "policy_kwargs.hidden_size=12", "policy_kwargs.log_std_init=-1"]
    config = load_config("CartPole-v1", "ppo", words)
    again = from_plain(to_plain(config), "config.json")
    policies = [build_policy(same, Spaces(VECTOR, TWO), True) for same in (config, again)]
    assert config == again and policies[0].initial(3)[0][0].shape == (3, 12)
    for mine, other in zip(policies[0].parameters(), policies[1].parameters(), strict=True):
        assert torch.equal(mine, other)
