"""What Gymnasium has no single world of is played all the same: one world of a batch as a `gymnasium.Env`."""

import gymnasium as gym
import numpy as np
import pytest
import tensor_worlds  # registers its worlds
import torch

from stride.config.schema import PPOConfig
from stride.envs_gym.make import make_envs
from stride.envs_gym.rendered import CheckedEnv, SingleWorldEnv, make_rendered
from stride.utils.user_error import UserError

CONFIG = PPOConfig(env_id="tensor-test/Kept-v0")


class Masked(tensor_worlds.Square):
    """Observes a dict, and takes choices."""

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.single_action_space = gym.spaces.Discrete(2, start=4)
        place, number = self.single_observation_space, gym.spaces.Discrete(3)
        mask = gym.spaces.MultiBinary(2)
        self.single_observation_space = gym.spaces.Dict({"place": place, "number": number, "action_mask": mask})

    def observe(self):
        ones = torch.ones(self.num_envs, dtype=torch.int64)
        return {"place": self.place, "number": ones, "action_mask": ones[:, None].expand(-1, 2)}

    def step(self, actions):
        assert actions.tolist() == [5]
        return (*super().step(torch.zeros(1, 2))[:4], {})


gym.register("tensor-test/Masked-v0", None, vector_entry_point=Masked)


def test_one_world_is_played_as_gymnasium_has_it():
    env = make_rendered(CONFIG, None)
    assert isinstance(env, CheckedEnv) and isinstance(env.unwrapped, SingleWorldEnv)
    batch = make_envs(CONFIG, 1)
    obs, _ = env.reset(seed=5)
    assert obs in env.observation_space and np.array_equal(obs, batch.reset(5)[0].numpy())
    over = False
    while not over:
        action = np.array([0.1, -0.2], np.float32)
        obs, reward, terminated, truncated, _ = env.step(action)
        step = batch.step(torch.from_numpy(action)[None])
        over = terminated or truncated
        assert np.array_equal(obs, (step.final_obs if over else step.obs)[0].numpy()) and reward == step.reward.item()
    assert truncated and not terminated and step.episode_length.item() == 8
    env.close()


def test_dicts_choices_and_masks():
    env = make_rendered(PPOConfig(env_id="tensor-test/Masked-v0"), None)
    for obs in (env.reset()[0], env.step(1)[0]):
        assert obs in env.observation_space and obs["number"] == 1 and obs["action_mask"].tolist() == [1, 1]
    assert not np.array_equal(env.reset()[0]["place"], env.reset()[0]["place"])
    env.close()


def test_it_cannot_be_drawn_and_says_so():
    with pytest.raises(UserError, match="tensor-test/Kept-v0 has no render mode rgb_array; it has none"):
        make_rendered(CONFIG)


def test_an_id_that_nobody_knows_is_told_as_ever():
    with pytest.raises(UserError, match="unknown environment 'CartPol-v1'; did you mean CartPole-v1"):
        make_rendered(PPOConfig(env_id="CartPol-v1"))
