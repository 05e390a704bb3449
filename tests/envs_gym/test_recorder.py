"""The recorder around any VecEnv: nobody notices it, and an episode is written down whole."""

import gymnasium
import numpy as np
import pytest
import torch

from lab.smoke_test_envs import keep
from stride.envs_gym.gym_env import GymEnv
from stride.envs_gym.recorder import Recorder, picture


class Show(gymnasium.Env):
    """Two dark frames and the step's number as brightness."""

    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(0, 255, (3, 8, 8), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return np.full((3, 8, 8), self.age, np.uint8), {}

    def step(self, action):
        self.age += 1
        return np.full((3, 8, 8), self.age, np.uint8), 0.5 * action, self.age == 4, False, {}


gymnasium.register("stride-test/Show-v0", Show)


def recorded(steps, world=0, worlds=2):
    taken = []
    envs = Recorder(GymEnv("stride-test/Show-v0", worlds), taken.append, world)
    envs.reset(1)
    for number in range(steps):
        step = envs.step(torch.tensor([number % 2, 1][:worlds]))
    return envs, step, taken


def test_an_episode_is_whole_and_of_its_world():
    _, step, taken = recorded(9)
    assert len(taken) == 2 and step.episode_length.tolist() == [1.0, 1.0]
    first = taken[0]
    assert first.observations[""][:, 0, 0, 0].tolist() == [0, 1, 2, 3, 4], "the true last observation is among them"
    assert first.actions.tolist() == [0, 1, 0, 1] and first.rewards.tolist() == [0.0, 0.5, 0.0, 0.5]
    assert (first.episode_return, first.terminated, first.images) == (1.0, True, [""])
    assert recorded(4, world=1)[2][0].episode_return == 2.0


def test_it_answers_as_the_worlds_do():
    envs, _, _ = recorded(1)
    assert envs.is_image and (envs.time_limit, envs.reward_threshold, envs.resume) == (None, None, "exact")
    assert not Recorder(GymEnv("CartPole-v1", 1), print).is_image


def test_what_is_gone_on_with_is_recorded_from_its_next_episode_on():
    envs, _, _ = recorded(2)
    taken = []
    again = Recorder(GymEnv("stride-test/Show-v0", 2), taken.append)
    again.load_state_dict(envs.state_dict())
    for _ in range(6):
        again.step(torch.tensor([1, 1]))
    assert [len(one.actions) for one in taken] == [4]


def test_it_is_kept_as_data_and_as_a_film(tmp_path):
    pytest.importorskip("av")
    one = recorded(4)[2][0]
    keep(one, tmp_path / "new", "Show")
    data = np.load(tmp_path / "new" / "Show.npz")
    assert data["observation"].shape == (5, 3, 8, 8) and data["episode_return"] == 1.0 and data["terminated"]
    assert (tmp_path / "new" / "Show.mp4").stat().st_size > 500


def test_the_newest_frame_is_the_picture():
    grey = np.stack([np.zeros((4, 4), np.uint8), np.full((4, 4), 9, np.uint8)])
    assert picture(grey).shape == (320, 320, 3) and (picture(grey) == 9).all()
