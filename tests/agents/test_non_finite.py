"""NaN and infinities: found where they began, named by every engine, kept out of weights and statistics."""

from types import SimpleNamespace

import pytest
import torch
from driven import advance, agent_for
from fused_cases import REPLAY, SMALL, TINY, judged, player, stats_of
from replay_log import same, through_file
from same_as_eager import Case, assert_refuses, gpu_worlds, learning_on_gpu, on_fused_cpu, weights
from worlds import NAN, Scripted, driven, random_tables

from stride.agents.experience import finite_guard
from stride.agents.experience.finite_guard import all_finite
from stride.agents.experience.reward_scale import RewardScale
from stride.agents.networks.encoders import RunningNorm
from stride.agents.ppo import PPO
from stride.config.schema import PPOConfig
from stride.utils.user_error import NumbersError

INF = float("inf")
COMMON = {"n_envs": 4, "n_steps": 8, "hidden_dims": (8,), "policy_lr": 1e-2, "max_timesteps": 10**6}


# --- the guard


def ppo(bad_rows=(), value=NAN, **options):
    reward, terminated, truncated = random_tables(800, 4, 0)
    for row in bad_rows:
        reward[row, 2] = value
    return driven(PPO(PPOConfig(**{**COMMON, **options}), Scripted(reward, terminated, truncated)))


@pytest.mark.parametrize(("value", "word"), [(NAN, "NaN"), (-INF, "-infinity")])
@pytest.mark.parametrize("rows", [[17], [20, 18, 22]])
def test_the_earliest_reward_is_named_with_its_world_and_step(value, word, rows):
    agent = advance(ppo(rows, value), 2)
    place = f"of environment 2 at env step {min(rows) * 4 + 4} in iteration 3 (96 env steps)"
    with pytest.raises(NumbersError) as caught:
        advance(agent, 1)
    assert str(caught.value) == f"reward: {word} {place}; the weights are unchanged"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_one_among_many_large_ones_is_found_wherever_it_stands(value, dtype):
    numbers = torch.full((1001,), 1e30, dtype=dtype)
    assert all_finite(numbers.numpy()) and all_finite(numbers[:0].numpy())
    for place in (0, 7, 512, 1000):
        bad = numbers.clone()
        bad[place] = value
        assert not all_finite(bad.numpy())


@pytest.mark.parametrize(("begin", "end", "rows"), [(0, 3, {0, 1, 2}), (2, 5, {2, 3, 4}), (-2, 1, {3, 4, 0})])
def test_the_rows_just_written_are_looked_at_also_across_the_end_of_the_ring(begin, end, rows):
    columns = [torch.ones(5, 6).index_put((torch.tensor(row), torch.tensor(3)), torch.tensor(NAN)) for row in range(5)]
    assert {row for row in range(5) if not finite_guard._finite(columns[row].numpy(), begin, end)} == rows


@pytest.mark.parametrize("normalized", [False, True])
def test_skip_learns_nothing_from_it_and_goes_on(normalized):
    agent = advance(ppo([17], nan_guard="skip", normalize_obs="rolling", normalize_reward=normalized), 2)
    before = {name: value.clone() for name, value in agent.policy.state_dict().items() if "leaf" not in name}
    moments = agent.reward_scale.moments.clone()
    advance(agent, 1)
    assert all(torch.equal(before[name], agent.policy.state_dict()[name]) for name in before), "a no-op, all of it"
    assert torch.equal(moments, agent.reward_scale.moments)
    advance(agent, 1)
    assert any(not torch.equal(before[name], agent.policy.state_dict()[name]) for name in before)
    assert all(value.isfinite().all() for value in agent.policy.state_dict().values())


def test_skip_gives_up_where_nothing_can_be_learnt_any_more(monkeypatch):
    monkeypatch.setattr("stride.agents.base.MAX_SKIPPED", 5)
    agent = ppo(range(800), nan_guard="skip")
    advance(agent, 4)
    with pytest.raises(NumbersError, match="; 5 iterations in a row were skipped"):
        advance(agent, 1)


def test_off_does_not_look():
    agent = advance(ppo([17], nan_guard="off", normalize_advantages="rollout"), 3)
    assert any(value.isnan().any() for value in agent.policy.state_dict().values())


@pytest.mark.parametrize("mode", ["stop", "skip"])
def test_weights_that_are_none_stop_in_any_case(mode):
    agent = advance(ppo(nan_guard=mode), 2)
    with torch.no_grad():
        agent.policy.critic[1].bias.fill_(INF)
    with pytest.raises(NumbersError, match=r"^weights: infinity in policy.critic.1.bias in iteration 3"):
        advance(agent, 1)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_running_statistics_leave_rows_out_that_are_none(bad):
    norm, ended = RunningNorm(3), torch.zeros(10, 3, dtype=torch.bool)
    scale = RewardScale(True, SimpleNamespace(gamma=0.9), torch.zeros(3))
    clean = torch.rand(10, 3)
    norm.learn(clean), scale(clean, ended)
    before = through_file([{**norm.state_dict()}, scale.state_dict()])
    spoiled = clean.clone()
    spoiled[4, 1] = bad
    norm.learn(spoiled), scale(spoiled, ended)
    assert same([{**norm.state_dict()}, scale.state_dict()], before)
    norm.learn(clean + 1)
    assert not torch.equal(norm.mean, before[0]["mean"]) and norm.mean.isfinite().all()


# --- engines


GYM = "env_backend=gym"
CASES = {
    "eager, ppo": (Case("CartPole-v1:ppo", "eager", (*SMALL, "normalize_advantages=rollout")), 1),
    "eager, dqn": (Case("CartPole-v1:dqn", "eager", REPLAY), 4),
    "fused_cpu, ppo": (Case("CartPole-v1:ppo", "fused_cpu", (*SMALL, GYM)), 1),
    "fused_cpu, pqn": (Case("CartPole-v1:pqn", "fused_cpu", (*SMALL, GYM)), 1),
    "fused_cpu, dqn": (Case("CartPole-v1:dqn", "fused_cpu", (*REPLAY, GYM)), 4),
    "fused_cpu, sac": (Case("Pendulum-v1:sac", "fused_cpu", (*REPLAY, GYM)), 4),
    "fused_cpu, td3": (Case("Pendulum-v1:td3", "fused_cpu", (*REPLAY, GYM, "actor_every=4")), 4),
    "fused_cpu, tqc": (Case("Pendulum-v1:tqc", "fused_cpu", (*REPLAY, GYM)), 4),
    "fused_gpu, ppo": (Case("CartPole-v1:ppo", "fused_gpu learns", TINY), 1),
}


@pytest.mark.parametrize("value", [NAN, INF])
@pytest.mark.parametrize("field", ["reward", "obs", "parameter"])
@pytest.mark.parametrize("name", CASES)
def test_it_is_reported_and_reaches_no_weight(name, field, value):
    case, iterations = CASES[name]
    assert_refuses(case, field, value, iterations)


@pytest.mark.parametrize(("buffer", "place", "part"), [("sums", 0, "the loss"), ("partial", 5, "the gradient")])
def test_an_update_whose_loss_or_gradient_is_not_finite_is_not_made(buffer, place, part):
    """Both are sums that begin where the last minibatch left them, at zero; here they do not."""
    mine, other = (advance(on_fused_cpu("CartPole-v1:ppo", *SMALL), 1) for _ in range(2))
    mine.engine.learn.bound.frame.held[buffer][place] = NAN
    before = weights(mine)
    with pytest.raises(NumbersError, match=f"^{part} became not a number in iteration 2"):
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
    agent.engine.learn.bound.frame.held["sums"][0] = NAN
    with pytest.raises(NumbersError, match="the loss became not a number"):
        advance(agent, 1)


def test_an_update_of_a_gpu_whose_loss_is_not_finite_is_not_made():
    agent = advance(learning_on_gpu("CartPole-v1:ppo", *TINY), 1)
    updates = judged(agent)
    updates.log_prob[updates.order[0, 7]] = NAN
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
            agent.collector.envs.state[0, 3] = agent.collector.obs[3, 0] = NAN
        else:
            agent.policy.head.linear.bias.data.fill_(NAN)
        with pytest.raises(NumbersError) as caught:
            advance(agent, 1)
        messages.append(str(caught.value))
        assert agent.poisoned and agent.collector.envs.wrong
    assert messages[0] == messages[1] and messages[0].startswith(kind)
