"""Action masks in policies and agents: what is forbidden is never done. (Distributions: test_heads.py.)"""

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from probe_envs import Probe
from worlds import Scripted, driven, random_tables

from stride.agents.dqn import DQN
from stride.agents.experience.nouns import Transitions
from stride.agents.networks.actor_critic import ActorCritic, Plan
from stride.agents.ppo import PPO
from stride.agents.reinforce import REINFORCE
from stride.config.schema import DQNConfig, PPOConfig, REINFORCEConfig
from stride.envs_gym.spaces import MASK
from stride.utils.counter_rng import ACT, Key, uniforms

pytestmark = pytest.mark.usefixtures("one_thread")
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


class MaskedTables(Scripted):
    """What is allowed changes from step to step; final observations allow nothing."""

    def __init__(self, *tables):
        super().__init__(*tables)
        self.observation_space = Dict({"at": self.observation_space, "action_mask": MultiBinary(3)})

    def reset(self, seed):
        return {"at": super().reset(seed), MASK: torch.ones(self.num_envs, 3, dtype=torch.bool)}

    def step(self, action):
        step = super().step(action)
        allowed = (torch.arange(3) != self.now % 3).expand(self.num_envs, 3).clone()
        final = {"at": step.final_obs, MASK: torch.zeros_like(allowed)}
        return step._replace(obs={"at": step.obs, MASK: allowed}, final_obs=final)


def test_masked_worlds_that_cut_episodes_train():
    """Final observations whose mask is rubbish do no harm: no action is ever chosen there."""
    envs = MaskedTables(*random_tables(40, 4, 0))
    agent = driven(PPO(PPOConfig(n_envs=4, n_steps=8, normalize_obs="rolling"), envs), 3)
    assert all(math.isfinite(x) for x in agent.metrics.flush().values())
    row = agent.memory.table
    assert row.obs[MASK].gather(2, row.action[..., None]).all()
