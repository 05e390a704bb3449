"""Worlds through a checkpoint, or carried by somebody: what goes on is, to the bit, what was never interrupted."""

import copy
from itertools import pairwise

import gymnasium
import numpy as np
import pytest
import torch
from playing import bits, hand_over, leaves, random_actions, record
from torch.utils._python_dispatch import TorchDispatchMode

from lab.smoke_test_envs import keep
from stride.config.schema import Config
from stride.envs_fast.vec_env import CPU
from stride.envs_gym.async_env import AsyncEnv
from stride.envs_gym.gym_env import GymEnv
from stride.envs_gym.make import make_envs
from stride.envs_gym.on_device import OnDevice
from stride.envs_gym.recorder import Recorder, picture
from stride.envs_gym.wrappers.registry import WRAPPERS
from stride.utils.user_error import UserError

CLASSIC = ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1",
           "Taxi-v4", "Blackjack-v1", "stride-test/Counting-v0"]  # fmt: skip
MUJOCO = ["HalfCheetah", "Hopper", "Walker2d", "Ant", "Humanoid", "Swimmer", "Reacher", "Pusher", "InvertedPendulum",
          "InvertedDoublePendulum"]  # fmt: skip
DM_CONTROL = ["walker-walk", "cartpole-swingup", "finger-turn_hard", "quadruped-fetch", "lqr-lqr_2_1"]
MINIGRID = ["MiniGrid-DoorKey-5x5-v0", "MiniGrid-Dynamic-Obstacles-5x5-v0", "MiniGrid-Fetch-5x5-N2-v0"]
ARCADE = [("ALE/Pong-v5", {}), ("ALE/Breakout-v5", {}), ("SpaceInvadersNoFrameskip-v4", {"frameskip": 4})]
WRAPPED = {  # name: (environment, wrapper, other keys)
    "cartpole shaper": ("CartPole-v1", {"id": "CartPoleShaper", "scale": 3.0}, {}),
    "count bonus of states": ("FrozenLake-v1", {"id": "CountBonus"}, {}),
    "encoder": ("FrozenLake-v1", {"id": "DiscreteEncoder", "encoding": "binary"}, {}),
    "remapper": ("FrozenLake-v1", {"id": "ActionRemapper", "actions": [2, 1]}, {}),
    "sticky continuous": ("Pendulum-v1", {"id": "StickyActions", "probability": 0.5}, {}),
    "frame stack": ("CartPole-v1", None, {"frame_stack": 3}),
    "time limit": ("FrozenLake-v1", {"id": "TimeLimit", "max_episode_steps": 7}, {}),
    "mask": ("Taxi-v4", None, {"action_mask": True}),
    "pixels": ("CartPole-v1", None, {"obs": "pixels", "resize_obs": (20, 30), "frame_stack": 2}),
}
VALID = {"id": "ActionMask", "valid_actions": [0, 2]}
SEVERAL = ({"id": "StickyActions"}, {"id": "MountainCarCountBonus"}, {"id": "MountainCarShaper"}, VALID)
ALL_AT_ONCE = {"env_id": "MountainCar-v0", "frame_skip": 3, "env_wrappers": SEVERAL, "max_episode_steps": 60}


def cases():
    """Keys of a config, the package that it wants, and the steps between two files."""
    for env_id in CLASSIC:
        yield pytest.param({"env_id": env_id}, "gymnasium", 50, id=env_id)
    for name, (env_id, wrapper, keys) in WRAPPED.items():
        wrappers = () if wrapper is None else (wrapper,)
        yield pytest.param({"env_id": env_id, "env_wrappers": wrappers, **keys}, "gymnasium", 50, id=name)
    yield pytest.param(ALL_AT_ONCE, "gymnasium", 50, id="all at once")
    for env_id in ("LunarLander-v3", "LunarLanderContinuous-v3"):
        yield pytest.param({"env_id": env_id}, "Box2D", 130, id=env_id)
    optional = [("mujoco", f"{name}-v5", 130, {"max_episode_steps": 90}) for name in MUJOCO]
    optional += [("dm_control", f"dm_control/{name}", 60, {"max_episode_steps": 40}) for name in DM_CONTROL]
    grids = {"max_episode_steps": 40, "env_wrappers": ({"id": "MiniGridMask"}, {"id": "MiniGridFlat"})}
    optional += [("minigrid", env_id, 60, grids) for env_id in MINIGRID]
    for env_id, kwargs in ARCADE:  # the generator is inside the emulator
        kwargs = {**kwargs, "repeat_action_probability": 0.25}
        optional.append(("ale_py", env_id, 80, {"max_episode_steps": 60, "env_kwargs": kwargs}))
    for package, env_id, every, keys in optional:
        yield pytest.param({"env_id": env_id, **keys}, package, every, id=env_id, marks=pytest.mark.slow)


@pytest.mark.parametrize(("keys", "package", "every"), [*cases()])
def test_fresh_worlds_go_on_to_the_bit(keys, package, every, caplog):
    """At a first observation and in the midst of episodes; each file is written by worlds that came from one."""
    pytest.importorskip(package)
    config = Config(**keys, env_backend="gym")
    straight, current = make_envs(config, 2), make_envs(config, 2)
    straight.reset(7), current.reset(7)
    actions = random_actions(straight, 3 * every)
    for start, end in pairwise(range(0, 3 * every + 1, every)):
        fresh = make_envs(config, 2)
        hand_over(current, fresh)
        assert record(fresh, actions[start:end]) == record(straight, actions[start:end])
        current = fresh
    assert straight.resume == current.resume == "exact" and not caplog.records


CHANGES = {  # of the second world's part of a file
    "generator": lambda state: state["rng"][1]["state"].update(state=1),
    "place": lambda state: state["obs"][1].add_(1),
    "physics": lambda state: state["rng"][1].update(physics="another"),
}


@pytest.mark.parametrize(
    ("env_id", "package", "changed"),
    [
        ("FrozenLake-v1", "gymnasium", "generator"),
        ("FrozenLake-v1", "gymnasium", "place"),
        pytest.param("HalfCheetah-v5", "mujoco", "physics", marks=pytest.mark.slow),
        pytest.param("dm_control/walker-walk", "dm_control", "physics", marks=pytest.mark.slow),
    ],
)
def test_a_world_that_came_out_otherwise_is_cut_and_the_others_go_on(env_id, package, changed, caplog):
    """Though all looks the same, where its generator or its physics differ."""
    pytest.importorskip(package)
    config = Config(env_id=env_id, env_backend="gym")
    envs, fresh = make_envs(config, 3), make_envs(config, 3)
    envs.reset(1)
    actions = random_actions(envs, 11)
    record(envs, actions[:10])
    state = copy.deepcopy(envs.state_dict())
    CHANGES[changed](state)
    fresh.load_state_dict(state)
    assert f"{env_id} cannot be restored exactly: 1 of 3 environments start a new episode" in caplog.text
    step = fresh.step(actions[10])
    assert step.truncated[1] and bits(step, [0, 2]) == bits(envs.step(actions[10]), [0, 2])


class Grudge(gymnasium.RewardWrapper):
    """Pays less for every reward it has ever paid, and tells nobody what it remembers."""

    def __init__(self, env):
        super().__init__(env)
        self.paid = 0

    def reward(self, reward):
        self.paid += 1
        return reward - self.paid


@pytest.mark.parametrize(
    "keys",
    [
        {"env_id": "stride-test/Forgetful-v0", "env_kwargs": {"length": 5}},  # a generator of its own
        {"env_id": "MountainCar-v0", "env_wrappers": ({"id": "Grudge"},), "max_episode_steps": 5},
    ],
)
def test_what_cannot_be_replayed_is_cut_with_one_warning(keys, caplog, monkeypatch):
    """The saved episode ends as truncated, where it stood, and a new one begins."""
    monkeypatch.setitem(WRAPPERS, "Grudge", Grudge)
    config = Config(**keys, env_backend="gym")
    envs, fresh = make_envs(config, 2), make_envs(config, 2)
    envs.reset(1)
    actions = random_actions(envs, 22)
    record(envs, actions)
    state = hand_over(envs, fresh)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == f"{keys['env_id']} cannot be restored exactly: 2 of 2 environments start a new episode"
    step = fresh.step(actions[0])
    assert step.truncated.all() and not step.terminated.any() and step.reward.tolist() == [0, 0]
    assert torch.equal(step.final_obs, state["obs"])  # what the policy saw is what is valued
    assert step.episode_length.tolist() == [2, 2] == state["lengths"]
    assert step.episode_return.tolist() == pytest.approx(state["returns"])
    step = fresh.step(actions[0])
    assert not step.truncated.any() and step.episode_length.tolist() == [1, 1]


def test_taking_a_state_changes_nothing_and_is_not_changed_by_steps():
    envs, other, fresh = (GymEnv("CartPole-v1", 2) for _ in range(3))
    envs.reset(1), other.reset(1)
    actions = random_actions(envs, 40)
    for action in actions:
        state = envs.state_dict()
        before = copy.deepcopy(other.state_dict())
        assert record(envs, [action]) == record(other, [action])
    record(envs, actions)
    fresh.load_state_dict(state)
    untouched = GymEnv("CartPole-v1", 2)
    untouched.load_state_dict(before)
    assert record(fresh, actions) == record(untouched, actions)


def test_a_seam_environment_says_so_and_starts_unused_worlds(monkeypatch):
    monkeypatch.setattr("stride.envs_gym.snapshot.SEAM_IDS", ("stride-test/Counting",))
    envs, fresh, again = (GymEnv("stride-test/Counting-v0", 2) for _ in range(3))
    assert envs.resume == fresh.resume == "seam"
    starts = {*envs.reset(1)[:, 1].tolist()}
    action = torch.zeros(2, dtype=torch.int64)
    for _ in range(4):
        starts |= {*envs.step(action).obs[:, 1].tolist()}
    hand_over(envs, fresh), hand_over(envs, again)
    new = fresh.step(action).obs[:, 1].tolist()
    assert len({*new} | starts) == len(starts) + 2
    assert again.step(action).obs[:, 1].tolist() == new  # the same checkpoint begins the same worlds


def test_a_state_of_other_worlds_is_refused():
    envs = GymEnv("CartPole-v1", 2)
    with pytest.raises(RuntimeError, match="before its first reset"):
        envs.state_dict()
    envs.reset(1)
    with pytest.raises(UserError, match="2 environments of CartPole-v1, not 3 of CartPole-v1"):
        GymEnv("CartPole-v1", 3).load_state_dict(envs.state_dict())
    with pytest.raises(UserError, match="not 2 of Acrobot-v1"):
        GymEnv("Acrobot-v1", 2).load_state_dict(envs.state_dict())


# ---- who carries them answers their bits: worker processes, a device (here the CPU), the recorder of episodes

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
    for played in (carried_again, bare_again):  # what came before is forgotten
        played.reset(6), record(played, actions[:9])
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
