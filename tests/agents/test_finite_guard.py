"""NaN and infinities: found where they began, named, kept out of weights and statistics."""

import pytest
import torch
from driven import advance
from replay_log import same, through_file
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


def ppo(bad_rows=(), value=NAN, **options):
    reward, terminated, truncated = random_tables(800, 4, 0)
    for row in bad_rows:
        reward[row, 2] = value
    return driven(PPO(PPOConfig(**{**COMMON, **options}), Scripted(reward, terminated, truncated)))


@pytest.mark.parametrize(("value", "word"), [(NAN, "NaN"), (INF, "infinity"), (-INF, "-infinity")])
@pytest.mark.parametrize("rows", [[17], [20, 18, 22]])
def test_the_earliest_reward_is_named_with_its_world_and_step(value, word, rows):
    agent = advance(ppo(rows, value), 2)
    place = f"of environment 2 at env step {min(rows) * 4 + 4} in iteration 3 (96 env steps)"
    with pytest.raises(NumbersError) as caught:
        advance(agent, 1)
    assert str(caught.value) == f"reward: {word} {place}; the weights are as before it"


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
    monkeypatch.setattr("stride.agents.base.SKIPS", 5)
    agent = ppo(range(800), nan_guard="skip")
    advance(agent, 4)
    with pytest.raises(NumbersError, match="from 5 iterations in a row"):
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
    norm, scale, ended = RunningNorm(3), RewardScale(True, 0.9, torch.zeros(3)), torch.zeros(10, 3, dtype=torch.bool)
    clean = torch.rand(10, 3)
    norm.learn(clean), scale(clean, ended)
    before = through_file([{**norm.state_dict()}, scale.state_dict()])
    spoiled = clean.clone()
    spoiled[4, 1] = bad
    norm.learn(spoiled), scale(spoiled, ended)
    assert same([{**norm.state_dict()}, scale.state_dict()], before)
    norm.learn(clean + 1)
    assert not torch.equal(norm.mean, before[0]["mean"]) and norm.mean.isfinite().all()


@pytest.mark.parametrize("k", [2, 4])
def test_accumulated_minibatches_are_one_larger_one(k):
    """4 rows of k minibatches to a step are k x 4 rows to a step, in plain descent without clipping."""
    settings = {"optimizer": "sgd", "max_grad_norm": None, "n_epochs": 1, "normalize_advantages": "off"}
    small, large = ppo(**settings, batch_size=4, accumulate=k), ppo(**settings, batch_size=4 * k)
    advance(small, 3), advance(large, 3)
    assert small.progress["updates"] == large.progress["updates"] == 3 * 32 // (4 * k)
    for mine, theirs in zip(small.policy.parameters(), large.policy.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-7)
