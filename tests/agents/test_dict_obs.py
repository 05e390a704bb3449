"""Observations of several kinds at once: every leaf has its own encoder, and agents use whichever leaf tells."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from probe_envs import Probe, drawn
from tape import RefuseSync
from worlds import driven

from stride.agents.experience.nouns import Final, tree_map
from stride.agents.networks.cnn import CNN, Image
from stride.agents.networks.encoders import FlatEncoder, Float, MultiOneHot, OneHot, RunningNorm
from stride.agents.ppo import PPO
from stride.agents.reinforce import REINFORCE
from stride.config.schema import PPOConfig, REINFORCEConfig
from stride.envs_gym.spaces import MASK

pytestmark = pytest.mark.usefixtures("one_thread")
SPACES = {
    "image": Box(0, 255, (1, 10, 10), np.uint8),
    "vector": Box(-np.inf, np.inf, (3,), np.float32),
    "one": Discrete(4),
    "several": MultiDiscrete([2, 3]),
    "action_mask": MultiBinary(5),
}


@pytest.mark.parametrize("lead", [(6,), (5, 6)])
def test_every_leaf_has_its_own_encoder_and_the_mask_has_none(lead):
    """What each makes of its leaf: test_networks.py, test_cnn.py."""
    space = Dict(SPACES)
    encoder = FlatEncoder(space, "rolling", CNN("residual", 7))
    obs = drawn(space, *lead)
    encoder.learn(obs)
    leaf = dict(zip(encoder.keys, encoder.leaf, strict=True))
    kinds = {"image": Image, "vector": RunningNorm, "one": OneHot, "several": MultiOneHot}
    assert {key: type(part) for key, part in leaf.items()} == kinds
    assert encoder.size == 7 + 3 + 4 + 5 and encoder(obs).shape == (*lead, 19)
    assert torch.equal(encoder(obs), torch.cat([leaf[key](obs[key]) for key in encoder.keys], -1))
    assert torch.equal(encoder(obs), encoder({**obs, MASK: 1 - obs[MASK]}))
    flat = FlatEncoder(space, False)
    assert flat.size == 100 + 3 + 4 + 5 and type(flat.leaf[flat.keys.index("image")]) is Float, "without a CNN"


class Clues(Probe):
    """One step; one leaf alone tells which of two actions is paid, in both of two choices, the others tell nothing."""

    observation_space, action_space = Dict(SPACES), MultiDiscrete([2, 3])

    def __init__(self, num_envs, clue="vector"):
        super().__init__(num_envs)
        self.clue = clue

    def sight(self):
        right, n = self.coin > 0, self.num_envs
        obs = {
            "image": torch.zeros(n, 1, 10, 10, dtype=torch.uint8),
            "vector": torch.zeros(n, 3),
            "one": torch.zeros(n, dtype=torch.long),
            "several": torch.zeros(n, 2, dtype=torch.long),
            MASK: torch.tensor([True, True, True, True, False]).expand(n, 5).clone(),
        }
        value = {"image": right * 255, "vector": self.coin, "one": right * 2, "several": right * 1}[self.clue]
        obs[self.clue].copy_(value.view(n, *[1] * (obs[self.clue].dim() - 1)))
        return obs

    def reward(self, action):
        right = (self.coin > 0).long()[:, None]
        return (action == right).float().mean(1) + 9.0 * (action[:, 1] == 2)


@pytest.mark.parametrize("clue", ["image", "vector", "one", "several"])
@pytest.mark.parametrize("kind", ["ppo", pytest.param("reinforce", marks=pytest.mark.slow)])
def test_an_agent_finds_the_leaf_that_tells(kind, clue):
    """With two choices and a mask over both: the third of the second choice would pay 9 and is forbidden."""
    common = {"n_envs": 8, "n_steps": 16, "hidden_dims": (16,), "policy": "cnn", "normalize_obs": "rolling"}
    common["policy_kwargs"] = {"cnn": "residual", "features": 16}
    if kind == "ppo":
        agent = PPO(PPOConfig(**common, policy_lr=5e-3), Clues(8, clue))
    else:
        options = {"policy_lr": 3e-3, "n_epochs": 4, "policy_targets": "advantages"}
        agent = REINFORCE(REINFORCEConfig(**common, **options), Clues(8, clue))
    driven(agent, 12 if kind == "ppo" else 60)
    assert 0.9 < agent.collector.window.summary()["ep_rew/mean"] <= 1


@pytest.mark.parametrize("policy", ["cnn", "gru"])
def test_images_masks_and_memories_never_wait_for_the_device(policy):
    options = {"cnn": "residual", "features": 8}
    agent = PPO(PPOConfig(n_envs=4, n_steps=8, policy=policy, policy_kwargs=options, normalize_obs="rolling"), Clues(4))
    driven(agent, 1)
    it, start = agent.collector, tree_map(torch.clone, agent.collector.carry)
    agent.collect(8)
    with RefuseSync(), torch.no_grad():
        for greedy in (False, True):
            agent.policy.act(it.obs, it.carry, it.is_first, torch.zeros(4, 2), greedy)
    with RefuseSync():
        agent.learn(agent.memory.rollout(start, Final(it.obs, it.carry)))
    assert not agent.broken and agent.progress["updates"] == 32
