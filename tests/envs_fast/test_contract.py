"""All compiled worlds and their kernels: the contract, independence of grouping, what is refused, vector loops."""

import platform
import re
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from numba import njit
from playing import OTHERS, bits, leaves, random_actions
from reachable import IDS, on_host
from snapshots import shown

from lab.smoke_test_envs import WORLDS as FEW
from lab.smoke_test_envs import play
from stride.agents.experience.nouns import tree_map
from stride.envs_fast import registry
from stride.envs_fast.registry import WORLDS
from stride.envs_fast.tiles import MOVE, Tile
from stride.envs_fast.vec_env import Step
from stride.envs_fast.world import NUMBA, TILE, Stream
from stride.envs_gym.gym_env import GymEnv
from stride.utils.user_error import UserError

CONTROL = [  # worlds whose state and observation are not whole numbers
    name
    for name, world in WORLDS.items()
    if world.setting().observation_space.dtype == np.float32 and world.state_dtype is np.float64
]
LIMIT = 23  # short episodes, so that every world ends and begins many times
RULES = {  # so that chance counts, and episodes are short
    "FrozenLake-v1": {"desc": ["SFF", "FSF", "HFG"]},
    "Taxi-v4": {"is_rainy": True, "fickle_passenger": True, "max_episode_steps": 12},
    "CliffWalkingSlippery-v1": {"max_episode_steps": 7},
    "Bandit-v0": {"episode_length": 3},
    "bsuite/MemoryChain-v0": {"memory_length": 2},
    "bsuite/DeepSea-v0": {"size": 4, "deterministic": False},
}
CERTAIN = ("CliffWalking-v1", "bsuite/DiscountingChain-v0")  # without any chance


@pytest.fixture(params=[registry.make, on_host], ids=["numba", "cuda"])
def make(request):
    """Who makes worlds: those on the CPU and those for a GPU have one contract."""
    return request.param


@pytest.fixture
def short(make):
    """Makes worlds of short episodes."""

    def making(env_id, num_envs, **keys):
        return make(env_id, num_envs, **{"max_episode_steps": LIMIT, **RULES.get(env_id, {}), **keys})

    return making


def joined(*parts):
    """Trajectories one after the other, as one."""
    fields = {}
    for name in Step._fields:
        trees = [dict(leaves(getattr(part, name))) for part in parts]
        fields[name] = {key: torch.cat([tree[key] for tree in trees]) for key in trees[0]}
    return SimpleNamespace(**{**fields, **{name: fields[name][""] for name in Step._fields if "" in fields[name]}})


@pytest.mark.parametrize("env_id", IDS)
def test_worlds_do_not_depend_on_their_number_nor_on_workers_nor_on_steps_per_call(short, env_id):
    most = 130 if WORLDS[env_id].by_world else 1300  # two whole tiles and a part
    wide = short(env_id, most, seed=5)
    tape = random_actions(wide, 60)
    whole = wide.advance(tape)
    assert (whole.terminated | whole.truncated).sum() > most
    for worlds, workers in ((1, 1), (7, 3), (70, 2), (most, 3)):
        env = short(env_id, worlds, seed=5, workers=workers)
        mine = tape[:, :worlds].contiguous()
        first, second = env.advance(mine[:41]), env.advance(mine[41:59])
        last = tree_map(lambda leaf: leaf[None], env.step(mine[59]))
        assert bits(joined(first, second, last)) == bits(whole, slice(worlds)), worlds
        env.close()


@pytest.mark.parametrize("env_id", IDS)
def test_they_keep_the_contract_and_write_where_the_last_step_did(short, env_id):
    env = short(env_id, FEW)
    assert play(env, short(env_id, FEW), 100).resume == "exact"
    action = random_actions(env, 1)[0]
    (_, obs), *_ = leaves(env.obs)
    before = obs.data_ptr()
    step = env.step(action)
    assert step is env.step(action)
    (_, again), *_ = leaves(env.reset(3))
    assert again.data_ptr() == before == leaves(step.obs)[0][1].data_ptr()


def told(array, steps, worlds):
    """All that is told of a world in a step, as one number."""
    rows = np.asarray(array, np.float64).reshape(steps, worlds, -1)
    return rows @ np.random.default_rng(0).random(rows.shape[-1])


@pytest.mark.parametrize("env_id", [env_id for env_id in IDS if env_id not in CERTAIN])
def test_seeds_worlds_and_episodes_share_nothing(short, env_id):
    """No two worlds of two neighbouring seeds live the same life, nor one another's later life, with equal actions."""
    worlds, steps, lives = 50 if WORLDS[env_id].by_world else 700, 300, []  # more than a tile of worlds
    for seed in (20, 21):
        env = short(env_id, worlds, seed=seed)
        arrays = env.advance(random_actions(env, steps)[:, :1].expand(-1, worlds, *env.action_space.shape)).arrays
        life = np.stack([told(array, steps, worlds) for array in arrays[:4]])
        lives += [life[:, lag : lag + 200, world].tobytes() for world in range(worlds) for lag in range(0, 100, 12)]
    assert len(set(lives)) == len(lives)


@pytest.mark.parametrize("env_id", CONTROL)
def test_memory_for_each_world(make, env_id):
    env = make(env_id, 1000)
    arrays = (env.state, env.ages, env.episodes, env.returns, *env.last.arrays)
    assert sum(array.nbytes for array in arrays) / 1000 + random_actions(env, 1).nbytes / 1000 <= 128


@pytest.mark.parametrize("env_id", IDS)
def test_facts_are_gymnasiums(make, env_id):
    ours, theirs = make(env_id, 2, seed=0), GymEnv(env_id, 2)
    for name in ("observation_space", "action_space", "time_limit", "reward_threshold"):
        assert getattr(ours, name) == getattr(theirs, name), name
    for (_, mine), (_, other) in zip(leaves(ours.reset(3)), leaves(theirs.reset(3)), strict=True):
        assert (mine.dtype, mine.shape) == (other.dtype, other.shape)


def test_gymnasiums_table_is_shown_the_cards():
    """What rendering sets makes it observe what the world observes; of other worlds test_gym_face.py looks."""
    env, gym = registry.make("Blackjack-v1", 200, seed=1), gymnasium.make("Blackjack-v1").unwrapped
    env.advance(random_actions(env, 5))
    for world in range(200):
        vars(gym).update(env.world.gym_state(env.state[:, world]))
        assert gym._get_obs() == tuple(int(leaf[world]) for leaf in env.obs.values())


def test_an_end_at_the_time_limit_is_an_end(make):
    """The task ended there: terminated, and so not truncated."""
    lake = make("FrozenLake-v1", 2, seed=0, is_slippery=False, max_episode_steps=6)
    way = torch.tensor([1, 1, 2, 2, 1, 2]).unsqueeze(1).expand(6, 2).clone()
    way[:, 1] = 0  # the second world stays at its start
    steps = lake.advance(way)
    assert steps.terminated[-1].tolist() == [True, False]
    assert steps.truncated[-1].tolist() == [False, True]
    table = make("Blackjack-v1", 50, seed=0, max_episode_steps=1)
    step = table.step(torch.arange(50) % 2)
    assert step.terminated[::2].all() and torch.equal(step.truncated, ~step.terminated)


def test_an_unreachable_goal_and_odd_shapes_are_allowed(make):
    env = make("FrozenLake-v1", 4, seed=0, desc=["SH", "HG"])
    assert not env.advance(torch.zeros((9, 4), dtype=torch.int64)).terminated.all()
    assert make("FrozenLake-v1", 1, desc=["SFFFG"]).observation_space.n == 5
    assert make("FrozenLake-v1", 1, desc=gymnasium.make("FrozenLake-v1").unwrapped.desc).observation_space.n == 16


def test_a_snapshot_of_other_worlds_is_refused_by_name(make):
    saved = make("Pendulum-v1", 3, seed=0, g=9.0).state_dict()
    lake = make("FrozenLake-v1", 2, seed=0, desc=np.array(["SF", "FG"])).state_dict()
    make("Pendulum-v1", 3, g=9.0).load_state_dict(saved)
    make("FrozenLake-v1", 2, desc=["SF", "FG"]).load_state_dict(lake)
    for other, state, line in (
        (make("Pendulum-v1", 3), saved, "the checkpoint's Pendulum-v1 has argument g 9.0, but this one has 10.0"),
        (make("Pendulum-v1", 3, max_episode_steps=50, g=9.0), saved, "has time limit 200, but this one has 50"),
        (make("Pendulum-v1", 4, g=9.0), saved, "3 copies of Pendulum-v1, not 4"),
        (make("FrozenLake-v1", 2), lake, "argument desc"),
    ):
        with pytest.raises(UserError, match=line):
            other.load_state_dict(state)


@pytest.mark.parametrize(
    ("env_id", "wrong", "line"),
    [
        ("CartPole-v1", 2, "action 2; actions are 0 to 1"),
        ("CartPole-v1", -1, "action -1; actions are 0 to 1"),
        ("CartPole-v1", 2**40, f"action {2**40}; actions are 0 to 1"),
        ("Pendulum-v1", float("nan"), "action nan"),
    ],
)
def test_a_wrong_action_names_the_world_and_moves_nothing(env_id, wrong, line):
    env = registry.make(env_id, 6, seed=0)
    before, action = env.state.copy(), torch.zeros_like(random_actions(env, 3))
    action[2, 4] = wrong
    with pytest.raises(ValueError, match=rf"^{env_id}, environment 4: {line}"):
        env.step(action[2])
    with pytest.raises(ValueError, match=f"environment 4 of step 2: {line}"):
        env.advance(action)
    assert np.array_equal(env.state, before)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "MountainCarContinuous-v0"])
def test_boxes_are_clipped(make, env_id):
    one, other = make(env_id, 3, seed=0), make(env_id, 3, seed=0)
    step = one.step(torch.tensor([[1.0], [-1.0], [1.0]]))
    assert bits(step) == bits(other.step(torch.tensor([[5.0], [-1.5], [torch.inf]])))


@pytest.mark.parametrize(
    "action", [torch.zeros(5, dtype=int), torch.zeros(6, 1, dtype=int), torch.zeros(6), torch.zeros((), dtype=int)]
)
def test_actions_of_the_wrong_shape_or_type(make, action):
    env = make("CartPole-v1", 6, seed=0)
    with pytest.raises(ValueError, match=r"CartPole-v1 takes actions torch.int64\[6\], got torch"):
        env.step(action)
    with pytest.raises(ValueError, match=r"CartPole-v1 takes actions torch.int64\[T, 6\], got torch"):
        env.advance(action)
    with pytest.raises(ValueError, match=r"out has \(3, 6\) steps"):
        env.advance(torch.zeros(4, 6, dtype=torch.int64), env.trajectory(3))


def test_what_is_no_tensor_no_seed_no_state_and_no_device_is_one_clear_line(make):
    env = make("CartPole-v1", 2, seed=0)
    calls = {
        r"takes actions torch.int64\[2\], got list; torch.as_tensor makes": lambda: env.step([0, 1]),
        r"takes actions torch.int64\[2\], got ndarray": lambda: env.step(np.zeros(2, np.int64)),
        r"takes actions torch.int64\[T, 2\], got NoneType": lambda: env.advance(None),
        r"the mask must be bool\[2\], got int64\(1,\)": lambda: env.restart([1]),
        "the seed must be a whole number in .*, got None": lambda: env.reset(None),
        "the seed must be a whole number in .*, got 1.5": lambda: env.reset(1.5),
        "load_state_dict takes only the result of state_dict": lambda: env.load_state_dict({"env_id": "CartPole-v1"}),
        "steps must be a whole number of at least 1, got 'ten'": lambda: env.trajectory("ten"),
        "no fast environment 3": lambda: registry.make(3),
        "device must be cpu, cuda or cuda:N, not 'gpu'": lambda: registry.make("CartPole-v1", device="gpu"),
        "device must be .*, not 'mps'": lambda: registry.make("CartPole-v1", device=torch.device("mps")),
        "device: cuda: torch finds no CUDA device": lambda: registry.make("CartPole-v1", device="cuda"),
    }
    before = torch.as_tensor(env.state).clone()
    for line, call in calls.items():
        with pytest.raises(ValueError, match=line):
            call()
    assert torch.equal(torch.as_tensor(env.state), before) and env.seed == 0
    assert registry.make("CartPole-v1", device="cpu").device == torch.device("cpu")


def test_nothing_moves_before_reset(make):
    env, zeros = make("CartPole-v1", 6), torch.zeros(3, 6, dtype=torch.int64)
    for move in (lambda: env.step(zeros[0]), lambda: env.advance(zeros), env.state_dict):
        with pytest.raises(UserError, match="reset"):
            move()


NAN, INF = float("nan"), float("inf")
WRONG = {  # environment: values that an argument of make refuses
    "Cartpole-v1": {"workers": [1]},
    "CartPole-v1": {"num_envs": [0, -3, 1.5, True], "workers": [0], "max_episode_steps": [0], "seed": [-1]},
    "Pendulum-v1": {"gravity": [3.0], "g": ["heavy"]},
    "FrozenLake-v1": {
        "map_name": ["5x5", None],
        "desc": [["SF", "G"], [], 3, "SFFG", ["SX", "FG"], ["FF", "FG"]],
        "success_rate": [1.5, NAN],
        "is_slippery": [1],
        "slippery": [True],
        "reward_schedule": [[1, 0], [1, 0, INF]],
    },
    "Taxi-v4": {"rainy_probability": [-0.1], "fickle_probability": ["often"], "is_rainy": ["no"]},
    "CliffWalking-v1": {"is_slippery": [None]},
    "Blackjack-v1": {"natural": [2]},
    "MinAtar/Breakot-v1": {"workers": [1]},
    "MinAtar/Breakout-v1": {
        "sticky_action_prob": [-0.1, 1.5, "often"],
        "difficulty_ramping": [1],
        "sticky_actions": [0.1],
    },
    "Bandit-v0": {
        "n_arms": [0, 2.0],
        "means": [[1.0], 1.0, [1.0] * 9 + [None]],
        "stds": [-1.0, [1.0], NAN],
        "episode_length": [0, 2**31],
        "arms_seed": [-1, 2**63],
        "arm_means": [[1]],
    },
}


def test_wrong_arguments_are_one_clear_line(snapshot):
    lines = []
    for env_id, arguments in WRONG.items():
        for name, value in ((name, value) for name, values in arguments.items() for value in values):
            with pytest.raises(UserError) as caught:
                registry.make(env_id, **{"num_envs": 2, name: value})
            lines += [f"{name}={value}: {caught.value}"]
    assert shown("\n".join(lines), *OTHERS) == snapshot and not any("\n" in line for line in lines)


# ---- the compiled loops still work on whole vectors: where LLVM gives up a test fails, not a benchmark

PACKED = re.compile(r"^\s*v?(?:mul|add|sub|div|fn?madd\d+|fn?msub\d+)pd\s", re.MULTILINE)
SCALAR = re.compile(r"^\s*v?(?:mul|add|sub|div|fn?madd\d+|fn?msub\d+)sd\s", re.MULTILINE)
LATER = [pytest.param(env_id, marks=pytest.mark.slow) for env_id in CONTROL if env_id != "CartPole-v1"]


@pytest.mark.skipif(platform.machine().lower() not in ("x86_64", "amd64"), reason="reads x86 assembly")
@pytest.mark.parametrize("env_id", ["CartPole-v1", *LATER])
def test_the_step_loop_is_vectorised(env_id):
    move = WORLDS[env_id].kernels[NUMBA].advance.py_func.__globals__["move"]
    column, row, flags = np.zeros(TILE), np.zeros(TILE, np.int32), np.zeros(TILE, np.uint8)
    setting = WORLDS[env_id].setting()
    continuous = isinstance(setting.action_space, Box)
    obs = np.zeros(setting.observation_space.shape[0] * TILE, np.float32)
    action, reward = np.zeros(TILE, np.float32 if continuous else np.int64), np.zeros(TILE, np.float32)
    rows = tuple(np.zeros((WORLDS[env_id].state_size, TILE)))
    tile = Tile(rows, row, row.copy(), column, column.copy(), action, obs, reward, flags, flags.copy())
    kernel = njit(**{**MOVE, "cache": False})(move.py_func)  # kernels loaded from the cache keep no assembly
    kernel(tile, Stream(0, 0, 0), setting.parameters, setting.tables)
    (assembly,), (code,) = kernel.inspect_asm().values(), kernel.inspect_llvm().values()
    assert "vector.memcheck" not in code, "a loop that looks for overlaps first may find them where there are none"
    packed, scalar = len(PACKED.findall(assembly)), len(SCALAR.findall(assembly))
    print(env_id, packed, scalar)
    assert packed >= 8, f"{packed} packed and {scalar} scalar operations"
    assert packed >= 0.8 * scalar, f"{packed} packed, {scalar} scalar: the scalar loop for the rest does it once too"
    assert not re.search(r"\bcall\w*\s.*(sin|cos|exp|log|fmod|pow|rint|floor)", assembly)
