"""dm_control beside the suite itself, pictures, what is not installed, MuJoCo's warnings; MiniGrid's view and masks."""

import copy
import importlib
import logging
import sys

import gymnasium
import numpy as np
import pytest
import torch
from playing import refused

from stride.config import extras
from stride.config.general import load_general
from stride.config.schema import Config
from stride.envs_gym import dmc, make
from stride.envs_gym.blame import EnvError
from stride.envs_gym.make import REGISTERED_BY, find_spec, import_module, make_envs
from stride.envs_gym.task import task_of
from stride.envs_gym.wrappers.minigrid import MissionWords, one_hot
from stride.utils.user_error import UserError


@pytest.fixture
def suite():
    pytest.importorskip("dm_control")
    import_module("dm_control/walker-walk")
    return importlib.import_module("dm_control.suite")


NEEDY = ["dm_control/walker-walk", "MiniGrid-X-v0", "BabyAI-GoToRedBall-v0", "VizDoom/other", "Retro/Other-Nes-v0"]


@pytest.mark.parametrize("env_id", NEEDY)
def test_a_family_that_is_not_installed_is_one_line_with_the_cure(env_id, monkeypatch):
    def absent(module):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    extra = extras.extra_of(env_id)
    monkeypatch.setattr(importlib, "import_module", absent)
    monkeypatch.setitem(sys.modules, extra.module, None)
    assert refused(env_id) == f"{env_id} needs {extra.title}: {extra.cure}"


def test_a_family_whose_package_is_broken_is_no_missing_one(monkeypatch):
    def broken(module):
        raise ModuleNotFoundError("No module named 'scipy'", name="scipy")

    monkeypatch.setattr(importlib, "import_module", broken)
    with pytest.raises(EnvError, match=r"dm_control cannot be imported: .*scipy"):
        find_spec("dm_control/walker-walk")


def test_what_registers_ids_is_known_to_the_table_of_extras():
    for start, module in REGISTERED_BY.items():
        extra = extras.extra_of(start)
        assert extra.registers and module.rpartition(".")[2] in (extra.module, f"{extra.module}_worlds")


@pytest.mark.slow
def test_a_task_of_the_suite_is_an_id_with_the_suites_time_limit(suite):
    assert all(f"dm_control/{domain}-{task}" in gymnasium.registry for domain, task in suite.ALL_TASKS)
    for domain, task in suite.ALL_TASKS[::5]:
        spec = find_spec(f"dm_control/{domain}-{task}")
        limit = suite.load(domain, task, task_kwargs={"random": 0})._step_limit
        assert spec.max_episode_steps == (1000 if limit == float("inf") else limit), spec.id
    with pytest.raises(UserError, match="did you mean dm_control/walker-walk"):
        find_spec("dm_control/walker-wlak")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["walker-walk", "cartpole-swingup", "ball_in_cup-catch"])
def test_an_episode_is_the_suites_own_of_that_seed(suite, name):
    """Observations, rewards and the end of a whole short episode against dm_control's own environment."""
    env = gymnasium.make(f"dm_control/{name}", max_episode_steps=50)
    obs, _ = env.reset(seed=3)
    drawn = int(np.random.Generator(np.random.PCG64(np.random.SeedSequence(3))).integers(dmc.SEEDS))
    theirs = suite.load(*name.split("-"), task_kwargs={"random": drawn})
    shown = theirs.reset().observation
    rng = np.random.default_rng(1)
    for step in range(50):
        assert np.array_equal(obs, np.concatenate([np.ravel(part) for part in shown.values()]).astype(np.float32))
        action = rng.uniform(-1, 1, env.action_space.shape)
        obs, reward, terminated, truncated, _ = env.step(action)
        now = theirs.step(action)
        shown = now.observation
        assert reward == now.reward and not terminated and truncated == (step == 49)


@pytest.mark.slow
def test_actuators_without_limits_are_unbounded_and_others_keep_theirs(suite):
    lqr, body = (gymnasium.make(f"dm_control/{name}") for name in ("lqr-lqr_2_1", "quadruped-walk"))
    assert np.isinf(lqr.action_space.high).all() and np.isinf(lqr.action_space.low).all()
    assert body.action_space.high.max() == pytest.approx(1.1) and body.action_space.low.min() == -1


@pytest.mark.slow
@pytest.mark.parametrize(("discount", "ended"), [(0.0, (True, False)), (1.0, (False, True)), (None, (False, False))])
def test_an_end_that_the_task_says_terminates_where_there_is_no_future(suite, discount, ended, monkeypatch):
    env = gymnasium.make("dm_control/cartpole-balance")
    env.reset(seed=1)
    monkeypatch.setattr(type(env.unwrapped._task), "get_termination", lambda task, physics: discount)
    assert env.step(np.zeros(1))[2:4] == ended


@pytest.mark.slow
def test_pictures_of_a_task_are_channels_first_and_change_nothing_else(suite):
    keys = {"env_id": "dm_control/cartpole-balance", "env_kwargs": {"reflections": False}}
    plain, drawn = make_envs(Config(**keys), 1), make_envs(Config(**keys, obs="pixels", resize_obs=(24, 32)), 1)
    plain.reset(1)
    try:
        first = drawn.reset(1).clone()
    except EnvError as error:  # no OpenGL here
        pytest.skip(str(error))
    assert first.shape == (1, 3, 24, 32) and first.dtype == torch.uint8 and first.float().std() > 5
    for _ in range(10):
        one, other = (envs.step(torch.ones(1, 1)) for envs in (plain, drawn))
        assert torch.equal(one.reward, other.reward)
    assert not torch.equal(first, other.obs)


def test_a_warning_is_told_once_and_of_models_that_gymnasium_has_to_mend_never(capfd, caplog, tmp_path, monkeypatch):
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(make, "_logged_warnings", set())
    with caplog.at_level(logging.INFO, "stride"):
        worlds = make_envs(load_general("HalfCheetah-v5:ppo", ["workers=0", "env_backend=gym"], task_of), 2)
        worlds.reset(1)
        assert not caplog.records
        for env in worlds.envs:
            env.unwrapped.data.qvel[:] = 1e12
            env.step(env.action_space.sample())
        worlds.close()
    (record,) = caplog.records
    assert record.message.startswith("MuJoCo: Nan, Inf or huge value in QVEL") and record.levelno == logging.WARNING
    assert capfd.readouterr() == ("", "") and not [*tmp_path.iterdir()]


# ---- MiniGrid: its view as numbers, its sentence as words, and a mask of what would change anything

KEY = "MiniGrid-DoorKey-5x5-v0"
LEFT, RIGHT, FORWARD, TAKE, DROP, TOGGLE, DONE = range(7)


def worlds(env_id, *wrappers, **keys):
    pytest.importorskip("minigrid")
    return make_envs(Config(env_id=env_id, env_wrappers=tuple(wrappers), **keys), 1)


def test_a_sentence_is_its_words_place_by_place():
    words = MissionWords(["go to the red ball", "go to the blue ball", "fetch the blue key now"])
    assert words.size == 2 + 2 + 2 + 3 + 2  # go|fetch, to|the, the|blue, red|blue|key, ball|now
    words = MissionWords(["get a red key", "get a blue key", "get a blue ball"])
    assert words.encode("get a blue key").tolist() == [1, 0, 0, 1] and MissionWords(["the only one"]).size == 0
    with pytest.raises(ValueError, match="'get a green key' is not in its mission space"):
        words.encode("get a green key")


def test_each_cell_is_three_times_one_hot():
    image = np.zeros((7, 7, 3), np.uint8)
    image[2, 3] = 4, 5, 2  # a locked door, grey
    seen = one_hot(image)
    assert seen.shape == (7, 7, 21) and (seen.sum(-1) == 3).all() and seen[2, 3].nonzero()[0].tolist() == [4, 16, 19]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env_id", "size"), [(KEY, 1033), ("MiniGrid-Fetch-5x5-N2-v0", 1033 + 37), ("MiniGrid-GoToDoor-5x5-v0", 1033 + 6)]
)
def test_the_view_as_a_vector_holds_view_direction_and_mission(env_id, size):
    flat = worlds(env_id, {"id": "MiniGridFlat"})
    space = flat.observation_space
    obs = flat.reset(3)[0]
    world = flat.envs[0].unwrapped
    assert space.contains(obs.numpy()) and obs[:1029].reshape(49, 21).sum(1).tolist() == [3] * 49
    assert int(obs[1029:1033].argmax()) == world.agent_dir and obs[1029:1033].sum() == 1
    assert space.shape == (size,), space.shape
    again = {tuple(flat.reset(seed)[0, 1033:].tolist()) for seed in range(12)}
    assert (len(again) > 3) is (size > 1033)  # other missions, other words


@pytest.mark.slow
def test_the_view_as_planes_keeps_its_places():
    planes = worlds(KEY, {"id": "MiniGridPlanes"})
    obs = planes.reset(3)
    assert {*obs} == {"image", "direction"} and obs["image"].shape == (1, 21, 7, 7) and obs["image"].max() == 255
    view = planes.envs[0].unwrapped.gen_obs()["image"]
    assert (obs["image"][0, :11].argmax(0).numpy() == view[..., 0]).all()


def state(world):
    carried = world.carrying and (world.carrying.type, world.carrying.color)
    return world.grid.encode().tobytes(), tuple(world.agent_pos), int(world.agent_dir), carried


def changes(world, action):
    """Whether a copy of the world is another one after the action."""
    other = copy.deepcopy(world)
    other.step(action)
    return state(other) != state(world)


@pytest.mark.slow
def test_the_mask_is_what_would_change_anything():
    """Against the world itself: each action in turn from the same state; but rules of its own keep their actions."""
    masked = worlds(KEY, {"id": "MiniGridMask"}, {"id": "MiniGridFlat"}, action_mask=True)
    obs = masked.reset(5)
    rng, masks = np.random.default_rng(1), set()
    for _ in range(120):
        mask = obs["action_mask"][0].tolist()
        assert mask == [changes(masked.envs[0].unwrapped, action) for action in range(7)]
        masks.add(tuple(mask))
        obs = masked.step(torch.tensor([int(rng.choice(np.flatnonzero(mask)))])).obs
    assert len(masks) >= 4
    door = worlds("MiniGrid-GoToDoor-5x5-v0", {"id": "MiniGridMask"}, {"id": "MiniGridFlat"}, action_mask=True)
    mask = door.reset(1)["action_mask"][0].tolist()
    assert mask[DONE] and mask[TOGGLE] and mask[FORWARD] and not mask[DROP]


@pytest.mark.slow
def test_a_grammar_of_missions_is_refused_with_what_to_do():
    pytest.importorskip("minigrid")
    line = refused("BabyAI-GoToRedBall-v0", env_wrappers=({"id": "MiniGridFlat"},))
    assert "come from a grammar; give {id: MiniGridFlat, mission: false" in line
    assert worlds("BabyAI-GoToRedBall-v0", {"id": "MiniGridFlat", "mission": False}).observation_space.shape == (1033,)
