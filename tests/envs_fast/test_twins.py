"""A world's kernels for a GPU, compiled for this processor, against its Numba kernels: no bit differs.

And those of control against Gymnasium's own environments: one step from every kind of state.
"""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from reachable import IDS, N, actions, many, on_host, states, states_of

from stride.envs_fast.device_code import twin_of
from stride.envs_fast.registry import WORLDS, make

SEED = (5 << 33) + 12345  # both halves of it count
TWINS = [(env_id, {}) for env_id in IDS]
VARIED = [
    ("CartPole-v1", {"sutton_barto_reward": True}),
    ("MountainCar-v0", {"goal_velocity": 0.03}),
    ("MountainCarContinuous-v0", {"goal_velocity": 0.03}),
    ("Pendulum-v1", {"g": 3.7}),
    ("FrozenLake-v1", {"desc": ["SFF", "FSF", "HFG"]}),
    ("FrozenLake-v1", {"map_name": "8x8", "success_rate": 0.9, "reward_schedule": [3.0, -2.5, 0.1]}),
    ("Taxi-v4", {"is_rainy": True, "fickle_passenger": True}),
    ("Taxi-v4", {"fickle_passenger": True, "fickle_probability": 0.5}),
    ("Blackjack-v1", {"natural": True, "sab": False}),
    ("Blackjack-v1", {"sab": False}),
    ("Bandit-v0", {"n_arms": 3, "stds": [0.5, 0.0, 2.0], "episode_length": 3}),
    ("Bandit-v0", {"n_arms": 1, "means": [0.0], "stds": 0.0, "episode_length": 2}),
    ("MinAtar/Seaquest-v1", {"sticky_action_prob": 0.7, "difficulty_ramping": False}),
    ("bsuite/MemoryChain-v0", {"memory_length": 1}),
    ("bsuite/DiscountingChain-v0", {"mapping_seed": 9}),
    ("bsuite/DeepSea-v0", {"deterministic": False, "unscaled_move_cost": 0.3, "mapping_seed": 1}),
    ("bsuite/DeepSea-v0", {"randomize_actions": False}),
    ("popgym-RepeatPreviousHard-v0", {}),
    ("popgym-RepeatPreviousEasy-v0", {"num_decks": 2, "k": 17}),
    ("popgym-RepeatFirstHard-v0", {}),
    ("popgym-CountRecallHard-v0", {}),
    ("popgym-AutoencodeHard-v0", {}),
    ("popgym-PositionOnlyPendulumEasy-v0", {"g": 3.7}),
]
CASES = [*TWINS, *(pytest.param(*case, marks=pytest.mark.slow) for case in VARIED)]
BOXES = [env_id for env_id, _ in TWINS if isinstance(WORLDS[env_id].setting().action_space, Box)]
LIMIT = 20  # steps of an episode here, so that many are truncated
NEVER_ENDS = tuple(env_id for env_id in WORLDS if "Pendulum" in env_id)


def test_every_world_has_a_twin():
    assert all(twin_of(world).exists() for world in WORLDS.values())


def both(env_id, number, limit=None, order=0, **kwargs):
    """The twin's worlds, whose threads run in that order, and Numba's."""
    mine, theirs = (of(env_id, number, SEED, limit, **kwargs) for of in (on_host, make))
    mine._kernels.order = order
    return mine, theirs


def scatter(envs, rng):
    """Put each world into some state it can be in, at some age of some episode; the same in both."""
    mine, theirs = envs
    values = (
        states_of(theirs),
        rng.integers(0, theirs.time_limit or 3, theirs.num_envs),
        rng.integers(0, 2**31 - 2, theirs.num_envs),
        rng.normal(0.0, 30.0, theirs.num_envs),
    )
    for there, here, value in zip(worlds_of(mine), worlds_of(theirs), values, strict=True):
        here[:] = value
        there.copy_(torch.from_numpy(here))


def worlds_of(env):
    return env.state, env.ages, env.episodes, env.returns


def assert_no_bit_differs(these, those):
    for this, that in zip(these, those, strict=True):
        this, that = np.ascontiguousarray(this), np.ascontiguousarray(that)
        assert (this.shape, this.itemsize) == (that.shape, that.itemsize)
        np.testing.assert_array_equal(this.view(f"u{this.itemsize}"), that.view(f"u{that.itemsize}"))


def compared(envs, given, legal=None, wrong=False):
    """What both tell of these actions, or Numba's of the legal ones nearest to them."""
    mine, theirs = envs
    result, expected = mine.advance(given), theirs.advance(given if legal is None else legal)
    assert_no_bit_differs([*result.arrays, *worlds_of(mine)], [*expected.arrays, *worlds_of(theirs)])
    assert bool(mine.wrong) is wrong
    return result


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_one_step_from_anywhere(env_id, kwargs):
    n = many(env_id)
    envs, rng = both(env_id, n, order=1, **kwargs), np.random.default_rng(1)
    scatter(envs, rng)
    for env in envs:
        env.ages[::4] = 0
    step = compared(envs, actions(envs[1], rng, 1, n))
    assert env_id in NEVER_ENDS or step.terminated.sum() > 100


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_resets(env_id, kwargs):
    """Of all worlds; then of some of them, in the midst of episodes."""
    n = many(env_id)
    envs, rng = both(env_id, n, **kwargs), np.random.default_rng(2)
    for mask in (np.ones(n, np.bool_), rng.random(n) < 0.3):
        scatter(envs, rng)
        mine, theirs = ([env.restart(mask), env.last.arrays[0], *worlds_of(env)][1:] for env in envs)
        assert_no_bit_differs(mine, theirs)


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_free_steps(env_id, kwargs):
    """With autoreset, and nothing that brings the two together again."""
    n = many(env_id) // 200
    envs, rng = both(env_id, n, LIMIT, order=2, **kwargs), np.random.default_rng(3)
    scatter(envs, rng)
    steps = compared(envs, actions(envs[1], rng, 200, n))
    assert env_id in NEVER_ENDS or steps.terminated.any()
    assert WORLDS[env_id].time_limit is None or steps.truncated.any()


@pytest.mark.parametrize("gymnasiums", [False, True])
@pytest.mark.parametrize("env_id", BOXES)
def test_actions_beyond_the_bounds(env_id, gymnasiums):
    """They are legal, infinities too, and cost more where Gymnasium charges for all of them; zeros have both signs."""
    envs, rng = both(env_id, N), np.random.default_rng(7)
    scatter(envs, rng)
    for env in envs:
        env.state[:, ::7] = 0.0
        if gymnasiums:
            env.charge_as_gymnasium()
    action = 3.0 * actions(envs[1], rng, 1, N)
    action[0, ::5] = -0.0
    action[0, :6, 0] = torch.tensor([1.0, -1.0, 0.0, -0.0, torch.inf, -torch.inf])
    compared(envs, action)


@pytest.mark.parametrize(("env_id", "kwargs"), CASES)
def test_a_wrong_action_is_told_and_the_nearest_legal_one_is_played(env_id, kwargs):
    """One action in ten, or one alone; a choice far out of range would be read far beyond a table."""
    envs, rng = both(env_id, 130, LIMIT, **kwargs), np.random.default_rng(5)
    tape = actions(envs[1], rng, 30, 130)
    where = rng.random(tape.shape) < 0.1
    odd, near = np.float32(np.nan), np.float32(0.0)
    if tape.dtype == torch.int64:
        highest = int(envs[1].action_space.n) - 1
        odd = rng.choice([-(2**63), -(2**40), -1, highest + 1, 2**31, 2**63 - 1], tape.shape)
        near = np.clip(odd, 0, highest)
    given, legal = (torch.from_numpy(np.where(where, instead, tape)) for instead in (odd, near))
    compared(envs, given, legal, wrong=True)
    envs[0].wrong.zero_()
    compared(envs, tape[:1])
    tape[1, 129] = -1 if tape.dtype == torch.int64 else float("nan")
    envs[0].advance(tape[:2])
    assert envs[0].wrong


# --- one step of control against Gymnasium's

CONTROL = [
    name
    for name, world in WORLDS.items()
    if world.gym_state is not None and isinstance(world.setting().observation_space, Box)
]


def native(env, action: torch.Tensor):
    """The action of one world as Gymnasium takes it."""
    if action.ndim == 0:
        return int(action)
    return action.numpy() * env.setting.gym_action_space.high


def gym_env(env_id: str, **kwargs):
    return gymnasium.make(env_id, disable_env_checker=True, **kwargs)


def unit(env_id: str, before: np.ndarray, after: np.ndarray, action: np.ndarray) -> np.ndarray:
    """One ulp of the largest term in the sum each component is; for Acrobot also what an ulp of the old state changes.

    Its Runge-Kutta step at 9 pi rad/s enlarges any rounding: cosines are taken at angles that earlier stages have moved
    by accelerations of up to 2e5 rad/s^2, so that an ulp of the old state changes the new one by up to a hundred.
    Arithmetic and its order are Gymnasium's: with the C library's sine and cosine in place of ours, 99.9 % of 100,000
    steps equal Gymnasium's within 1 ulp of the largest term and all within 7. Ours differ from NumPy's in the last bit
    now and then: 92 % of the states are equal bit for bit, 99.9 % within 3.75 ulp of the largest term, the worst 72,
    and all of them within 4 of this unit; the largest difference is 1.5e-12.
    """
    terms = np.maximum(np.maximum(np.abs(before), np.abs(after)), np.abs(after - before))
    if env_id.startswith("MountainCar"):
        terms[1] = np.maximum(terms[1], 0.0025)  # gravity
    elif env_id == "Pendulum-v1":
        terms[1] = np.maximum(terms[1], 0.75)  # gravity for one step
    elif env_id == "Acrobot-v1":
        there, largest = runge_kutta(before, action)
        moved = np.zeros_like(before)
        for component in range(4):
            nudged = before.copy()
            nudged[component] = np.nextafter(nudged[component], np.inf)
            moved += np.abs(runge_kutta(nudged, action)[0] - there)
        return np.maximum(np.spacing(np.maximum(terms, largest)), moved)
    return np.spacing(terms)


def runge_kutta(state: np.ndarray, action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gymnasium's Acrobot step before wrapping, for arrays, and the largest term of each component's sum."""
    derivative, slopes = gym_env("Acrobot-v1").unwrapped._dsdt, [np.zeros((5, state.shape[1]))]
    for share in (0.0, 0.1, 0.1, 0.2):
        moved = state + share * slopes[-1][:4]
        slopes.append(np.stack(np.broadcast_arrays(*derivative([*moved, action - 1.0]))))
    _, a, b, c, d = (slope[:4] for slope in slopes)
    return state + 0.2 / 6.0 * (a + 2 * b + 2 * c + d), 0.2 * np.abs([a, b, c, d]).max(axis=0)


EVERY = [*((name, {}, 10) for name in CONTROL)]
EVERY += [pytest.param(name, {}, 1, marks=[pytest.mark.slow, pytest.mark.soak]) for name in CONTROL]
EVERY += [("Pendulum-v1", {"g": 3.7}, 250), ("CartPole-v1", {"sutton_barto_reward": True}, 250)]
EVERY += [(name, {"goal_velocity": 0.03}, 250) for name in ("MountainCar-v0", "MountainCarContinuous-v0")]


@pytest.mark.parametrize(("control", "kwargs", "every"), EVERY)
def test_one_step_from_anywhere_is_gymnasiums(control, kwargs, every):
    """Gymnasium steps one world at a time: those of a hundred thousand states take it half a minute."""
    before, reference = states(control)[:, ::every], gym_env(control, **kwargs).unwrapped
    if "goal_velocity" in kwargs:
        before[0] = np.where(before[0] > 0, before[0], np.float32(0.45))
    n = before.shape[1]
    env = make(control, n, seed=0, **kwargs)
    reference.reset(seed=0)
    action = actions(env, np.random.default_rng(8), n)
    env.state[:] = before
    env.ages[:] = 1
    step = env.step(action)
    after, reward, terminated = np.empty_like(before), np.empty(n), np.empty(n, bool)
    obs = np.empty(tuple(step.obs.shape), np.float32)
    given = before.T.astype(np.float32 if control == "MountainCarContinuous-v0" else np.float64)
    for i in range(n):
        reference.state, reference.steps_beyond_terminated = given[i].copy(), None
        obs[i], reward[i], terminated[i], _, _ = reference.step(native(env, action[i]))
        after[:, i] = reference.state
    goes_on = ~terminated
    np.testing.assert_array_equal(step.terminated, terminated)
    assert not step.truncated.any()
    assert control == "Pendulum-v1" or 0.01 < terminated.mean() < 0.99
    assert np.abs(reward - env.returns)[goes_on].max() <= 1e-9  # float64; where it ended the return started anew
    np.testing.assert_array_equal(step.reward[terminated], reward.astype(np.float32)[terminated])
    shown = np.where(terminated[:, None], step.final_obs, step.obs)
    assert np.abs(shown - obs).max() <= 1e-6
    ulps = (np.abs(env.state - after) / unit(control, before, after, action.numpy()))[:, goes_on]
    assert ulps.max() <= 4, ulps.max(axis=1)
    if control == "Acrobot-v1":
        assert (env.state == after).all(axis=0)[goes_on].mean() > 0.85
        assert np.abs(env.state - after)[:, goes_on].max() < 1e-11
