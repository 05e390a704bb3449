"""Wrapped worlds through a checkpoint: 2 x 50 steps are 50, a file, a fresh environment, and 50."""

import gymnasium
import numpy as np
import pytest
import torch

from stride.config.schema import Config
from stride.envs_gym.make import make_envs
from stride.envs_gym.wrappers.registry import WRAPPERS

CASES = {
    "cartpole shaper": {"env_id": "CartPole-v1", "env_wrappers": ({"id": "CartPoleShaper", "scale": 3.0},)},
    "mountain car shaper": {"env_id": "MountainCarContinuous-v0", "env_wrappers": ({"id": "MountainCarShaper"},)},
    "count bonus": {"env_id": "MountainCar-v0", "env_wrappers": ({"id": "MountainCarCountBonus", "bins": 6},)},
    "encoder": {"env_id": "FrozenLake-v1", "env_wrappers": ({"id": "DiscreteEncoder", "encoding": "binary"},)},
    "hidden velocities": {"env_id": "CartPole-v1", "env_wrappers": ({"id": "SelectObservation", "indices": [0, 2]},)},
    "remapper": {"env_id": "FrozenLake-v1", "env_wrappers": ({"id": "ActionRemapper", "actions": [2, 1]},)},
    "sticky": {"env_id": "CartPole-v1", "env_wrappers": ({"id": "StickyActions", "probability": 0.5},)},
    "sticky continuous": {"env_id": "Pendulum-v1", "env_wrappers": ({"id": "StickyActions", "probability": 0.5},)},
    "frame skip": {"env_id": "CartPole-v1", "frame_skip": 2},
    "frame stack": {"env_id": "CartPole-v1", "frame_stack": 3},
    "time limit": {"env_id": "FrozenLake-v1", "env_wrappers": ({"id": "TimeLimit", "max_episode_steps": 7},)},
    "mask": {"env_id": "Taxi-v4", "action_mask": True},
    "pixels": {"env_id": "CartPole-v1", "obs": "pixels", "resize_obs": (20, 30), "frame_stack": 2},
    "all at once": {
        "env_id": "MountainCar-v0",
        "frame_skip": 3,
        "env_wrappers": (
            {"id": "StickyActions"},
            {"id": "MountainCarCountBonus"},
            {"id": "MountainCarShaper"},
            {"id": "ActionMask", "valid_actions": [0, 2]},
        ),
        "max_episode_steps": 60,
    },
}


def actions_for(envs, steps):
    rng = np.random.default_rng(1)
    if envs.action_space.shape:
        shape = (steps, envs.num_envs, *envs.action_space.shape)
        return torch.from_numpy(rng.uniform(-1, 1, shape).astype(np.float32))
    return torch.from_numpy(rng.integers(0, envs.action_space.n, (steps, envs.num_envs)))


def record(envs, actions):
    """Every byte of every step; final observations only where an episode ended."""
    out = []
    for action in actions:
        step = envs.step(action)
        ended = step.terminated | step.truncated
        for tree, rows in ((step.obs, ...), (step.final_obs, ended)):
            out += [leaf[rows].numpy().tobytes() for leaf in (tree.values() if isinstance(tree, dict) else [tree])]
        out += [column.numpy().tobytes() for column in step[1:4]] + [column.numpy().tobytes() for column in step[5:]]
    return out


@pytest.mark.parametrize("keys", CASES.values(), ids=CASES)
@pytest.mark.parametrize("split", [0, 50, 90])
def test_a_fresh_environment_continues_bit_for_bit(keys, split, tmp_path, caplog):
    config = Config(**keys)
    envs, fresh = make_envs(config, 3), make_envs(config, 3)
    envs.reset(7)
    actions = actions_for(envs, 140)
    record(envs, actions[:split])
    torch.save(envs.state_dict(), tmp_path / "state.pt")
    expected = record(envs, actions[split:])
    fresh.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert record(fresh, actions[split:]) == expected
    assert fresh.resume == "exact" and not caplog.records


def test_counts_of_earlier_episodes_survive():
    """The bonus depends on all episodes of a world; a seeded reset is the only thing that forgets them."""
    config = Config(env_id="MountainCar-v0", env_wrappers=({"id": "MountainCarCountBonus"},), max_episode_steps=20)
    envs, fresh = make_envs(config, 2), make_envs(config, 2)
    envs.reset(1)
    record(envs, actions_for(envs, 47))  # two whole episodes and a piece
    fresh.load_state_dict(envs.state_dict())
    visits, again = ([env.visits for env in worlds.envs] for worlds in (envs, fresh))
    assert [int(count.sum()) for count in visits] == [47, 47]
    assert all((mine == other).all() for mine, other in zip(visits, again, strict=True))
    assert not (visits[0] == visits[1]).all()  # each world counts for itself
    envs.reset(1)
    assert all(env.visits.sum() == 0 for env in envs.envs)


class Grudge(gymnasium.RewardWrapper):
    """Pays less for every reward it has ever paid, and tells nobody what it remembers."""

    def __init__(self, env):
        super().__init__(env)
        self.paid = 0

    def reward(self, reward):
        self.paid += 1
        return reward - self.paid


def test_a_memory_that_is_not_saved_ends_the_episode_instead_of_going_on_wrongly(caplog, monkeypatch):
    monkeypatch.setitem(WRAPPERS, "Grudge", Grudge)
    config = Config(env_id="MountainCar-v0", env_wrappers=({"id": "Grudge"},), max_episode_steps=5)
    envs, fresh = make_envs(config, 2), make_envs(config, 2)
    envs.reset(1)
    record(envs, actions_for(envs, 23))
    state = envs.state_dict()
    fresh.load_state_dict(state)
    assert "2 of 2 worlds begin a new episode" in caplog.text
    step = fresh.step(actions_for(envs, 1)[0])
    assert step.truncated.all() and step.reward.tolist() == [0, 0]
    assert step.episode_return.tolist() == state["returns"] and step.episode_length.tolist() == state["lengths"]
