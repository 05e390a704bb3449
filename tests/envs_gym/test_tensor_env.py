"""Worlds that answer tensors: the contract, no copy, no wait, exact resume or a seam, and what is refused."""

import threading

import gymnasium as gym
import numpy as np
import pytest
import torch
from meta_device import META, NothingMade, Quiet
from playing import OTHERS, hand_over, refused
from snapshots import shown
from tensor_worlds import InPlace, Square

from lab.smoke_test_envs import WORLDS, play
from stride.config.schema import PPOConfig
from stride.envs_gym.backends import choose_backend
from stride.envs_gym.blame import EnvError
from stride.envs_gym.make import env_info, make_envs
from stride.envs_gym.on_device import OnDevice
from stride.envs_gym.rendered import CheckedEnv, SingleWorldEnv, make_rendered
from stride.envs_gym.tensor_env import TensorEnv, checked
from stride.utils.user_error import UserError

SQUARE = "tensor-test/Square-v0"


def config(kind="Square", **changes):
    return PPOConfig(env_id=f"tensor-test/{kind}-v0", max_timesteps=1000, **changes)


def push(n=3):
    return torch.linspace(-1, 1, 2 * n).reshape(n, 2)


@pytest.mark.parametrize(("kind", "resume"), [("Square", "seam"), ("Kept", "exact"), ("InPlace", "seam")])
def test_they_keep_the_contract(kind, resume):
    envs, copy = (make_envs(config(kind), WORLDS) for _ in range(2))
    played = play(envs, copy, 60)
    assert played.resume == resume == envs.resume and len(played.returns) > 3 * WORLDS
    assert (envs.time_limit, envs.reward_threshold, envs.num_envs) == (8, -1.0, WORLDS)
    envs.close()
    assert envs.worlds.closed


def test_a_step_hands_on_the_worlds_own_memory():
    worlds = Square(3)
    envs = TensorEnv(SQUARE, worlds)
    assert envs.reset(1).data_ptr() == worlds.place.data_ptr()
    for _ in range(3):
        assert envs.step(push()).obs.data_ptr() == worlds.place.data_ptr()
        assert torch.equal(worlds.pushed[-1], 2 * push())  # [-1, 1] spans the bounds
    envs.step(9 * push())
    assert worlds.pushed[-1].abs().max() == 2


def test_the_end_of_an_episode_is_what_the_worlds_tell():
    envs = TensorEnv(SQUARE, Square(3, max_episode_steps=2))
    first = envs.reset(1).clone()
    envs.step(torch.zeros(3, 2))
    step = envs.step(torch.zeros(3, 2))
    assert step.truncated.all() and torch.equal(step.final_obs, first) and not torch.equal(step.obs, first)
    assert step.episode_length.tolist() == [2, 2, 2]


class BeginsElsewhere(InPlace):
    """In another memory than it goes on in."""

    def reset(self, **kwargs):
        return super().reset(**kwargs)[0].clone(), {}


@pytest.mark.parametrize("kind", [InPlace, BeginsElsewhere])
def test_where_they_do_not_it_is_the_observation_acted_upon(kind, caplog):
    envs = TensorEnv(SQUARE, kind(3, max_episode_steps=4))
    before, cuts = envs.reset(1).clone(), 0
    for _ in range(9):
        step = envs.step(push() / 4)
        cuts += int(step.truncated.sum())
        assert torch.equal(step.final_obs, before)
        before = step.obs.clone()
    envs.state_dict()
    assert cuts == 6 and "its info has no last observation (final_obs) of 6 truncated episodes" in caplog.text


def test_a_seam_ends_every_episode_where_it_stood():
    envs, again = TensorEnv(SQUARE, Square(3)), TensorEnv(SQUARE, Square(3))
    envs.reset(1)
    for _ in range(3):
        last = envs.step(push() / 9)
    hand_over(envs, again)
    step = again.step(push())
    assert step.truncated.all() and not step.terminated.any() and not step.reward.any()
    assert torch.equal(step.final_obs, last.obs) and torch.equal(step.episode_return, last.episode_return)
    assert step.episode_length.tolist() == [3, 3, 3]
    assert not torch.equal(step.obs, envs.reset(1))  # what begins is none that was there before
    assert again.step(push()).episode_length.tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", [Square, InPlace])
def test_nothing_mixes_devices_or_waits_for_one(kind):
    worlds = kind(4, device="meta")
    worlds.seed = 0
    envs = TensorEnv(SQUARE, worlds)
    envs.reset(1)
    action = torch.zeros(4, 2, device=META)
    with Quiet() as quiet, NothingMade():
        for _ in range(3):
            assert envs.step(action).final_obs.device == META
    assert quiet.reads == 0 and envs.device == META


def test_which_ids_they_are():
    assert choose_backend(config()).name == "torch"
    gym.register(
        "tensor-test/Both-v0", "gymnasium.envs.classic_control.cartpole:CartPoleEnv", vector_entry_point=Square
    )
    assert choose_backend(config("Both")).name == "gym"
    envs = make_envs(config("Both", env_backend="torch"), 2)
    assert isinstance(envs, TensorEnv) and not isinstance(envs, OnDevice)
    assert env_info(config()).reward_threshold == -1 and not env_info(config()).is_image


gym.register("tensor-test/Own-v0", None, vector_entry_point=lambda num_envs: Square(num_envs))
REFUSED = [
    {"env_kwargs": {"edgy": 1}},
    {"env_kwargs": {"device": "cuda"}},
    {"frame_stack": 2, "env_backend": "torch"},
    {"env_id": "tensor-test/Own-v0", "max_episode_steps": 3},
    {"env_id": "Acrobot-v1", "env_backend": "torch"},
    {"env_id": "CartPole-v1", "env_backend": "torch"},  # whose vector answers arrays
]


def test_what_they_cannot_do_is_refused(snapshot):
    assert shown("\n".join(refused(**{"env_id": SQUARE, **keys}) for keys in REFUSED), *OTHERS) == snapshot


def test_arguments_and_limits_reach_them():
    envs = make_envs(config(env_kwargs={"edge": 0.5}, max_episode_steps=3), 2)
    assert (envs.worlds.edge, envs.worlds.limit, envs.time_limit) == (0.5, 3, 3)
    assert make_envs(config("Own"), 2).time_limit is None


FAULTS = {  # what is said of a step that answers so
    "reward is ndarray, not a torch tensor": lambda obs, reward: (obs, reward.numpy()),
    r"reward is torch.float32\[2, 1\]": lambda obs, reward: (obs, reward[:, None]),
    "ZeroDivisionError: division by zero": lambda obs, reward: 1 / 0,
    r"RuntimeError: shape .* is invalid": lambda obs, reward: (obs.flatten(), reward),
    "no answer for 0.2 seconds": lambda obs, reward: threading.Event().wait(60),
}


class Faulty(Square):
    def __init__(self, fault):
        super().__init__(2)
        self.fault = fault

    def step(self, actions):
        obs, reward, *rest = super().step(actions)
        return *self.fault(obs, reward), *rest


@pytest.mark.parametrize("line", FAULTS)
def test_faults_are_theirs_in_one_line(line):
    envs = TensorEnv(SQUARE, Faulty(FAULTS[line]), step_timeout=0.2 if "no answer" in line else None)
    envs.reset(0)
    with pytest.raises(EnvError, match=f"^{SQUARE}: .*{line}"):
        envs.step(push(2))


def test_who_is_no_such_world():
    names = ("num_envs", "reset", "step", "close", "single_observation_space")
    with pytest.raises(UserError, match="PassiveEnv has no device, single_action_space"):
        checked("x", type("PassiveEnv", (), dict.fromkeys(names, 0))())
    late = Square(2)
    late.metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}
    with pytest.raises(UserError, match="autoreset_mode NEXT_STEP"):
        checked("x", late)


# One world of a batch as a `gymnasium.Env`, where Gymnasium has no single one


class Masked(Square):
    """Observes a dict, and takes choices."""

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.single_action_space = gym.spaces.Discrete(2, start=4)
        parts = {"number": gym.spaces.Discrete(3), "action_mask": gym.spaces.MultiBinary(2)}
        self.single_observation_space = gym.spaces.Dict({"place": self.single_observation_space, **parts})

    def observe(self):
        ones = torch.ones(self.num_envs, dtype=torch.int64)
        return {"place": self.place, "number": ones, "action_mask": ones[:, None].expand(-1, 2)}

    def step(self, actions):
        assert actions.tolist() == [5]
        return (*super().step(torch.zeros(1, 2))[:4], {})


gym.register("tensor-test/Masked-v0", None, vector_entry_point=Masked)


def test_one_world_is_played_as_gymnasium_has_it():
    env = make_rendered(config("Kept"), None)
    assert isinstance(env, CheckedEnv) and isinstance(env.unwrapped, SingleWorldEnv)
    batch = make_envs(config("Kept"), 1)
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
    env = make_rendered(config("Masked"), None)
    for obs in (env.reset()[0], env.step(1)[0]):
        assert obs in env.observation_space and obs["number"] == 1 and obs["action_mask"].tolist() == [1, 1]
    assert not np.array_equal(env.reset()[0]["place"], env.reset()[0]["place"])
    env.close()


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(UserError, match="tensor-test/Kept-v0 has no render mode rgb_array; it has none"):
        make_rendered(config("Kept"))
