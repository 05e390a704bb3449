"""The control worlds against Gymnasium's own: one step from every kind of state, and whole episodes.

An ulp here is that of the largest term a component is the sum of: 1e-3 - 1e-3 cannot be closer than 1e-3 was.
"""

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box
from reachable import actions, states

from stride.envs_fast.registry import WORLDS, make

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
def test_one_step_from_anywhere(control, kwargs, every):
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
