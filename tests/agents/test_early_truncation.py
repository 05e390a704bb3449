"""Worlds that truncate before the time limit they declare: the memory makes room, says so once, and loses no bit."""

import logging

import gymnasium
import numpy as np
import pytest
from driven import advance, continued
from replay_log import ReplayLog, same
from worlds import driven

from stride.agents.engines.choice import build_agent
from stride.agents.experience import storage
from stride.config.loader import load_config
from stride.envs_gym.async_env import AsyncEnv
from stride.envs_gym.make import make_envs
from stride.utils.user_error import UserError

GAMMA = 0.9
MOMENTS = (1, 8, 40)  # iterations after which it is interrupted


class Short(gymnasium.Env):
    """Cuts its episodes after 1 to 20 steps, by its own decision; the limit it is registered with is 500."""

    observation_space = gymnasium.spaces.Box(-1, 2, (3,), np.float32)

    def __init__(self, numbers=False):
        self.action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32) if numbers else gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(1, 21))
        return self.observe(), {}

    def observe(self):
        return np.array([self.left / 20, self.np_random.random(), 1], np.float32)

    def step(self, action):
        self.left -= 1
        return self.observe(), float(np.sum(action)), False, self.left == 0, {}


gymnasium.register("Short-v0", Short, max_episode_steps=500)
ID = f"{__name__}:Short-v0"
SMALL = (f"env_id={ID}", "spec={}", "max_timesteps=1e6", "n_envs=2")
ROLLOUT = (*SMALL, "n_steps=32")
REPLAY = (*SMALL, "train_freq=16", "gradient_steps=2", "batch_size=16", "buffer_size=800", "learning_starts=64")
AGENTS = {
    "ppo": ("CartPole-v1", "ppo", *ROLLOUT, "batch_size=32", "n_epochs=2", "engine=eager"),
    "ppo, fused": ("CartPole-v1", "ppo", *ROLLOUT, "batch_size=32", "n_epochs=2", "engine=fused_cpu"),
    "ppo, lstm": ("CartPole-v1", "ppo_lstm", *ROLLOUT, "n_epochs=1", "batch_size=1.0"),
    "reinforce, fused": ("CartPole-v1", "reinforce", *ROLLOUT, "policy_targets=advantages", "engine=fused_cpu"),
    "dqn, prioritised": ("CartPole-v1", "dqn", *REPLAY, "prioritised=true", "n_step=3", "engine=eager"),
    "dqn, fused": ("CartPole-v1", "dqn", *REPLAY, "engine=fused_cpu"),
    "sac, fused": ("Pendulum-v1", "sac", *REPLAY, "env_kwargs={numbers: true}", "engine=fused_cpu"),
}


def config_of(name):
    env_id, variant, *words = AGENTS[name]
    return load_config(env_id, variant, words)


def agent_of(name, folder):
    config = config_of(name)
    agent = driven(build_agent(config, make_envs(config, config.n_envs)))
    agent.memory.save_in(folder)
    return agent


def everything(agent):
    parts = {name: part.state_dict() for name, part in agent.parts.items()}
    rows = agent.memory.columns_written() if agent.memory.replayed else []
    return [agent.state_dict(), agent.optimizer.state_dict(), {**parts, "memory": []}, rows]


@pytest.mark.parametrize("name", AGENTS)
def test_what_is_interrupted_before_or_after_a_growth_goes_on_as_if_it_had_not_been(name, tmp_path, caplog):
    caplog.set_level(logging.INFO, "stride")
    straight = agent_of(name, tmp_path)
    declared, interrupted, slots = straight.memory.slots, [], []
    for at in range(1, 46 if straight.memory.replayed else 16):
        for agent in (straight, *interrupted):
            advance(agent, 1)
        slots.append(straight.memory.slots)
        if at in MOMENTS:
            interrupted.append(continued(straight, agent_of(name, tmp_path)))
    assert len({declared, *slots}) > 2, "it has grown, and more than once"
    assert not straight.memory.overflowed and straight.progress["updates"]
    assert all(same(everything(agent), everything(straight)) for agent in interrupted)
    line = f"{ID} truncates episodes before its time limit of 500 steps: "
    lines = [message for message in caplog.messages if message.startswith(line)]
    # by the straight one, and by those that were interrupted before the first growth
    assert len(lines) == 1 + sum(slots[at - 1] == declared for at in MOMENTS if at <= len(slots))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "dqn, fused"])
def test_worlds_in_processes_of_their_own_are_no_exception(name, tmp_path):
    here, config = agent_of(name, tmp_path), config_of(name)
    there = driven(build_agent(config, AsyncEnv(config.env_id, config.n_envs, config.env_kwargs, workers=2)))
    try:
        for agent in (here, there):
            advance(agent, 40)
        assert there.memory.grown and there.memory.slots == here.memory.slots
        assert same(here.state_dict(), there.state_dict())
    finally:
        there.collector.envs.close()


def test_room_that_is_not_there_names_the_key_to_lower(monkeypatch):
    log = ReplayLog(rows=31, n=1, slots=2, seed=1, ends=(0.3, 0.3))
    monkeypatch.setattr(storage, "free_bytes", lambda kind: 10)
    with pytest.raises(UserError, match=r"buffer_size 31 takes 16 bytes, 9 bytes may be taken in memory"):
        log.write(31)
