"""MiniGrid: its view as numbers, its sentence as words, and a mask of what would change anything."""

import copy

import numpy as np
import pytest
import torch
from playing import refused

from stride.config.schema import Config
from stride.envs_gym.make import make_envs
from stride.envs_gym.wrappers.minigrid import MissionWords, one_hot

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
    with pytest.raises(ValueError, match="'get a green key' is none of its mission space"):
        words.encode("get a green key")


def test_each_cell_is_three_times_one_hot():
    image = np.zeros((7, 7, 3), np.uint8)
    image[2, 3] = 4, 5, 2  # a locked door, grey
    seen = one_hot(image)
    assert seen.shape == (7, 7, 21) and (seen.sum(-1) == 3).all() and seen[2, 3].nonzero()[0].tolist() == [4, 16, 19]


def test_what_is_no_grid_is_refused():
    line = refused("CartPole-v1", env_wrappers=({"id": "MiniGridFlat"},))
    assert "MiniGridFlat needs MiniGrid's own view, not CartPole-v1's" in line


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
    assert "sentences of a grammar; give {id: MiniGridFlat, mission: false" in line
    assert worlds("BabyAI-GoToRedBall-v0", {"id": "MiniGridFlat", "mission": False}).observation_space.shape == (1033,)


@pytest.mark.slow
def test_a_typo_gets_the_nearest_grid():
    pytest.importorskip("minigrid")
    assert "did you mean MiniGrid-DoorKey-5x5-v0" in refused("MiniGrid-DoorKy-5x5-v0")
