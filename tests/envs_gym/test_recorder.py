"""The recorder around any VecEnv: nobody notices it, and an episode is written down whole."""

import numpy as np
import pytest
import torch

from lab.smoke_test_envs import keep
from stride.envs_gym.gym_env import GymEnv
from stride.envs_gym.recorder import Recorder, picture


def camera():
    return GymEnv("stride-test/Camera-v0", 2, {"shape": [3, 8, 8], "length": 4})


def recorded(steps, world=0, worlds=None):
    taken = []
    envs = Recorder(worlds or camera(), taken.append, world)
    envs.reset(1)
    for number in range(steps):
        step = envs.step(torch.tensor([number % 2, 1]))
    return envs, step, taken


def test_an_episode_is_whole_and_of_its_world():
    worlds = camera()
    _, step, taken = recorded(9, worlds=worlds)
    assert len(taken) == 2 and step.episode_length.tolist() == [1.0, 1.0]
    first, shown = taken[0], worlds.envs[0].unwrapped.shown
    assert np.array_equal(first.observations[""], shown[:5]), "the true last observation is among them"
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
    again = Recorder(camera(), taken.append)
    again.load_state_dict(envs.state_dict())
    for _ in range(6):
        again.step(torch.tensor([1, 1]))
    assert [len(recording.actions) for recording in taken] == [4]


def test_it_is_kept_as_data_and_as_a_film(tmp_path):
    pytest.importorskip("av")
    keep(recorded(4)[2][0], tmp_path / "new", "Show")
    data = np.load(tmp_path / "new" / "Show.npz")
    assert data["observation"].shape == (5, 3, 8, 8) and data["episode_return"] == 1.0 and data["terminated"]
    assert (tmp_path / "new" / "Show.mp4").stat().st_size > 500


def test_the_newest_frame_is_the_picture():
    grey = np.stack([np.zeros((4, 4), np.uint8), np.full((4, 4), 9, np.uint8)])
    assert picture(grey).shape == (320, 320, 3) and (picture(grey) == 9).all()
