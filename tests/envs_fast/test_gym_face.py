"""The Gymnasium face against SyncVectorEnv: one tape of actions in every autoreset mode, spaces, seeds, bad input."""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from reachable import IDS

from stride import envs_fast
from stride.envs_fast.gym_face import FastVectorEnv
from stride.envs_fast.world import fast_id
from stride.utils.user_error import UserError

N, STEPS = 7, 120
STOCHASTIC = {"CliffWalkingSlippery-v1", "Blackjack-v1", "Bandit-v0"}
DETERMINISTIC = [
    env_id for env_id, world in envs_fast.WORLDS.items() if world.gym_state is not None and env_id not in STOCHASTIC
]
DRY = {"is_slippery": False}
KWARGS = {"FrozenLake-v1": DRY, "FrozenLake8x8-v1": DRY}
OBSERVE = {  # what Gymnasium's environment would return in its present state
    "Pendulum-v1": lambda env: env._get_obs(),
    "Acrobot-v1": lambda env: env._get_ob(),
    **dict.fromkeys(["FrozenLake-v1", "FrozenLake8x8-v1", "Taxi-v4", "CliffWalking-v1"], lambda env: int(env.s)),
}


def vector(env_id, num_envs=N, **options):
    return gymnasium.make_vec(fast_id(env_id), num_envs=num_envs, **options)


class Following(gymnasium.Wrapper):
    """Gymnasium's environment, whose episodes begin where those of one of our worlds do; ours moves first."""

    def __init__(self, env, ours, world):
        super().__init__(env)
        self.ours, self.world = ours.unwrapped.env, world

    def reset(self, *, seed=None, options=None):
        _, info = self.env.reset(seed=seed, options=options)
        target = self.env.unwrapped
        for name, value in self.ours.world.gym_state(self.ours.state[:, self.world]).items():
            setattr(target, name, value)
        if "action_mask" in info:
            info["action_mask"] = target.action_mask(target.s)
        return OBSERVE.get(self.ours.env_id, lambda env: np.array(env.state, np.float32))(target), info


def both(env_id, mode, limit):
    """Ours, and SyncVectorEnv with its episodes aligned."""
    kwargs = KWARGS.get(env_id, {})
    ours = vector(env_id, autoreset_mode=mode, max_episode_steps=limit, **kwargs)

    def follower(world):
        return lambda: Following(gymnasium.make(env_id, max_episode_steps=limit, **kwargs), ours, world)

    return ours, SyncVectorEnv([follower(world) for world in range(N)], autoreset_mode=mode)


def assert_same_infos(mine, theirs):
    assert set(mine) == set(theirs)
    for name, value in theirs.items():
        if isinstance(value, dict):
            assert_same_infos(mine[name], value)
            continue
        kind = np.dtype(float) if name == "prob" else value.dtype  # theirs is an int array where world 0 tells an int
        assert (mine[name].dtype, mine[name].shape) == (kind, value.shape)
        for one, other in zip(mine[name], value, strict=True):
            assert name == "prob" or type(one) is type(other)
            if one is not None:
                np.testing.assert_allclose(one, other, atol=2e-5)


def assert_same_step(mine, theirs):
    for one, other in zip(mine[:-1], theirs[:-1], strict=True):
        assert (type(one), one.dtype, one.shape) == (type(other), other.dtype, other.shape)
        np.testing.assert_allclose(one, other, atol=2e-5)
    assert_same_infos(mine[-1], theirs[-1])


def tape(env, rng):
    if isinstance(env.single_action_space, gymnasium.spaces.Box):
        box = env.single_action_space
        return rng.uniform(box.low, box.high, (N, *box.shape)).astype(np.float32)
    return rng.integers(0, env.single_action_space.n, N)


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("env_id", DETERMINISTIC)
def test_one_tape_of_actions_is_what_sync_vector_env_makes_of_it(env_id, mode):
    ours, theirs = both(env_id, mode, limit=14)
    rng = np.random.default_rng(5)
    assert_same_step(ours.reset(seed=3), theirs.reset(seed=3))
    over, seen = np.zeros(N, bool), set()
    for k in range(STEPS):
        mask = rng.random(N) < 0.3  # of running worlds, of waiting ones, of both
        if mode is AutoresetMode.DISABLED:
            mask |= over
        if mask.any() and (k % 9 == 8 or (mode is AutoresetMode.DISABLED and over.any())):
            reset = [env.reset(options={"reset_mask": mask.copy()}) for env in (ours, theirs)]
            assert_same_step(*reset)
            over &= ~mask
        actions = tape(ours, rng)
        if mode is AutoresetMode.NEXT_STEP and k % 2:  # nobody looks at the actions of worlds that only begin
            actions[over] = np.nan if actions.dtype == np.float32 else 99
        mine = ours.step(actions)
        assert_same_step(mine, theirs.step(actions))
        over = mine[2] | mine[3]
        seen |= set(zip(mine[2].tolist(), mine[3].tolist(), strict=True))
    assert (False, True) in seen
    if env_id == "CartPole-v1":
        assert len(seen) == 4  # terminated, truncated, both, neither


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.filterwarnings("ignore:.*A Box observation space:UserWarning")
def test_every_id_conforms_to_the_vector_api_and_passes_gymnasiums_checker(env_id):
    ours = vector(env_id, 3)
    theirs = gymnasium.make_vec(env_id, num_envs=3, vectorization_mode="sync")
    assert isinstance(ours, FastVectorEnv) and ours.spec.id == fast_id(env_id)
    for name in ("observation_space", "action_space", "single_observation_space", "single_action_space"):
        assert getattr(ours, name) == getattr(theirs, name), name
    assert ours.metadata == theirs.metadata and ours.num_envs == 3
    ours.action_space.seed(0)
    told = {"prob", "_prob"} if env_id.startswith(("Frozen", "Cliff", "Taxi")) else set()
    told |= {"action_mask", "_action_mask"} if env_id == "Taxi-v4" else set()
    first = obs = ours.reset(seed=1)[0]
    for _ in range(30):
        assert obs in ours.observation_space
        obs, *columns, infos = ours.step(ours.action_space.sample())
        assert [column.dtype for column in columns] == [np.float64, np.bool_, np.bool_]
        assert [column.shape for column in columns] == [(3,)] * 3 and set(infos) == told
    for one, other in zip(first, theirs.reset(seed=1)[0], strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape
    ours.close()
    single = gymnasium.make(fast_id(env_id))
    check_env(single.unwrapped, skip_render_check=True)
    assert ours.closed and single.spec.max_episode_steps == envs_fast.WORLDS[env_id].time_limit


@pytest.mark.parametrize("limit", [None, 1])  # 1: the kernel ends an episode again where one only begins
def test_the_modes_are_one_stream_of_episodes(limit):
    """Held back or not, episode k of world i is the same."""
    firsts = {}
    for mode in AutoresetMode:
        env = vector("CartPole-v1", 2, autoreset_mode=mode, **({} if limit is None else {"max_episode_steps": limit}))
        obs, _ = env.reset(seed=5)
        firsts[mode] = [[row] for row in obs.tolist()]
        over = np.zeros(2, bool)
        for _ in range(80):
            if mode is AutoresetMode.DISABLED and over.any():
                obs, _ = env.reset(options={"reset_mask": over})
                for world in np.flatnonzero(over):
                    firsts[mode][world].append(obs[world].tolist())
            before = over
            obs, _, terminated, truncated, _ = env.step(np.ones(2, np.int64))
            over = terminated | truncated
            begun = {AutoresetMode.SAME_STEP: over, AutoresetMode.NEXT_STEP: before, AutoresetMode.DISABLED: []}[mode]
            for world in np.flatnonzero(begun):
                firsts[mode][world].append(obs[world].tolist())
    for world in range(2):
        lists = [firsts[mode][world][:5] for mode in AutoresetMode]
        assert len(lists[0]) == 5 and lists[0] == lists[1] == lists[2]


def test_seeds_are_an_int_a_list_or_none():
    env, other = vector("CartPole-v1", 3), vector("CartPole-v1", 3)
    first = env.reset(seed=1)[0]
    assert np.array_equal(first, other.reset(seed=1)[0]) and len(np.unique(first)) == first.size
    second = env.reset()[0]  # goes on with the streams
    assert np.array_equal(second, other.reset(seed=None)[0]) and not (second == first).any()
    assert not (env.reset(seed=2)[0] == first).any()
    listed = env.reset(seed=[7, 8, 9])[0]
    other.reset(seed=3)
    assert np.array_equal(other.reset(seed=[7, 8, 9])[0], listed)
    again = env.reset(seed=[7, 100, None])[0]
    assert np.array_equal(again[0], listed[0]) and not (again[1:] == listed[1:]).any()
    unseeded = [vector("CartPole-v1", 1).reset()[0] for _ in range(2)]
    assert not np.array_equal(*unseeded)


def test_a_seeded_partial_reset_leaves_the_other_worlds_alone():
    env, other = vector("CartPole-v1", 3), vector("CartPole-v1", 3)
    mask, action = np.array([False, True, False]), np.ones(3, np.int64)
    env.reset(seed=1), other.reset(seed=1)
    seeded = env.reset(seed=9, options={"reset_mask": mask})[0]
    assert np.array_equal(env.reset(seed=9, options={"reset_mask": mask})[0], seeded)
    assert np.array_equal(env.step(action)[0][~mask], other.step(action)[0][~mask])


def test_what_is_returned_belongs_to_the_caller_unless_told_otherwise():
    action = np.ones(3, np.int64)
    env = vector("CartPole-v1", 3, autoreset_mode="SameStep")
    results = [env.reset(seed=0)[0], *env.step(action)[:4]]
    kept = [array.copy() for array in results]
    for _ in range(40):
        env.step(action)
    env.reset(seed=1)
    assert all(np.array_equal(one, other) for one, other in zip(results, kept, strict=True))
    shared = vector("CartPole-v1", 3, copy=False)
    shared.reset(seed=0)
    assert np.shares_memory(shared.step(action)[0], shared.step(action)[0])


@pytest.mark.parametrize("env_id", ["FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalkingSlippery-v1", "Taxi-v4"])
def test_prob_is_that_of_gymnasiums_table(env_id):
    """Slippery and rainy: what is told is a probability of an outcome that leads where the world went."""
    taxi = env_id == "Taxi-v4"
    part = 4 if taxi else 1  # the taxi's destination may have changed
    kwargs = {"is_rainy": True, "fickle_passenger": True} if taxi else {}
    ours, table = vector(env_id, 300, **kwargs), gymnasium.make(env_id, **kwargs).unwrapped.P
    before, infos = ours.reset(seed=4)
    assert (infos["prob"] == 1.0).all() and infos["_prob"].all()
    rng, over, told = np.random.default_rng(0), np.zeros(300, bool), set()
    for _ in range(60):
        actions = rng.integers(0, ours.single_action_space.n, 300)
        obs, _, terminated, truncated, infos = ours.step(actions)
        for world in np.flatnonzero(~over):
            outcomes = table[before[world]][actions[world]]
            assert infos["prob"][world] in [p for p, to, *_ in outcomes if to // part == obs[world] // part]
            told.add(float(infos["prob"][world]))
        assert (infos["prob"][over] == 1.0).all()
        before, over = obs, terminated | truncated
    every = {p for actions in table.values() for outcomes in actions.values() for p, *_ in outcomes}
    assert told == every - ({1.0} if env_id.startswith("Frozen") else set())


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "Acrobot-v1", "FrozenLake-v1"])
def test_the_end_of_an_episode_is_drawn_where_it_ended(env_id, mode):
    kwargs = KWARGS.get(env_id, {})
    env = vector(env_id, 1, render_mode="rgb_array", autoreset_mode=mode, max_episode_steps=9, **kwargs)
    env.reset(seed=0)
    over = np.zeros(1, bool)
    while not over[0]:
        obs, _, terminated, truncated, _ = env.step(np.ones(env.action_space.shape, env.action_space.dtype))
        over = terminated | truncated
    single = gymnasium.make(env_id, render_mode="rgb_array", **kwargs)
    single.reset(seed=0)
    ours = env.env.world

    def drawn(state):
        vars(single.unwrapped).update(ours.gym_state(state))
        return single.render()

    ending = env.render()[0]
    assert np.array_equal(ending, drawn(ours.recall(np.atleast_1d(obs[0]))))
    begin = env.reset(options={"reset_mask": over})[0]
    assert not np.array_equal(begin[0], obs[0]) and not np.array_equal(env.render()[0], ending)
    assert np.array_equal(env.render()[0], drawn(env.env.state[:, 0]))
    env.close(), single.close()


def test_attributes_are_gymnasiums_and_states_those_of_each_world():
    env = begun()
    assert env.get_attr("gravity") == (9.8, 9.8) and np.array_equal(env.call("state")[1], env.env.state[:, 1])


def test_more_than_the_bound_costs_what_it_costs_in_gymnasium():
    env, reference = vector("MountainCarContinuous-v0", 3), gymnasium.make("MountainCarContinuous-v0").unwrapped
    policy = envs_fast.make("MountainCarContinuous-v0", 3, seed=0)
    env.reset(seed=0), reference.reset(seed=0)
    action = np.array([[3.0], [-1.5], [0.5]], np.float32)
    obs, reward, *_ = env.step(action)
    for world in range(3):
        assert reference.step(action[world])[1] == pytest.approx(reward[world], abs=1e-6)
    step = policy.step(torch.from_numpy(action))
    assert np.array_equal(step.obs.numpy(), obs)  # it moves like the bound
    np.testing.assert_allclose(step.reward.numpy(), [-0.1, -0.1, -0.025], atol=1e-7)


def begun(env_id="CartPole-v1", **options):
    env = vector(env_id, 2, **options)
    env.reset(seed=0)
    return env


def ended():
    env = begun(autoreset_mode="Disabled", max_episode_steps=2)
    env.step([0, 0]), env.step([0, 0])
    return env


BAD = [
    (lambda: FastVectorEnv("CartPol", 2), UserError, "'CartPol'; did you mean CartPole-v1"),
    (lambda: vector("CartPole-v1", 2, render_mode="holo"), UserError, "no render_mode 'holo'; it has human, rgb_array"),
    (lambda: vector("CartPole-v1", 2).step(np.zeros(2, int)), UserError, "call reset.* before the first step"),
    (lambda: vector("CartPole-v1", 2).render(), UserError, "made without a render_mode"),
    (
        lambda: begun().step(np.zeros(3, int)),
        ValueError,
        r"takes actions like MultiDiscrete\(\[2 2\]\), got int64\[3\]",
    ),
    (lambda: begun().step(np.zeros(2)), ValueError, r"got float64\[2\]"),
    (lambda: begun().step([0, 2]), ValueError, "environment 1: action 2; actions are 0 to 1"),
    (lambda: begun().reset(options={"reset_mask": [True, False]}), TypeError, "reset_mask.*must be a numpy array"),
    (lambda: begun().reset(options={"reset_mask": np.ones(2)}), TypeError, "of dtype bool, got an array of float64"),
    (lambda: begun().reset(options={"reset_mask": np.ones(3, bool)}), ValueError, r"must have shape \(2,\)"),
    (lambda: begun().reset(options={"reset_mask": np.zeros(2, bool)}), ValueError, "at least one True"),
    (lambda: begun().reset(seed=-1), (UserError, gymnasium.error.Error), "seed|Seed"),
    (lambda: begun().reset(seed=[1]), ValueError, "one for each of num_envs=2, got 1"),
    (lambda: begun().set_attr("gravity", 1.0), UserError, "'gravity' cannot be set in compiled environments"),
    (lambda: begun().call("step", 0), UserError, "step cannot be called on a single environment"),
    (lambda: ended().step([0, 0]), gymnasium.error.ResetNeeded, "environments 0, 1 have ended; reset them"),
]


@pytest.mark.parametrize(("wrong", "kind", "line"), BAD, ids=[line for *_, line in BAD])
def test_bad_input_is_one_clear_error(wrong, kind, line):
    with pytest.raises(kind, match=line) as caught:
        wrong()
    assert "\n" not in str(caught.value)
