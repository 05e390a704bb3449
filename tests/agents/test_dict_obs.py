"""Observations of several kinds at once: every leaf has its own encoder, and agents use whichever leaf tells."""

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from probe_envs import Probe
from test_lifecycle import RefuseSync
from worlds import driven

from stride.agents.experience.nouns import Final, tree_map
from stride.agents.networks.cnn import CNN, Image
from stride.agents.networks.encoders import FlatEncoder, Float, MultiOneHot, OneHot, RunningNorm
from stride.agents.ppo import PPO
from stride.agents.reinforce import REINFORCE
from stride.config.schema import PPOConfig, REINFORCEConfig
from stride.envs_gym.spaces import MASK

SPACES = {
    "image": Box(0, 255, (1, 10, 10), np.uint8),
    "vector": Box(-np.inf, np.inf, (3,), np.float32),
    "one": Discrete(4),
    "several": MultiDiscrete([2, 3]),
    "action_mask": MultiBinary(5),
}


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """These networks are too small to share."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def sample(*lead):
    generator = torch.Generator().manual_seed(0)
    return {
        "image": torch.randint(0, 256, (*lead, 1, 10, 10), dtype=torch.uint8, generator=generator),
        "vector": torch.randn(*lead, 3, generator=generator) * 3 + 5,
        "one": torch.randint(0, 4, lead, generator=generator),
        "several": torch.randint(0, 2, (*lead, 2), generator=generator),
        MASK: torch.ones(*lead, 5, dtype=torch.bool),
    }


@pytest.mark.parametrize("lead", [(6,), (5, 6)])
def test_every_leaf_has_its_own_encoder_and_the_mask_has_none(lead):
    encoder, obs = FlatEncoder(Dict(SPACES), "rolling", CNN("residual", 7)), sample(*lead)
    kinds = {key: type(leaf) for key, leaf in zip(encoder.keys, encoder.leaf, strict=True)}
    assert kinds == {"image": Image, "vector": RunningNorm, "one": OneHot, "several": MultiOneHot}
    assert encoder.size == 7 + 3 + 4 + 5 and encoder(obs).shape == (*lead, 19)
    encoder.learn(obs)
    leaf = dict(zip(encoder.keys, encoder.leaf, strict=True))
    parts = {
        "image": leaf["image"](obs["image"]),
        "vector": (obs["vector"] - leaf["vector"].mean) / (leaf["vector"].var + 1e-8).sqrt(),
        "one": torch.eye(4)[obs["one"]],
        "several": torch.cat([torch.eye(2)[obs["several"][..., 0]], torch.eye(3)[obs["several"][..., 1]]], -1),
    }
    torch.testing.assert_close(encoder(obs), torch.cat([parts[key] for key in encoder.keys], -1))
    other = {**obs, MASK: ~obs[MASK]}
    assert torch.equal(encoder(obs), encoder(other))


def test_without_a_cnn_bytes_are_flat_numbers():
    encoder = FlatEncoder(Dict(SPACES), False)
    assert encoder.size == 100 + 3 + 4 + 5 and type(encoder.leaf[encoder.keys.index("image")]) is Float


class Clues(Probe):
    """One step; one leaf alone tells which of two actions is paid, in both of two choices, the others tell nothing."""

    clue = "vector"

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.observation_space = Dict(SPACES)
        self.action_space = MultiDiscrete([2, 3])

    def _seen(self):
        right = self.coin > 0
        obs = {name: torch.zeros_like(x) for name, x in sample(self.num_envs).items()}
        value = {
            "image": right[:, None, None, None] * 255,
            "vector": self.coin[:, None],
            "one": right * 2,
            "several": right[:, None],
        }[self.clue]
        obs[self.clue].copy_(value.expand_as(obs[self.clue]))
        obs[MASK] = torch.tensor([True, True, True, True, False]).expand(self.num_envs, 5).clone()
        return obs

    def reset(self, seed):
        super().reset(seed)
        return self._seen()

    def step(self, action):
        final = self._seen()
        return super().step(action)._replace(obs=self._seen(), final_obs=final)

    def reward(self, action):
        right = (self.coin > 0).long()[:, None]
        return (action == right).float().mean(1) + 9.0 * (action[:, 1] == 2)


@pytest.mark.parametrize("clue", ["image", "vector", "one", "several"])
@pytest.mark.parametrize("kind", ["ppo", pytest.param("reinforce", marks=pytest.mark.slow)])
def test_an_agent_finds_the_leaf_that_tells(kind, clue):
    """With two choices and a mask over both: the third of the second choice would pay 9 and is forbidden."""
    common = {"n_envs": 8, "n_steps": 16, "hidden_dims": (16,), "policy": "cnn", "normalize_obs": "rolling"}
    common["policy_kwargs"] = {"cnn": "residual", "features": 16}
    envs = Clues(8)
    envs.clue = clue
    if kind == "ppo":
        agent = PPO(PPOConfig(**common, policy_lr=5e-3), envs)
    else:
        agent = REINFORCE(REINFORCEConfig(**common, policy_lr=3e-3, n_epochs=4, policy_targets="advantages"), envs)
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
        agent.policy.act(it.obs, it.carry, it.is_first, torch.zeros(4, 2), False)
        agent.policy.act(it.obs, it.carry, it.is_first, torch.zeros(4, 2), True)
    with RefuseSync():
        agent.learn(agent.memory.rollout(start, Final(it.obs, it.carry)))
    assert not agent.broken and agent.progress["updates"] == 32
