"""The one place of choice: what it makes, what it knows, and one line for everything that can be wrong."""

from types import SimpleNamespace
from typing import get_args, get_type_hints

import gymnasium
import pytest
import torch
from exotic_worlds import Exotic
from gymnasium.spaces import Box, Discrete, Text
from playing import OTHERS, refused
from snapshots import shown

from stride.config.schema import Config
from stride.envs_fast import registry
from stride.envs_fast.numba_env import NumbaEnv
from stride.envs_gym.backends import ROWS, choose_backend
from stride.envs_gym.gym_env import GymEnv
from stride.envs_gym.make import env_info, make_envs


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
    assert info.observation_space.shape == (4,) and info.action_space == Discrete(2)
    info = env_info(Config(env_id="Pendulum-v1", max_episode_steps=50))
    assert (info.reward_threshold, info.max_episode_steps) == (None, 50)
    assert info.action_space == Box(-1, 1, (1,))


SPACES = {
    "Seen": {"observation_space": Text(4), "action_space": Discrete(2)},
    "Done": {"observation_space": Discrete(2), "action_space": Text(4)},
    "Picture": {"observation_space": Box(0, 255, (3, 8, 8), "uint8"), "action_space": Discrete(2)},
    "Demanding": {"observation_space": Discrete(2)},  # and the other one must be given
}
for name, spaces in SPACES.items():
    gymnasium.register(f"stride-test/{name}-v0", Exotic, kwargs=spaces)
REFUSED = [
    *({"env_id": env_id} for env_id in ("CartPol-v1", "xyzzy", "no_such_module:Env-v0", "HalfCheetah-v3")),
    *({"env_id": env_id} for env_id in ("LunarLander-v2", "LunarLander-v9", "LunarLander")),
    *({"env_id": f"stride-test/{name}-v0"} for name in ("Demanding", "Seen", "Done")),
    {"env_id": "FrozenLake-v1", "env_kwargs": {"is_slipery": False}},
    {"env_id": "FrozenLake-v1", "env_kwargs": {"map_name": "9x9"}},
    {"env_id": "CartPole-v1", "env_kwargs": {"max_episode_steps": 3}},
    {"env_id": "CartPole-v1", "env_wrappers": ({"id": "Frames"},)},
    {"env_id": "CartPol-v1", "env_backend": "fast"},
    {"env_id": "Hopper-v5", "env_backend": "fast"},
    {"env_id": "CartPole-v1", "env_backend": "fast", "frame_skip": 2},
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_is_wrong_is_one_line_with_the_nearest_or_newest_name(snapshot):
    assert shown("\n".join(refused(**keys) for keys in REFUSED), *OTHERS) == snapshot


def test_what_is_given_and_what_is_seen():
    demanding = Config(env_id="stride-test/Demanding-v0", env_kwargs={"action_space": Discrete(4)})
    assert env_info(demanding).action_space.n == 4
    assert env_info(Config(env_id="stride-test/Picture-v0")).is_image


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


def test_every_row_is_a_file_that_answers_to_its_name_and_a_word_of_the_key():
    words = get_args(get_type_hints(Config)["env_backend"])
    for row in ROWS:
        assert row.name == row.load().NAME and row.name in words
