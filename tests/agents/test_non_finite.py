"""A number that is NaN or infinite is reported by every engine, and no weight learns of it."""

import math

import pytest
import torch
from driven import advance, agent_for
from fused_cases import REPLAY, SMALL, TINY
from fused_gpu_cases import judged, player, stats_of
from same_as_eager import Case, assert_refuses, gpu_worlds, learning_on_gpu, on_fused_cpu, weights

from stride.agents.base import NumbersError

GYM = "env_backend=gym"
CASES = {
    "eager, ppo": (Case("CartPole-v1:ppo", "eager", (*SMALL, "normalize_advantages=rollout")), 1),
    "eager, dqn": (Case("CartPole-v1:dqn", "eager", REPLAY), 4),
    "fused_cpu, ppo": (Case("CartPole-v1:ppo", "fused_cpu", (*SMALL, GYM)), 1),
    "fused_cpu, dqn": (Case("CartPole-v1:dqn", "fused_cpu", (*REPLAY, GYM)), 4),
    "fused_cpu, sac": (Case("Pendulum-v1:sac", "fused_cpu", (*REPLAY, GYM)), 4),
    "fused_gpu, ppo": (Case("CartPole-v1:ppo", "fused_gpu learns", TINY), 1),
}


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("field", ["reward", "obs", "parameter"])
@pytest.mark.parametrize("name", CASES)
def test_it_is_reported_and_reaches_no_weight(name, field, value):
    case, iterations = CASES[name]
    assert_refuses(case, field, value, iterations)


@pytest.mark.parametrize(("buffer", "place", "part"), [("sums", 0, "the loss"), ("partial", 5, "the gradient")])
def test_an_update_whose_loss_or_gradient_is_not_finite_is_not_made(buffer, place, part):
    """Both are sums that begin where the last minibatch left them, at zero; here they do not."""
    mine, other = (advance(on_fused_cpu("CartPole-v1:ppo", *SMALL), 1) for _ in range(2))
    mine.engine.learn.bound.frame.held[buffer][place] = math.nan
    before = weights(mine)
    with pytest.raises(NumbersError, match=f"^{part} stopped being a number in iteration 2"):
        advance(mine, 1)
    advance(other, 1)
    made = [agent.optimizer.state[next(agent.policy.parameters())]["step"].item() for agent in (mine, other)]
    assert made[0] == made[1] - 1 and all(x.isfinite().all() for x in weights(mine))
    assert not all(map(torch.equal, weights(mine), before)), "the other updates were made"


@pytest.mark.parametrize("config", ["CartPole-v1:dqn", "Pendulum-v1:sac"])
@pytest.mark.parametrize("updates", [4, 7])
def test_a_loss_is_named_whether_or_not_metrics_of_its_update_are_noted(config, updates):
    agent = advance(on_fused_cpu(config, *REPLAY), 6)
    agent.progress["updates"] = updates  # DQN notes metrics of every eighth
    agent.engine.learn.bound.frame.held["sums"][0] = math.nan
    with pytest.raises(NumbersError, match="the loss stopped being a number"):
        advance(agent, 1)


def test_an_update_of_a_gpu_whose_loss_is_not_finite_is_not_made():
    agent = advance(learning_on_gpu("CartPole-v1:ppo", *TINY), 1)
    updates = judged(agent)
    updates.log_prob[updates.order[0, 7]] = math.nan
    before = updates.parameters.values.clone()
    updates.update(0)
    assert torch.equal(updates.parameters.values, before)
    assert stats_of(updates).broken == 1.0 and stats_of(updates).lost == 1.0
    for number in (1, 2):
        updates.update(number)
    assert stats_of(updates).broken == 1.0 and not torch.equal(updates.parameters.values, before)


@pytest.mark.parametrize("kind", ["observation", "weights"])
def test_a_rollout_of_a_gpu_reports_as_the_collector_does(kind):
    """By the guard, and by the worlds, which take no such action."""
    messages = []
    for by_kernel in (False, True):
        agent = agent_for("Pendulum-v1:ppo", *SMALL, "normalize_obs=rolling", "engine=eager", worlds=gpu_worlds)
        if by_kernel:
            agent.engine = agent.engine._replace(play=player(agent))
        if kind == "observation":
            agent.collector.envs.state[0, 3] = agent.collector.obs[3, 0] = math.nan
        else:
            agent.policy.head.linear.bias.data.fill_(math.nan)
        with pytest.raises(NumbersError) as caught:
            advance(agent, 1)
        messages.append(str(caught.value))
        assert agent.poisoned and agent.collector.envs.wrong
    assert messages[0] == messages[1] and messages[0].startswith(kind)
