"""Who carries Gymnasium's worlds elsewhere answers their bits: worker processes, a device, the recorder of episodes.

The device here is the CPU: the copies are the same ones, but that nothing is pinned and nothing waits.
"""

import numpy as np
import pytest
import torch
from playing import hand_over, leaves, random_actions, record
from torch.utils._python_dispatch import TorchDispatchMode

from lab.smoke_test_envs import keep
from stride.envs_fast.vec_env import CPU
from stride.envs_gym.async_env import AsyncEnv
from stride.envs_gym.gym_env import GymEnv
from stride.envs_gym.on_device import OnDevice
from stride.envs_gym.recorder import Recorder, picture

COUNTING, CAMERA = "stride-test/Counting-v0", "stride-test/Camera-v0"
EYE = {"named": True, "length": 4}
CARRIERS = {
    "workers": lambda *what: AsyncEnv(*what, workers=2),
    "device": lambda *what: OnDevice(GymEnv(*what), CPU),
    "recorder": lambda *what: Recorder(GymEnv(*what), lambda recording: None),
}
CASES = [
    *((carrier, env_id, {}) for carrier in CARRIERS for env_id in ("CartPole-v1", "Pendulum-v1", "FrozenLake-v1")),
    *(("device", COUNTING, {"kind": kind}) for kind in ("dict", "discrete", "multi_discrete")),
    ("device", COUNTING, {"action": "multi"}),
    ("device", "Blackjack-v1", {}),
    ("device", CAMERA, EYE),
]


@pytest.mark.parametrize(("carrier", "env_id", "kwargs"), CASES)
def test_they_answer_as_the_bare_worlds_and_go_on_with_their_checkpoints(carrier, env_id, kwargs):
    """The other way round, too, and after a second reset."""
    carried, carried_again = (CARRIERS[carrier](env_id, 3, kwargs, 30) for _ in range(2))
    bare, bare_again = (GymEnv(env_id, 3, kwargs, 30) for _ in range(2))
    for name in ("num_envs", "observation_space", "action_space", "time_limit", "resume", "reward_threshold", "wrong"):
        assert getattr(carried, name) == getattr(bare, name), name
    actions = random_actions(bare, 80)
    for seed in (4, 5):
        for (_, mine), (_, other) in zip(leaves(carried.reset(seed)), leaves(bare.reset(seed)), strict=True):
            assert torch.equal(mine, other) and mine.data_ptr() != other.data_ptr()
        assert record(carried, actions[:50]) == record(bare, actions[:50])
    hand_over(bare, carried_again), hand_over(carried, bare_again)
    expected = record(bare, actions[50:])
    for envs in (carried, carried_again, bare_again):
        assert record(envs, actions[50:]) == expected
    assert carried.step(actions[0]) is carried.step(actions[0])  # writes where the last one did
    carried.close(), carried_again.close()


class Crossings(TorchDispatchMode):
    """The bytes of every copy that need not be waited for."""

    def __init__(self):
        super().__init__()
        self.bytes = []

    def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):
        if operation is torch.ops.aten.copy_.default and True in arguments[2:]:
            self.bytes.append(arguments[0].nbytes)
        return operation(*arguments, **(keywords or {}))


def test_a_step_crosses_in_one_copy_each_way():
    """Final observations come along where an episode has ended, and only there."""
    envs = OnDevice(GymEnv(CAMERA, 2, EYE), CPU)
    eye, level, line = 2 * 3 * 6 * 8, 2 * 4, 64
    obs = -(-eye // line) * line + -(-level // line) * line
    with Crossings() as crossings:
        envs.reset(0)
    assert crossings.bytes == [obs + 5 * line]
    for count in range(1, 9):
        with Crossings() as crossings:
            step = envs.step(torch.zeros(2, dtype=torch.int64))
        ended = count % 4 == 0
        assert step.terminated.all() == ended
        assert crossings.bytes == [2 * 8, obs + 5 * line + ended * obs]


@pytest.mark.parametrize("make", [GymEnv, CARRIERS["device"]], ids=["bare", "device"])
def test_actions_of_the_wrong_shape_or_type(make):
    envs = make("CartPole-v1", 3)
    envs.reset(0)
    for action in (torch.zeros(1, dtype=torch.int64), torch.zeros(3), torch.zeros(3, 1, dtype=torch.int64)):
        with pytest.raises(ValueError, match=r"takes actions torch.int64\[3\], got torch"):
            envs.step(action)


@pytest.fixture
def film():
    """Records episodes of four steps of one of two cameras: the recorder, the cameras, and what it has given."""

    def recording(steps, world=0):
        taken, cameras = [], GymEnv(CAMERA, 2, {"shape": [3, 8, 8], "length": 4})
        envs = Recorder(cameras, taken.append, world)
        envs.reset(1)
        for number in range(steps):
            envs.step(torch.tensor([number % 2, 1]))
        return envs, cameras, taken

    return recording


def test_an_episode_is_recorded_whole_and_of_its_world(film):
    envs, cameras, taken = film(9)
    assert len(taken) == 2 and envs.is_image
    first, shown = taken[0], cameras.envs[0].unwrapped.shown
    assert np.array_equal(first.observations[""], shown[:5]), "the true last observation is among them"
    assert first.actions.tolist() == [0, 1, 0, 1] and first.rewards.tolist() == [0.0, 0.5, 0.0, 0.5]
    assert (first.episode_return, first.terminated, first.images) == (1.0, True, [""])
    assert film(4, world=1)[2][0].episode_return == 2.0


def test_what_is_gone_on_with_is_recorded_from_its_next_episode_on(film):
    (envs, _, _), (again, _, taken) = film(2), film(0)
    hand_over(envs, again)
    for _ in range(6):
        again.step(torch.tensor([1, 1]))
    assert [len(recording.actions) for recording in taken] == [4]


def test_a_recording_is_kept_as_data_and_as_a_film(film, tmp_path):
    pytest.importorskip("av")
    keep(film(4)[2][0], tmp_path / "new", "Show")
    data = np.load(tmp_path / "new" / "Show.npz")
    assert data["observation"].shape == (5, 3, 8, 8) and data["episode_return"] == 1.0 and data["terminated"]
    assert (tmp_path / "new" / "Show.mp4").stat().st_size > 500


def test_the_newest_frame_is_the_picture():
    grey = np.stack([np.zeros((4, 4), np.uint8), np.full((4, 4), 9, np.uint8)])
    assert picture(grey).shape == (320, 320, 3) and (picture(grey) == 9).all()
