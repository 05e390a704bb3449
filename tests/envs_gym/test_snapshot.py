"""Worlds through a checkpoint: 2 x 50 steps are 50, a file, a fresh environment, and 50."""

import logging

import numpy as np
import pytest
import torch

from stride.envs_gym.gym_env import GymEnv
from stride.envs_gym.make import find_spec
from stride.utils.user_error import UserError

EXACT = [
    "CartPole-v1",
    "Pendulum-v1",
    "FrozenLake-v1",
    "MountainCar-v0",
    "MountainCarContinuous-v0",
    "Acrobot-v1",
    "Taxi-v4",
    "Blackjack-v1",
    "stride-test/Counting-v0",
]
ARCADE = [("ALE/Pong-v5", {}), ("ALE/Breakout-v5", {}), ("SpaceInvadersNoFrameskip-v4", {"frameskip": 4})]
MUJOCO = ["HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "Ant-v5", "Humanoid-v5", "Swimmer-v5", "Reacher-v5",
          "Pusher-v5", "InvertedPendulum-v5", "InvertedDoublePendulum-v5"]  # fmt: skip
DM_CONTROL = ["walker-walk", "cartpole-swingup", "finger-turn_hard", "quadruped-fetch", "lqr-lqr_2_1"]
MINIGRID = ["MiniGrid-DoorKey-5x5-v0", "MiniGrid-Dynamic-Obstacles-5x5-v0", "MiniGrid-Fetch-5x5-N2-v0"]


def random_actions(env, steps, seed):
    rng = np.random.default_rng(seed)
    if env.action_space.shape:
        shape = (steps, env.num_envs, *env.action_space.shape)
        return torch.from_numpy(rng.uniform(-1, 1, shape).astype(np.float32))
    return torch.from_numpy(rng.integers(0, env.action_space.n, (steps, env.num_envs)))


def record(env, actions):
    """Every number of every step; NaN-safe, final observations only where an episode ended."""
    out = []
    for action in actions:
        step = env.step(action)
        ended = step.terminated | step.truncated
        for tree in (step.obs, step.final_obs):
            for name, leaf in sorted(tree.items()) if isinstance(tree, dict) else [("", tree)]:
                out.append((name, (leaf if tree is step.obs else leaf[ended]).numpy().tobytes()))
        out += [column.numpy().tobytes() for column in step[1:4]]
        out += [column[ended].tolist() for column in step[5:]]
    return out


def through_a_file(env, path):
    torch.save(env.state_dict(), path)
    return torch.load(path, weights_only=True)


@pytest.mark.parametrize("env_id", EXACT)
@pytest.mark.parametrize("split", [0, 50])
def test_a_fresh_environment_continues_bit_for_bit(env_id, split, tmp_path, caplog):
    env, fresh = GymEnv(env_id, 3), GymEnv(env_id, 3)
    env.reset(7)
    actions = random_actions(env, 100, seed=1)
    record(env, actions[:split])
    state = through_a_file(env, tmp_path / "state.pt")
    expected = record(env, actions[split:])
    fresh.load_state_dict(state)
    assert record(fresh, actions[split:]) == expected
    assert fresh.resume == "exact" and not caplog.records


def continues_exactly(env_id, kwargs, limit, split, tmp_path, caplog, wrappers=()):
    """Through a file in the middle of the second episode or so; a third environment goes on from a second file."""
    env, fresh, third = (GymEnv(env_id, 2, kwargs, max_episode_steps=limit, wrappers=wrappers) for _ in range(3))
    env.reset(7)
    actions = random_actions(env, 3 * split, seed=1)
    record(env, actions[:split])
    fresh.load_state_dict(through_a_file(env, tmp_path / "state.pt"))
    assert record(fresh, actions[split : 2 * split]) == record(env, actions[split : 2 * split])
    third.load_state_dict(through_a_file(fresh, tmp_path / "again.pt"))
    assert record(third, actions[2 * split :]) == record(env, actions[2 * split :])
    assert env.resume == third.resume == "exact" and not caplog.records


@pytest.mark.parametrize("env_id", ["LunarLander-v3", "LunarLanderContinuous-v3"])
def test_a_lander_continues_bit_for_bit(env_id, tmp_path, caplog):
    pytest.importorskip("Box2D")
    continues_exactly(env_id, {}, None, 130, tmp_path, caplog)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", MUJOCO)
def test_mujoco_continues_bit_for_bit(env_id, tmp_path, caplog):
    pytest.importorskip("mujoco")
    continues_exactly(env_id, {}, 90, 130, tmp_path, caplog)


@pytest.mark.slow
@pytest.mark.parametrize("task", DM_CONTROL)
def test_a_task_of_dm_control_continues_bit_for_bit(task, tmp_path, caplog):
    pytest.importorskip("dm_control")
    find_spec(f"dm_control/{task}")
    continues_exactly(f"dm_control/{task}", {}, 40, 60, tmp_path, caplog)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", MINIGRID)
def test_a_grid_continues_bit_for_bit(env_id, tmp_path, caplog):
    pytest.importorskip("minigrid")
    find_spec(env_id)
    continues_exactly(env_id, {}, 40, 60, tmp_path, caplog, [{"id": "MiniGridMask"}, {"id": "MiniGridFlat"}])


@pytest.mark.slow
@pytest.mark.parametrize(("env_id", "kwargs"), ARCADE)
def test_an_emulator_continues_bit_for_bit_with_the_generator_inside_it(env_id, kwargs, tmp_path, caplog):
    pytest.importorskip("ale_py")
    sticky = {"repeat_action_probability": 0.25}
    continues_exactly(env_id if env_id[:4] != "ALE/" else f"ale_py:{env_id}", kwargs | sticky, 60, 80, tmp_path, caplog)


@pytest.mark.slow
def test_physics_that_came_out_otherwise_are_cut_though_they_look_the_same(tmp_path, caplog):
    pytest.importorskip("mujoco")
    env, fresh = GymEnv("HalfCheetah-v5", 2), GymEnv("HalfCheetah-v5", 2)
    env.reset(1)
    record(env, random_actions(env, 10, seed=1))
    state = through_a_file(env, tmp_path / "a.pt")
    state["rng"][1]["physics"] = "another"
    fresh.load_state_dict(state)
    assert "1 of 2 worlds" in caplog.text


def test_a_generator_that_came_out_otherwise_cuts_its_world_though_all_looks_the_same(tmp_path, caplog):
    env, fresh = GymEnv("FrozenLake-v1", 2), GymEnv("FrozenLake-v1", 2)
    env.reset(1)
    record(env, random_actions(env, 10, seed=1))
    state = through_a_file(env, tmp_path / "a.pt")
    state["rng"][1]["state"]["state"] += 1
    fresh.load_state_dict(state)
    assert "1 of 2 worlds" in caplog.text


def test_a_second_checkpoint_of_a_resumed_environment_is_exact_too(tmp_path):
    env, second, third = (GymEnv("FrozenLake-v1", 2) for _ in range(3))
    env.reset(1)
    actions = random_actions(env, 60, seed=2)
    record(env, actions[:20])
    second.load_state_dict(through_a_file(env, tmp_path / "a.pt"))
    record(second, actions[20:23])
    record(env, actions[20:23])
    third.load_state_dict(through_a_file(second, tmp_path / "b.pt"))
    assert record(third, actions[23:]) == record(env, actions[23:])


def test_taking_a_state_changes_nothing_and_is_not_changed_by_steps(tmp_path):
    env, other = GymEnv("CartPole-v1", 2), GymEnv("CartPole-v1", 2)
    env.reset(1), other.reset(1)
    actions = random_actions(env, 40, seed=3)
    for action in actions:
        state = env.state_dict()
        assert record(env, [action]) == record(other, [action])
    record(env, actions)
    fresh = GymEnv("CartPole-v1", 2)
    fresh.load_state_dict(state)
    assert record(fresh, actions[-1:]) == record(played_to(actions[:-1]), actions[-1:])


def played_to(actions):
    env = GymEnv("CartPole-v1", 2)
    env.reset(1)
    record(env, actions)
    return env


def test_loading_over_a_played_environment_forgets_its_past(tmp_path):
    env, played = GymEnv("CartPole-v1", 2), GymEnv("CartPole-v1", 2)
    env.reset(1), played.reset(2)
    actions = random_actions(env, 60, seed=4)
    record(env, actions[:30]), record(played, actions)
    played.load_state_dict(through_a_file(env, tmp_path / "a.pt"))
    assert record(played, actions[30:]) == record(env, actions[30:])


def test_what_cannot_be_replayed_is_cut_with_one_warning(tmp_path, caplog):
    """An environment with a generator of its own: the saved episode ends as truncated, a new one begins."""
    env, fresh = (
        GymEnv("stride-test/Forgetful-v0", 2, {"length": 5}),
        GymEnv("stride-test/Forgetful-v0", 2, {"length": 5}),
    )
    env.reset(1)
    action = torch.zeros(2, dtype=torch.int64)
    env.step(action), env.step(action)
    saved = env.state_dict()
    with caplog.at_level(logging.WARNING, logger="stride"):
        fresh.load_state_dict(through_a_file(env, tmp_path / "a.pt"))
    assert [record.getMessage() for record in caplog.records] == [
        "stride-test/Forgetful-v0 cannot be restored exactly: 2 of 2 worlds begin a new episode"
    ]
    step = fresh.step(action)
    assert step.truncated.all() and not step.terminated.any() and step.reward.tolist() == [0, 0]
    assert torch.equal(step.final_obs, saved["obs"])  # what the policy saw is what is valued
    assert step.obs[:, 0].tolist() == [0, 0]
    assert step.episode_length.tolist() == [2, 2] and step.episode_return.tolist() == pytest.approx([0.3, 0.3])
    step = fresh.step(action)
    assert step.obs[:, 0].tolist() == [1, 1] and not step.truncated.any() and step.episode_length.tolist() == [1, 1]


def test_a_seam_environment_says_so_and_starts_unused_worlds(tmp_path, monkeypatch):
    monkeypatch.setattr("stride.envs_gym.snapshot.SEAM", ("stride-test/Counting",))
    env, fresh = GymEnv("stride-test/Counting-v0", 2), GymEnv("stride-test/Counting-v0", 2)
    assert env.resume == fresh.resume == "seam"
    seen = {*env.reset(1)[:, 1].tolist()}
    action = torch.zeros(2, dtype=torch.int64)
    for _ in range(4):
        seen |= {*env.step(action).obs[:, 1].tolist()}
    fresh.load_state_dict(through_a_file(env, tmp_path / "a.pt"))
    begun = fresh.step(action).obs[:, 1].tolist()
    assert len({*begun} | seen) == len(seen) + 2
    again = GymEnv("stride-test/Counting-v0", 2)
    again.load_state_dict(through_a_file(env, tmp_path / "a.pt"))
    assert again.step(action).obs[:, 1].tolist() == begun  # the same checkpoint begins the same worlds


def test_one_world_that_cannot_be_replayed_does_not_stop_the_others(tmp_path, caplog):
    env, fresh = GymEnv("FrozenLake-v1", 3), GymEnv("FrozenLake-v1", 3)
    env.reset(1)
    actions = random_actions(env, 30, seed=5)
    record(env, actions[:10])
    state = through_a_file(env, tmp_path / "a.pt")
    state["obs"][1] += 1  # as if the replay had arrived elsewhere
    fresh.load_state_dict(state)
    assert "1 of 3 worlds" in caplog.text
    step, expected = fresh.step(actions[10]), env.step(actions[10])
    assert step.truncated.tolist()[1] is True
    assert step.obs[[0, 2]].tolist() == expected.obs[[0, 2]].tolist()


def test_a_state_of_other_worlds_is_refused():
    env = GymEnv("CartPole-v1", 2)
    with pytest.raises(RuntimeError, match="before its first reset"):
        env.state_dict()
    env.reset(1)
    with pytest.raises(UserError, match="2 worlds of CartPole-v1, not 3 of CartPole-v1"):
        GymEnv("CartPole-v1", 3).load_state_dict(env.state_dict())
    with pytest.raises(UserError, match="not 2 of Acrobot-v1"):
        GymEnv("Acrobot-v1", 2).load_state_dict(env.state_dict())
