"""One lifecycle for all: collecting and learning take turns, and an engine is one attribute."""

from unittest.mock import Mock, create_autospec

import torch
from driven import advance, agent_for, continued
from plain_ppo import PlainPPO

from stride.agents.engines.choice import build_agent
from stride.agents.ppo import PPO
from stride.agents.sockets import Engine
from stride.config.loader import load_config
from stride.envs_gym.make import make_envs
from stride.trainer_callbacks.session import build_trainer
from stride.trainer_callbacks.stop import Stop

SMALL = ("n_envs=4", "n_steps=16", "batch_size=0.5", "n_epochs=2", "policy_lr=1e-3", "engine=eager")


def test_collect_and_learn_alternate_under_the_trainer(monkeypatch):
    """A prefetching loader would collect once more before the first learning: PPO would silently be off-policy."""
    calls = Mock()
    for name in ("collect", "learn"):
        method = create_autospec(getattr(PPO, name), side_effect=getattr(PPO, name))
        calls.attach_mock(method, name)
        monkeypatch.setattr(PPO, name, method)
    config = load_config("CartPole-v1", "ppo", [*SMALL, f"max_timesteps={3 * 64}"])
    agent = build_agent(config, make_envs(config, config.n_envs))
    build_trainer([Stop(config, None, lambda agent: {})], enable_checkpointing=False).fit(agent)
    assert [call[0] for call in calls.mock_calls] == ["collect", "learn"] * 3
    assert agent.progress["env_steps"] == 192 and agent.progress["updates"] == 3 * 2 * 2


def test_another_engine_is_one_attribute_and_the_same_training():
    def agent(engine=None):
        agent = agent_for("CartPole-v1:ppo", *SMALL, "clip_range=0.2", "env_backend=gym")
        agent.engine = Engine(engine.name, "", engine, engine) if engine else agent.engine
        return agent

    eager, half = advance(agent(), 6), advance(agent(), 3)
    straight, switched = agent(PlainPPO()), continued(half, agent(PlainPPO()))
    for plain in (advance(straight, 6), advance(switched, 3)):
        assert torch.equal(plain.memory.table.action, eager.memory.table.action)
        assert plain.collector.state_dict()["envs"]["rng"] == eager.collector.state_dict()["envs"]["rng"]
        assert plain.progress == eager.progress
        for mine, theirs in zip(plain.policy.parameters(), eager.policy.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)
