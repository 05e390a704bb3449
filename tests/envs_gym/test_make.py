"""The one place of choice: what it makes, what it knows, and one line for everything that can be wrong."""

from types import SimpleNamespace
from typing import get_args, get_type_hints

import gymnasium
import pytest
import torch

from stride.config.schema import Config
from stride.envs_fast import registry
from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_gym.backends import ROWS, choose_backend
from stride.envs_gym.gym_env import GymEnv
from stride.envs_gym.make import env_info, make_envs
from stride.utils.user_error import UserError


def wrong(**keys):
    with pytest.raises(UserError) as caught:
        make_envs(Config(**keys), 1)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(("backend", "kind"), [("auto", NumbaEnv), ("fast", NumbaEnv), ("gym", GymEnv)])
def test_each_backend_gives_its_own_worlds(backend, kind):
    config = Config(env_id="FrozenLake-v1", env_backend=backend, env_kwargs={"is_slippery": False}, max_episode_steps=7)
    envs = make_envs(config, 3)
    assert isinstance(envs, kind) and envs.num_envs == 3 and envs.time_limit == 7
    envs.reset(0)
    down = torch.full((3,), 1)
    assert envs.step(down).obs.tolist() == [4, 4, 4]  # not slippery: the argument arrived
    envs.close()


def test_for_a_gpu_compiled_worlds_are_computed_there_and_gymnasiums_are_copied(monkeypatch):
    device, made = torch.device("cuda:1"), []

    def there(world, number, limit, device, **kwargs):
        made.append((world.env_id, number, limit, device, kwargs))
        return SimpleNamespace(device=device)

    monkeypatch.setattr(registry, "CudaEnv", there)
    make_envs(Config(env_id="FrozenLake-v1", env_kwargs={"is_slippery": False}, max_episode_steps=7), 3, device)
    assert made == [("FrozenLake-v1", 3, 7, device, {"is_slippery": False})]
    monkeypatch.setattr("stride.envs_gym.make.OnDevice", lambda envs, device: (envs, device))
    envs, at = make_envs(Config(env_id="FrozenLake-v1", env_backend="gym"), 3, device)
    assert isinstance(envs, GymEnv) and at == device


def test_env_info():
    info = env_info(Config(env_id="CartPole-v1"))
    assert (info.reward_threshold, info.max_episode_steps, info.is_image) == (475.0, 500, False)
    assert info.observation_space.shape == (4,) and info.action_space == gymnasium.spaces.Discrete(2)
    info = env_info(Config(env_id="Pendulum-v1", max_episode_steps=50))
    assert (info.reward_threshold, info.max_episode_steps) == (None, 50)
    assert info.action_space == gymnasium.spaces.Box(-1, 1, (1,))


def test_unknown_ids_name_the_nearest():
    assert wrong(env_id="CartPol-v1").startswith("unknown environment 'CartPol-v1'; did you mean CartPole-v1")
    assert wrong(env_id="xyzzy") == "unknown environment 'xyzzy'"
    assert (
        wrong(env_id="no_such_module:Env-v0")
        == "no_such_module:Env-v0: there is no Python module 'no_such_module' to import"
    )


@pytest.mark.parametrize("env_id", ["LunarLander-v2", "LunarLander-v9", "LunarLander"])
def test_other_versions_name_the_newest(env_id):
    assert wrong(env_id=env_id) == f"unknown environment '{env_id}'; the newest version is LunarLander-v3"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_ids_that_moved_elsewhere_name_the_newest():
    assert wrong(env_id="HalfCheetah-v3").endswith("the newest version is HalfCheetah-v5")


def test_wrong_arguments_of_the_environment():
    message = wrong(env_id="FrozenLake-v1", env_kwargs={"is_slipery": False})
    assert "no 'is_slipery'; did you mean is_slippery?; accepted: render_mode, desc, map_name, is_slippery" in message
    assert "'9x9'" in wrong(env_id="FrozenLake-v1", env_kwargs={"map_name": "9x9"})
    assert "max_episode_steps is a key of its own" in wrong(env_id="CartPole-v1", env_kwargs={"max_episode_steps": 3})


def test_a_missing_argument_is_named():
    class Demanding(gymnasium.Env):
        def __init__(self, size):
            self.observation_space = self.action_space = gymnasium.spaces.Discrete(size)

    gymnasium.register("stride-test/Demanding-v0", Demanding)
    assert "env_kwargs must give 'size'" in wrong(env_id="stride-test/Demanding-v0")
    assert env_info(Config(env_id="stride-test/Demanding-v0", env_kwargs={"size": 4})).action_space.n == 4


@pytest.mark.parametrize("which", ["observation", "action"])
def test_unsupported_spaces_are_named(which):
    class Odd(gymnasium.Env):
        observation_space = gymnasium.spaces.Text(4) if which == "observation" else gymnasium.spaces.Discrete(2)
        action_space = gymnasium.spaces.Text(4)

    gymnasium.register(f"stride-test/Odd-{which}-v0", Odd)
    assert wrong(env_id=f"stride-test/Odd-{which}-v0").startswith(f"stride-test/Odd-{which}-v0: {which} space Text(")


def test_what_is_not_there_yet_is_refused_by_name():
    assert "did you mean CartPole-v1" in wrong(env_id="CartPol-v1", env_backend="fast")
    assert "'Frames' is not registered" in wrong(env_id="CartPole-v1", env_wrappers=({"id": "Frames"},))


@pytest.mark.parametrize(
    ("asked", "backend", "reason"),
    [
        ({"env_id": "CartPole-v1"}, "fast", "nothing that only Gymnasium has"),
        ({"env_id": "CartPole-v1", "env_backend": "gym"}, "gym", "as configured"),
        ({"env_id": "CartPole-v1", "env_kwargs": {"render_mode": "rgb_array"}}, "gym", "env_kwargs.render_mode"),
        ({"env_id": "LunarLander-v3"}, "gym", "no compiled worlds of LunarLander-v3"),
    ],
)
def test_auto_takes_the_compiled_worlds_where_it_can_and_says_why(asked, backend, reason):
    choice = choose_backend(Config(**asked))
    assert choice.name == backend and reason in choice.reason


def test_a_backend_asked_for_that_cannot_play_says_why_and_what_auto_takes():
    told = "env_backend fast cannot play this: "
    assert (
        wrong(env_id="Hopper-v5", env_backend="fast")
        == f"{told}there are no compiled worlds of Hopper-v5; auto takes gym"
    )
    skipped = wrong(env_id="CartPole-v1", env_backend="fast", frame_skip=2)
    assert skipped == f"{told}only Gymnasium's worlds take FrameSkip; auto takes gym"


def test_every_row_is_a_file_that_answers_to_its_name_and_a_word_of_the_key():
    words = get_args(get_type_hints(Config)["env_backend"])
    for row in ROWS:
        assert row.name == row.load().NAME and row.name in words


def test_images_are_recognised():
    class Picture(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 255, (3, 8, 8), "uint8")
        action_space = gymnasium.spaces.Discrete(2)

    gymnasium.register("stride-test/Picture-v0", Picture)
    assert env_info(Config(env_id="stride-test/Picture-v0")).is_image
