"""MiniGrid's compiled tasks: beside recorded answers of the package, rules one by one, the view, layouts, ids."""

from collections import Counter

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from playing import bits
from reachable import on_host

from lab import minigrid_parity as parity
from lab.minigrid_states import random_actions, random_states
from stride.agents.engines.choice import build_agent
from stride.config.extras import COMPILED, missing
from stride.config.general import load_general
from stride.config.loader import load_config
from stride.config.schema import Config
from stride.envs_fast.minigrid import rules
from stride.envs_fast.minigrid.rules import CARRIED, CELLS, COLOUR, FACING, STATE, X, Y
from stride.envs_fast.registry import WORLDS, make
from stride.envs_fast.world import Worlds
from stride.envs_gym import make as making
from stride.envs_gym.backends import choose_backend
from stride.envs_gym.task import task_of
from stride.utils.user_error import UserError

KEY_5X5 = "MiniGrid-DoorKey-5x5-v0"
YELLOW_KEY, BLUE_KEY = (rules.KEY + COLOUR * colour for colour in (rules.YELLOW, rules.BLUE))
LOCKED_DOOR = rules.DOOR + COLOUR * rules.YELLOW + STATE * rules.LOCKED
OPEN_DOOR = rules.DOOR + COLOUR * rules.YELLOW


def recorded(env_id, names):
    with np.load(parity.FILE) as file:
        return [file[f"{env_id} {name}"] for name in names]


@pytest.mark.parametrize("env_id", parity.SHOWN)
def test_steps_from_anywhere_are_the_packages(env_id):
    """By its recorded answers; `python -m lab.minigrid_parity` asks the package itself."""
    played = parity.Played(*recorded(env_id, parity.Played._fields))
    theirs = parity.Answers(*recorded(env_id, parity.Answers._fields))
    mine, _ = parity.our_answers(make(env_id, played.ages.size, seed=parity.SEED), played)
    assert theirs.terminated.any() and theirs.truncated.any() and theirs.reward.any()
    assert not parity.differences(mine, theirs).any()


@pytest.mark.parametrize("env_id", parity.SHOWN)
def test_layouts_are_drawn_as_the_packages(env_id):
    """By how often each thing was in each cell of its own, and how far apart things were."""
    labels, counts = recorded(env_id, ("labels", "counts"))
    theirs = Counter(dict(zip(labels.tolist(), counts.tolist(), strict=True)))
    cells, agents = parity.our_layouts(env_id, 4 * parity.LAYOUTS)
    far, compared = parity.farthest(parity.features(cells, agents), theirs)
    assert far < parity.MAX_DEVIATIONS and compared >= 6
    cells[::5], agents[::5] = cells[0], agents[0]  # a fifth of them alike: the comparison can fail
    assert parity.farthest(parity.features(cells, agents), theirs)[0] > parity.MAX_DEVIATIONS


def room(ahead=rules.EMPTY, carried=rules.NOTHING, env_id=KEY_5X5):
    """A task in an empty room of 3 x 3 cells; the agent in its middle looks to the right, at some cell."""
    env = make(env_id, 1, seed=0)
    grid = np.full((5, 5), rules.STONE)
    grid[1:-1, 1:-1] = rules.EMPTY
    grid[2, 3] = ahead
    env.state[CELLS:, 0] = grid.reshape(-1)
    env.state[[X, Y, FACING, CARRIED], 0] = 2, 2, 0, carried
    return env


def after(env, *actions):
    """What is ahead, what is carried, the last reward, and whether the episode has just ended."""
    for action in actions:
        step = env.step(torch.tensor([action]))
    ahead = env.state[CELLS + 5 * 2 + 3, 0]
    return int(ahead), int(env.state[CARRIED, 0]), step.reward.item(), step.terminated.item()


def test_a_door_is_opened_by_the_key_of_its_colour_and_then_by_anybody():
    assert after(room(LOCKED_DOOR), rules.TOGGLE)[0] == LOCKED_DOOR
    assert after(room(LOCKED_DOOR, BLUE_KEY), rules.TOGGLE)[0] == LOCKED_DOOR
    assert after(room(LOCKED_DOOR, YELLOW_KEY), rules.TOGGLE)[:2] == (OPEN_DOOR, YELLOW_KEY)
    closed = OPEN_DOOR + STATE * rules.CLOSED
    assert after(room(OPEN_DOOR), rules.TOGGLE)[0] == closed and after(room(closed), rules.TOGGLE)[0] == OPEN_DOOR
    for door, x in ((OPEN_DOOR, 3), (closed, 2), (LOCKED_DOOR, 2)):
        env = room(door)
        after(env, rules.FORWARD)
        assert env.state[X, 0] == x


def test_one_thing_is_carried_and_dropped_where_nothing_is():
    assert after(room(BLUE_KEY), rules.PICK_UP)[:2] == (rules.EMPTY, BLUE_KEY)
    assert after(room(BLUE_KEY, YELLOW_KEY), rules.PICK_UP)[:2] == (BLUE_KEY, YELLOW_KEY)
    assert after(room(rules.EMPTY, BLUE_KEY), rules.DROP)[:2] == (BLUE_KEY, rules.NOTHING)
    assert after(room(rules.FINISH, BLUE_KEY), rules.DROP)[:2] == (rules.FINISH, BLUE_KEY)
    assert after(room(OPEN_DOOR), rules.PICK_UP)[:2] == (OPEN_DOOR, rules.NOTHING)
    assert after(room(rules.BOX + COLOUR), rules.TOGGLE)[0] == rules.EMPTY


def test_the_goal_pays_for_speed_and_lava_ends_without_pay():
    _, _, reward, over = after(room(rules.FINISH), rules.LEFT, rules.RIGHT, rules.DONE, rules.FORWARD)
    assert over and reward == pytest.approx(1 - 0.9 * 4 / 250, abs=1e-7)
    _, _, reward, over = after(room(rules.FIRE), rules.FORWARD)
    assert over and reward == 0.0


def test_episodes_are_cut_at_the_packages_limit():
    env = make("MiniGrid-LavaGapS5-v0", 3, seed=1)
    turns = env.advance(torch.full((101, 3), rules.LEFT))
    assert turns.truncated[99].all() and turns.truncated.sum() == 3 and not turns.terminated.any()
    assert turns.episode_length[99].tolist() == [100.0] * 3


def test_what_is_behind_a_wall_is_unseen_and_what_is_carried_is_at_the_agents_place():
    env = make("MiniGrid-FourRooms-v0", 1, seed=0)
    grid = env.state[CELLS:, 0].reshape(19, 19)
    grid[1:-1, 1:-1] = rules.EMPTY
    grid[5, 5:] = rules.STONE
    grid[4, 8], grid[7, 8] = BLUE_KEY, BLUE_KEY
    env.state[[X, Y, FACING, CARRIED], 0] = 8, 6, 3, YELLOW_KEY  # looks up at the wall, a key behind it
    kinds = env.observe(0).reshape(rules.PLANES, 7, 7)[: rules.KINDS].argmax(axis=0)
    assert kinds[3, 6] == rules.KEY and (kinds[1:, 5] == rules.WALL).all() and (kinds[:, :5] == rules.UNSEEN).all()
    grid[5, 8] = OPEN_DOOR
    seen = env.observe(0).reshape(rules.PLANES, 7, 7)
    assert seen[: rules.KINDS].argmax(axis=0)[3, 4] == rules.KEY
    assert (seen.reshape(rules.PLANES, -1)[-4:].max(axis=1) == [0, 0, 0, 255]).all()
    assert set(np.unique(seen)) == {0, 255}


@pytest.mark.parametrize("env_id", parity.SHOWN)
def test_threads_steps_per_call_and_a_resume_in_mid_episode_change_no_bit(env_id):
    tape = torch.from_numpy(random_actions((60, 40), np.random.default_rng(2)))
    whole = make(env_id, 40, seed=5, max_episode_steps=23)
    expected = whole.advance(tape[:31]), whole.advance(tape[31:])
    shared = make(env_id, 40, seed=5, max_episode_steps=23, workers=2)
    assert bits(shared.advance(tape[:31])) == bits(expected[0])
    resumed = make(env_id, 40, max_episode_steps=23)
    resumed.load_state_dict(shared.state_dict())
    assert resumed.ages.any() and bits(resumed.advance(tape[31:])) == bits(expected[1])
    few = make(env_id, 7, seed=5, max_episode_steps=23)
    assert bits(few.advance(tape[:31, :7].contiguous())) == bits(expected[0], slice(7))
    other = make(env_id, 40, seed=6).state
    assert env_id == "MiniGrid-LavaGapS5-v0" or not np.array_equal(other, make(env_id, 40, seed=5).state)
    shared.close()


LARGE = ("MiniGrid-KeyCorridorS6R3-v0", "MiniGrid-MultiRoom-N6-v0")
TWINS = [KEY_5X5, *(pytest.param(i, marks=pytest.mark.slow) for i in (*parity.SHOWN, *LARGE) if i != KEY_5X5)]


@pytest.mark.parametrize("env_id", TWINS)
def test_kernels_for_a_gpu_play_the_same_bits(env_id):
    """First layouts; random states, ends and resets; a wrong action is told, and the nearest legal one is played."""
    number, rng = 130, np.random.default_rng(3)
    mine, theirs = (of(env_id, number, parity.SEED, 23) for of in (on_host, make))
    mine._kernels.order = 2
    tape = torch.from_numpy(random_actions((60, number), rng))
    assert np.array_equal(mine.obs, theirs.obs) and np.array_equal(mine.state, theirs.state)
    theirs.state[:] = random_states(env_id, number, rng)
    mine.state.copy_(torch.from_numpy(theirs.state))
    result = theirs.advance(tape)
    assert bits(mine.advance(tape)) == bits(result) and result.terminated.any() and result.truncated.any()
    assert not mine.wrong
    for odd, near in ((-(2**40), 0), (7, 6)):
        given, legal = torch.full((2, 1, number), rules.FORWARD)
        given[0, 3], legal[0, 3] = odd, near
        assert bits(mine.advance(given)) == bits(theirs.advance(legal)) and mine.wrong
        mine.wrong.zero_()
    for name in Worlds._fields:
        assert np.array_equal(getattr(mine, name), getattr(theirs, name))


def test_gymnasiums_checker_passes_and_pictures_are_of_the_whole_grid():
    env = gymnasium.make("fast/MiniGrid-Empty-5x5-v0", render_mode="rgb_array")
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=3)

    def agent():
        """The cell that has a pixel of the agent's colour in its middle, under the veil."""
        frame = env.render()
        assert frame.shape == (160, 160, 3)
        return np.argwhere((frame[16::32, 16::32] == (255, 76, 76)).all(axis=2)).tolist()

    path = [agent()]
    for action in (rules.FORWARD, rules.FORWARD, rules.RIGHT, rules.FORWARD, rules.FORWARD):
        over = env.step(action)[2]
        path.append(agent())
    assert over and path == [[[1, 1]], [[1, 2]], [[1, 3]], [[1, 3]], [[2, 3]], [[3, 3]]]  # y, x; the last at the goal


def test_what_the_agent_sees_lies_under_a_veil():
    env = gymnasium.make("fast/MiniGrid-FourRooms-v0", render_mode="rgb_array").unwrapped
    env.reset(seed=0)
    fast = env.vector.env
    fast.state[CELLS:, 0] = rules.STONE
    grid = fast.state[CELLS:, 0].reshape(19, 19)
    grid[1:-1, 1:-1] = rules.EMPTY
    grid[5, 5:] = rules.STONE
    grid[7, 8] = LOCKED_DOOR
    fast.state[[X, Y, FACING], 0] = 8, 6, 3  # looks up at a wall, a door behind it
    expected = np.zeros((19, 19), np.bool_)
    expected[5:7, 5:12] = True
    centres = env.render()[16::32, 16::32, 2]
    assert np.array_equal(np.isin(centres, (76, 146)), expected)  # black and grey under the veil


def test_a_config_is_compiled_unless_a_wrapper_asks_for_the_package():
    compiled = load_config(KEY_5X5, "ppo")
    assert choose_backend(compiled).name == "fast" and WORLDS[KEY_5X5].time_limit == 250
    for variant in ("vector", "lstm", "cnn"):
        backend = choose_backend(load_config(KEY_5X5, variant))
        assert (backend.name, backend.reason) == ("gym", "only gym supports MiniGridMask")
    general = load_general("MiniGrid-Empty-8x8-v0:ppo", (), task_of)
    assert general.env_wrappers == () and general.policy == "cnn" and choose_backend(general).name == "fast"
    agent = build_agent(compiled, make(KEY_5X5, compiled.n_envs))
    assert agent.engine.name == "fused_cpu"


def test_the_packages_absence_matters_only_to_what_it_plays(monkeypatch):
    def absent(module):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(making, "import_named", absent)
    assert making.import_module(KEY_5X5) == KEY_5X5 and missing(KEY_5X5) is None
    with pytest.raises(UserError, match=r"-7x7-v0 needs MiniGrid: pip install .*did you mean MiniGrid-DoorKey-.x.-v0"):
        making.import_module("MiniGrid-DoorKey-7x7-v0")
    assert [env_id for env_id in WORLDS if COMPILED.match(env_id)] == parity.IDS
    assert not COMPILED.match("MiniGrid-UnlockPickup-v0") and not COMPILED.match("MiniGrid-LavaCrossingS9N1-v0")


def test_unknown_sizes_are_one_line():
    with pytest.raises(UserError, match=r"no fast environment 'MiniGrid-DoorKey-7x7-v0'; did you mean .*-.x.-v0"):
        make("MiniGrid-DoorKey-7x7-v0")
    with pytest.raises(UserError, match="has no argument 'size'"):
        make(KEY_5X5, size=6)
    assert choose_backend(Config(env_id="minigrid:MiniGrid-Empty-5x5-v0")).name == "gym"
