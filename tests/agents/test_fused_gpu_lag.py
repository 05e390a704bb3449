"""`lag: 1` by the kernels of `engine: fused_gpu`: whose actions a rollout holds, and when it is played."""

import pytest
import torch
from driven import advance, agent_for
from fused_cases import GPU
from fused_gpu_cases import played, player
from same_as_eager import assert_same, gpu_worlds, on_fused_gpu

from stride.agents.engines.fused_gpu.ahead import Beside
from stride.agents.engines.fused_gpu.play import FusedPlay


def test_the_actor_of_one_iteration_before_plays():
    """In one launch, what the collector plays by it; and not what the present one would play."""
    words = ("CartPole-v1:ppo", *GPU, "lag=1", "policy_lr=0.05", "engine=eager")
    plain, other, present = (advance(agent_for(*words, worlds=gpu_worlds), 2) for _ in range(3))
    present.collector.policy = present.policy
    plain.collector.collect(32, plain.memory)
    for agent in (other, present):
        player(agent).collect(agent, 32)
    assert_same(played(other), played(plain))
    assert not torch.equal(present.memory.table.action, plain.memory.table.action)


def test_rollouts_are_played_beside_the_updates_but_the_first(monkeypatch):
    """That they give the bits of rollouts before the updates is a row of test_same_as_eager.py."""
    agent, alone = on_fused_gpu("CartPole-v1:ppo", *GPU, "lag=1", "hidden_dims=[16,16]", beside=Beside), []
    collect = FusedPlay.collect
    monkeypatch.setattr(FusedPlay, "collect", lambda self, *given: alone.append(given) or collect(self, *given))
    advance(agent, 3)
    assert len(alone) == 1
    agent.loads += 1
    advance(agent, 2)
    assert len(alone) == 2


@pytest.mark.slow
@pytest.mark.parametrize("lag", [0, 1])
def test_a_rollout_says_of_its_actions_what_the_updates_begin_from(lag):
    """To the bit, so that the first ratio is 1; with a lag the ratio is that of two actors."""
    agent = on_fused_gpu("FrozenLake-v1:ppo", *GPU, f"lag={lag}", "hidden_dims=[16]", "policy_lr=0.01")
    for _ in range(3):
        advance(agent, 1)
        updates, log_prob = agent.engine.learn.updates, agent.engine.play.log_prob.flatten()
        if lag:
            ratio = (updates.log_prob - log_prob).exp()
            torch.testing.assert_close(updates.played.ratio, ratio, rtol=0, atol=5e-7)
        else:
            assert torch.equal(updates.log_prob, log_prob)
    assert not lag or (updates.played.ratio != 1.0).any()
