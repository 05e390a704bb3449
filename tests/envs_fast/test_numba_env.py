"""Compiled worlds and their kernels: the contract, independence of how worlds are grouped, snapshots, what is refused.

Where a test takes `make`, of those on the CPU and of those for a GPU.
"""

import io
import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from cuda_worlds import copied
from gymnasium.spaces import Box, Discrete
from numba import njit

from stride.envs_fast import registry
from stride.envs_fast.ended import list_ended
from stride.envs_fast.registry import WORLDS
from stride.utils.user_error import UserError

CONTROL = [name for name, world in WORLDS.items() if isinstance(world.setting().observation_space, Box)]
LIMIT = 23  # short episodes, so that every world ends and begins many times
ROOT = Path(__file__).resolve().parents[2]
COLD = """
import logging, sys, torch
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")
from stride.envs_fast.ended import list_ended
from stride.envs_fast.registry import make
env = make("CartPole-v1", 4, seed=0)
env.step(torch.zeros(4, dtype=torch.int64))
print("misses", sum(sum(kernel.stats.cache_misses.values()) for kernel in env.world.kernels["numba"]))
"""


@njit
def listed(terminated, truncated, ended):
    return list_ended(terminated, truncated, ended)


def actions(env, *shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if isinstance(env.action_space, Discrete):
        return torch.randint(0, int(env.action_space.n), shape, generator=generator)
    return torch.rand((*shape, *env.action_space.shape), generator=generator) * 2 - 1


@pytest.fixture(params=CONTROL)
def env_id(request) -> str:
    return request.param


def test_worlds_do_not_depend_on_their_number_nor_on_workers_nor_on_steps_per_call(make, env_id):
    wide = make(env_id, 1000, seed=5, max_episode_steps=LIMIT)
    tape = actions(wide, 60, 1000)
    expected = wide.advance(tape)
    ended = expected.terminated | expected.truncated
    assert ended.any()
    for worlds, workers in ((1, 1), (7, 3), (64, 2), (1000, 2)):
        env = make(env_id, worlds, seed=5, max_episode_steps=LIMIT, workers=workers)
        mine = tape[:, :worlds].contiguous()
        first, second = env.advance(mine[:41]), env.advance(mine[41:59])
        step = env.step(mine[59])
        for name in ("obs", "reward", "terminated", "truncated", "final_obs", "episode_return", "episode_length"):
            parts = [getattr(first, name), getattr(second, name), getattr(step, name)[None]]
            got, want, over = torch.cat(parts), getattr(expected, name)[:, :worlds], ended[:, :worlds]
            if name in ("final_obs", "episode_return", "episode_length"):
                got, want = got[over], want[over]
            assert torch.equal(got, want), (name, worlds)
        env.close()


def test_the_contract_against_a_plain_count(make, env_id):
    env = make(env_id, 37, seed=1, max_episode_steps=LIMIT)
    total, length = np.zeros(37), np.zeros(37)
    previous = env.obs.clone()
    for action in actions(env, 120, 37):
        step = env.step(action)
        total += step.reward.numpy()
        length += 1
        over = (step.terminated | step.truncated).numpy()
        assert not (step.terminated & step.truncated).any()
        assert (step.truncated.numpy() == ((length == LIMIT) & ~step.terminated.numpy())).all()
        np.testing.assert_allclose(step.episode_return[over], total[over], rtol=1e-5)
        np.testing.assert_array_equal(step.episode_length[over], length[over])
        assert np.array_equal(copied(env.ages), np.where(over, 0, length))
        assert not torch.equal(step.obs, previous)
        if over.any():
            assert not torch.equal(step.final_obs[over], step.obs[over])
        previous = step.obs.clone()
        total[over], length[over] = 0.0, 0.0
    assert (copied(env.episodes) > 0).all()


def test_a_step_writes_where_the_last_one_did(make, env_id):
    env = make(env_id, 8, seed=0)
    one = env.step(actions(env, 8))
    two = env.step(actions(env, 8))
    assert one is two
    assert env.obs.data_ptr() == two.obs.data_ptr() == env.reset(3).data_ptr()
    assert two.reward.dtype == torch.float32
    assert two.terminated.dtype == two.truncated.dtype == torch.bool


def test_seeds_worlds_and_episodes_share_nothing(make, env_id):
    """Neither episode k + 1 of world i and k of world i + 1, nor world 1 of seed s and 0 of seed s + 1."""
    starts = []
    for seed in range(4):
        env = make(env_id, 64, seed=seed)
        for _ in range(4):
            starts.append(copied(env.state).T)
            env.restart(np.ones(64, bool))
    flat = np.concatenate(starts)
    assert len(np.unique(flat, axis=0)) == len(flat) == 4 * 4 * 64
    assert np.array_equal(copied(make(env_id, 64, seed=2).state).T, starts[8])


def test_restart_begins_masked_worlds_and_leaves_the_others(make, env_id):
    env = make(env_id, 10, seed=0)
    env.step(actions(env, 10))
    mask = np.arange(10) % 3 == 0
    before, obs = copied(env.state), env.obs.clone()
    env.restart(mask)
    assert np.array_equal(copied(env.ages), np.where(mask, 0, 1))
    assert np.array_equal(copied(env.episodes), mask)
    assert np.array_equal(copied(env.state)[:, ~mask], before[:, ~mask])
    assert torch.equal(env.obs[~mask], obs[~mask])
    env.obs[:] = 0
    env.restart(np.zeros(10, bool))
    assert torch.equal(env.obs[~mask], obs[~mask])  # what is seen of all worlds, from their states
    assert not torch.equal(env.obs[mask], obs[mask])


def test_a_snapshot_continues_bit_for_bit(make, env_id):
    env = make(env_id, 33, seed=9, max_episode_steps=LIMIT)
    tape = actions(env, 90, 33)
    env.advance(tape[:50])
    file = io.BytesIO()
    torch.save(env.state_dict(), file)
    expected = env.advance(tape[50:])
    file.seek(0)
    again = make(env_id, 33, max_episode_steps=LIMIT)
    again.load_state_dict(torch.load(file, weights_only=True))
    got = again.advance(tape[50:])
    for name in ("obs", "reward", "terminated", "truncated"):
        assert torch.equal(getattr(got, name), getattr(expected, name))
    over = got.terminated | got.truncated
    for name in ("final_obs", "episode_return", "episode_length"):
        assert torch.equal(getattr(got, name)[over], getattr(expected, name)[over])
    with pytest.raises(UserError, match=f"33 worlds of {env_id}, not 32"):
        make(env_id, 32).load_state_dict(env.state_dict())


def test_a_snapshot_of_other_rules_is_refused_by_name(make):
    saved = make("Pendulum-v1", 3, seed=0, g=9.0).state_dict()
    make("Pendulum-v1", 3, g=9.0).load_state_dict(saved)
    with pytest.raises(UserError, match=r"the checkpoint's Pendulum-v1 has argument g 9.0, this one 10.0"):
        make("Pendulum-v1", 3).load_state_dict(saved)
    with pytest.raises(UserError, match=r"has time limit 200, this one 50"):
        make("Pendulum-v1", 3, max_episode_steps=50, g=9.0).load_state_dict(saved)
    lake = make("FrozenLake-v1", 2, seed=0, desc=np.array(["SF", "FG"])).state_dict()
    make("FrozenLake-v1", 2, desc=["SF", "FG"]).load_state_dict(lake)
    with pytest.raises(UserError, match="argument desc"):
        make("FrozenLake-v1", 2).load_state_dict(lake)


def test_a_snapshot_holds_the_observation(make, env_id):
    env = make(env_id, 5, seed=9)
    env.advance(actions(env, 3, 5))
    again = make(env_id, 5)
    again.load_state_dict(env.state_dict())
    assert torch.equal(again.obs, env.obs)
    assert env.obs.any()


def test_memory_for_each_world(make, env_id):
    env = make(env_id, 1000)
    arrays = (env.state, env.ages, env.episodes, env.returns, *env.last.arrays)
    action = actions(env, 1)
    assert sum(array.nbytes for array in arrays) / 1000 + action.nbytes <= 128


@pytest.mark.parametrize("size", [1, 16, 63, 64, 65, 200, 512])
def test_ended_episodes_are_listed_in_order(size):
    rng = np.random.default_rng(size)
    for share in (0.0, 0.05, 0.9, 1.0):
        terminated, truncated = (rng.random((2, size)) < share).astype(np.uint8)
        ended = np.full(size, -1, np.int32)
        count = listed(terminated, truncated, ended)
        assert np.array_equal(ended[:count], np.flatnonzero(terminated | truncated))


def test_out_of_range_actions_name_the_world():
    env = registry.make("CartPole-v1", 6, seed=0)
    before = env.state.copy()
    for wrong in (2, -1, 2**40):
        action = torch.zeros(6, dtype=torch.int64)
        action[4] = wrong
        with pytest.raises(ValueError, match=rf"CartPole-v1, world 4: action {wrong}; actions are 0 to 1"):
            env.step(action)
    with pytest.raises(ValueError, match="world 5 of step 2: action 7"):
        env.advance(torch.tensor([[0] * 6, [1] * 6, [1, 0, 0, 0, 0, 7]]))
    assert np.array_equal(env.state, before)


def test_an_action_that_is_no_number_names_the_world():
    env = registry.make("Pendulum-v1", 6, seed=0)
    action = torch.zeros(6, 1)
    action[2] = float("nan")
    with pytest.raises(ValueError, match="Pendulum-v1, world 2: action nan"):
        env.step(action)
    action[2] = float("inf")
    assert torch.isfinite(env.step(action).obs).all()  # outside the bounds is clipped


def test_boxes_are_clipped(make):
    for env_id in ("Pendulum-v1", "MountainCarContinuous-v0"):
        one, other = make(env_id, 2, seed=0), make(env_id, 2, seed=0)
        a, b = one.step(torch.tensor([[1.0], [-1.0]])), other.step(torch.tensor([[5.0], [-1.5]]))
        assert torch.equal(a.obs, b.obs)
        assert torch.equal(a.reward, b.reward)


@pytest.mark.parametrize(
    "action",
    [
        torch.zeros(5, dtype=torch.int64),
        torch.zeros(6, 1, dtype=torch.int64),
        torch.zeros(6),
        torch.zeros((), dtype=int),
    ],
)
def test_actions_of_the_wrong_shape_or_type(make, action):
    env = make("CartPole-v1", 6, seed=0)
    with pytest.raises(ValueError, match=r"CartPole-v1 takes actions torch.int64\[6\], got torch"):
        env.step(action)
    with pytest.raises(ValueError, match=r"CartPole-v1 takes actions torch.int64\[T, 6\], got torch"):
        env.advance(action)


def test_buffers_of_another_length(make):
    env = make("CartPole-v1", 6, seed=0)
    with pytest.raises(ValueError, match=r"out holds \(3, 6\) steps"):
        env.advance(torch.zeros(4, 6, dtype=torch.int64), env.trajectory(3))


def test_nothing_moves_before_reset(make):
    env = make("CartPole-v1", 6)
    with pytest.raises(UserError, match="reset"):
        env.step(torch.zeros(6, dtype=torch.int64))
    with pytest.raises(UserError, match="reset"):
        env.advance(torch.zeros(3, 6, dtype=torch.int64))
    with pytest.raises(UserError, match="reset"):
        env.state_dict()


def test_what_make_refuses():
    with pytest.raises(UserError, match="no fast environment 'Cartpole-v1'; did you mean CartPole-v1"):
        registry.make("Cartpole-v1", 4)
    for wrong in (0, -3, 1.5, True):
        with pytest.raises(UserError, match="num_envs must be a whole number of at least 1"):
            registry.make("CartPole-v1", wrong)
    with pytest.raises(UserError, match="workers"):
        registry.make("CartPole-v1", 4, workers=0)
    with pytest.raises(UserError, match="max_episode_steps"):
        registry.make("CartPole-v1", 4, max_episode_steps=0)
    with pytest.raises(UserError, match="no argument 'gravity'"):
        registry.make("Pendulum-v1", 4, gravity=3.0)
    with pytest.raises(UserError, match=r"^Pendulum-v1: g must be a finite number"):
        registry.make("Pendulum-v1", 4, g="heavy")
    with pytest.raises(UserError, match="seed must be in"):
        registry.make("CartPole-v1", 4, seed=-1)


def test_every_world_is_registered_under_its_id():
    assert all(world.env_id == name for name, world in WORLDS.items())
    assert {"CartPole-v1", "Acrobot-v1"} < set(CONTROL)


@pytest.mark.slow
def test_the_second_process_starts_warm(tmp_path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}

    def run() -> str:
        return subprocess.run(
            [sys.executable, "-c", COLD], env=environment, cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout

    first, second = run(), run()
    assert "compiling CartPole-v1 (once, about" in first
    assert "misses 2" in first
    assert "compiling" not in second
    assert "misses 0" in second


def test_a_compiled_world_announces_nothing(caplog):
    env = registry.make("CartPole-v1", 2, seed=0)
    env.step(torch.zeros(2, dtype=torch.int64))
    with caplog.at_level(logging.INFO, logger="stride"):
        registry.make("CartPole-v1", 3, seed=0)
    assert not caplog.records
