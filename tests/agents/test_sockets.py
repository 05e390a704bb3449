"""Who plays and who learns are chosen one by one: every pair of sockets trains as eager does."""

import pytest
import torch
from driven import advance, agent_for

from stride.agents.sockets import Engine, eager

ROLLOUT = ("n_steps=40", "n_envs=6", "batch_size=80", "n_epochs=2")
REPLAY = ("n_envs=3", "train_freq=16", "gradient_steps=4", "buffer_size=300", "learning_starts=40")
AGENTS = {"CartPole-v1:ppo": ROLLOUT, "CartPole-v1:reinforce": ROLLOUT, "CartPole-v1:dqn": REPLAY}
AGENTS["Pendulum-v1:sac"] = (*REPLAY, "max_episode_steps=30")


def plugged(config, play, learn):
    """An agent whose sockets are fused where these say so."""
    agent = agent_for(config, *AGENTS[config], "engine=fused_cpu")
    fused, plain = agent.engine, eager()
    agent.engine = Engine("mixed", "", (fused if play else plain).play, (fused if learn else plain).learn)
    return agent


@pytest.mark.parametrize("config", AGENTS)
@pytest.mark.parametrize(("play", "learn"), [(True, False), (False, True), (True, True)])
def test_every_pair_trains_as_eager_does(config, play, learn):
    expected = advance(plugged(config, False, False), 5)
    agent = advance(plugged(config, play, learn), 5)
    assert agent.progress == expected.progress and agent.progress["updates"] > 0
    for mine, theirs in zip(agent.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=2e-5)
    torch.testing.assert_close(agent.memory.table.obs, expected.memory.table.obs, rtol=1e-4, atol=1e-4)


def test_what_gymnasium_plays_is_learnt_by_kernels():
    agent = agent_for("CartPole-v1:ppo", *ROLLOUT, "env_backend=gym")
    assert (agent.engine.name, agent.engine.play.name, agent.engine.learn.name) == ("fused_cpu", "eager", "fused_cpu")
    assert agent.engine.reason.startswith("updates only: ")
