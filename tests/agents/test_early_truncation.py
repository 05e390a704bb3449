"""Worlds that truncate before the time limit they declare: the memory makes room, says so once, and loses no bit."""

import logging

import gymnasium
import numpy as np
import pytest
import torch
from driven import continued
from replay_log import ReplayLog
from worlds import driven

from stride.agents.engines.choice import build_agent
from stride.agents.experience import storage
from stride.agents.experience.nouns import leaves
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


def ticks(agent, number):
    for tick in range(number):
        agent.training_step(iter([tick]))
    return agent


def flat(tree):
    if isinstance(tree, dict):
        return [x for value in tree.values() for x in flat(value)]
    return [x for value in tree for x in flat(value)] if isinstance(tree, list | tuple) else [tree]


def everything(agent):
    parts = {name: part.state_dict() for name, part in agent.parts.items()}
    kept = agent.memory.columns_written() if agent.memory.replayed else []
    return flat([agent.state_dict(), agent.optimizer.state_dict(), {**parts, "memory": []}, kept])


@pytest.mark.parametrize("name", AGENTS)
def test_what_is_interrupted_before_or_after_a_growth_goes_on_as_if_it_had_not_been(name, tmp_path, caplog):
    caplog.set_level(logging.INFO, "stride")
    straight = agent_of(name, tmp_path)
    declared, interrupted, slots = straight.memory.slots, [], []
    for at in range(1, 46 if straight.memory.replayed else 16):
        slots.append(ticks(straight, 1).memory.slots)
        if at in MOMENTS:
            interrupted.append(continued(straight, agent_of(name, tmp_path)))
        for each in interrupted:
            if each.progress["iterations"] < at:
                ticks(each, 1)
    assert len({declared, *slots}) > 2, "it has grown, and more than once"
    assert not straight.memory.overflowed and straight.progress["updates"]
    for each in interrupted:
        pairs = [*zip(everything(each), everything(straight), strict=True)]
        differing = [n for n, (a, b) in enumerate(pairs)
                     if not (torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b)]  # fmt: skip
        assert len(pairs) > 30 and differing == []
    line = f"{ID} truncates episodes before its time limit of 500 steps: "
    told = [message for message in caplog.messages if message.startswith(line)]
    # by the straight one, and by those that were interrupted before the first growth
    assert len(told) == 1 + sum(slots[at - 1] == declared for at in MOMENTS if at <= len(slots))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "dqn, fused"])
def test_worlds_in_processes_of_their_own_are_no_exception(name, tmp_path):
    here, config = agent_of(name, tmp_path), config_of(name)
    there = driven(build_agent(config, AsyncEnv(config.env_id, config.n_envs, config.env_kwargs, workers=2)))
    try:
        for each in (here, there):
            ticks(each, 40)
        assert there.memory.grown and there.memory.slots == here.memory.slots
        for mine, other in zip(flat(here.state_dict()), flat(there.state_dict()), strict=True):
            assert torch.equal(mine, other)
    finally:
        there.collector.envs.close()


@pytest.mark.parametrize("slots", [2, 5, 9])
def test_a_ring_that_grew_holds_what_one_with_room_from_the_start_holds(slots, tmp_path):
    small, ample = (ReplayLog(rows=31, n=3, slots=room, seed=1, p_end=0.6) for room in (slots, 31))
    small.memory.save_in(tmp_path)
    for _ in range(12):
        small.write(7), ample.write(7)
        drawn = small.memory.transitions(64, 3, GAMMA)
        small.check(drawn, 3, GAMMA)
        for mine, other in zip(leaves(drawn), leaves(ample.memory.transitions(64, 3, GAMMA)), strict=True):
            assert torch.equal(mine, other)
        again = ReplayLog(rows=31, n=3, slots=slots)
        again.memory.save_in(tmp_path)
        again.memory.load_state_dict(small.memory.state_dict())
        assert again.memory.slots == small.memory.slots and torch.equal(again.memory.slot, small.memory.slot)
        for mine, other in zip(again.memory.columns_written(), small.memory.columns_written(), strict=True):
            assert torch.equal(mine, other)
    assert small.memory.slots > slots and small.memory.bytes > ReplayLog(rows=31, n=3, slots=slots).memory.bytes
    assert not small.memory.overflowed


def test_room_that_is_not_there_names_the_key_to_lower(monkeypatch):
    log = ReplayLog(rows=31, n=1, slots=2, seed=1, p_end=0.6)
    monkeypatch.setattr(storage, "free_bytes", lambda kind: 10)
    with pytest.raises(UserError, match=r"buffer_size 31 takes 16 bytes, 9 bytes may be taken in memory"):
        log.write(31)
