"""Return estimators, and losses of PPO and REINFORCE, against arithmetic by hand; 0.5 keeps every number exact."""

import math

import pytest
import torch
from host_kernels import compile_host
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import random_tables

from stride.agents.ppo import approximate_kl, clipped_surrogate, value_loss
from stride.agents.reinforce import masked_mean, masked_standardize, policy_gradient
from stride.agents.returns import (
    ends_within,
    explained_variance,
    from_episode_start,
    gae,
    lambda_returns,
    launch,
    next_values,
    reward_to_go,
    standardize,
    vtrace,
)

# one world, three rows: r = 1, 2, 4; v = 8, 4, 2; V after the last row 16; V of what was cut 32
# who chose liked the actions of rows 0 and 2 twice as much, that of row 1 half as much: rho = 1/2, 1, 1/2
NONE, FIRST, SECOND, LAST = (0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)
CASES = {
    # terminated, truncated; v_tp1; advantages A, returns G, advantages B of what another chose, lambda-returns L
    # v_tp1 = 4, 2, 16; delta = 1+2-8, 2+1-4, 4+8-2 = -5, -1, 10
    # A2 = 10; A1 = -1 + 10/4 = 1.5; A0 = -5 + 1.5/4 = -4.625;   G2 = 4+8 = 12; G1 = 2+6 = 8; G0 = 1+4 = 5
    # B_t = rho_t (delta_t + B_t+1 / 4): B2 = 10/2; B1 = -1 + 5/4 = 0.25; B0 = (-5 + 0.25/4) / 2
    # L_t = r + (v_tp1 + L_t+1) / 4: L2 = 4+8; L1 = 2 + (2+12)/4 = 5.5; L0 = 1 + (4+5.5)/4
    "neither": (NONE, NONE, (4, 2, 16), (-4.625, 1.5, 10), (5, 8, 12), (-2.46875, 0.25, 5), (3.375, 5.5, 12)),
    # delta1 = 2-4 = -2 and nothing follows it: A1 = -2; A0 = -5 - 2/4 = -5.5;   G1 = 2; G0 = 1+1 = 2
    # B1 = -2; B0 = (-5 - 2/4) / 2;   L1 = 2; L0 = 1 + (4+2)/4
    "terminated": (SECOND, NONE, (4, 2, 16), (-5.5, -2, 10), (2, 2, 12), (-2.75, -2, 5), (2.5, 2, 12)),
    # delta1 = 2 + 32/2 - 4 = 14: A1 = 14; A0 = -5 + 14/4 = -1.5;   G1 = 2+16 = 18; G0 = 1+9 = 10
    # B1 = 14; B0 = (-5 + 14/4) / 2;   L1 = 2+16; L0 = 1 + (4+18)/4
    "truncated": (NONE, SECOND, (4, 32, 16), (-1.5, 14, 10), (10, 18, 12), (-0.75, 14, 5), (6.5, 18, 12)),
    # delta2 = 4-2 = 2: A1 = -1 + 2/4 = -0.5; A0 = -5 - 0.5/4 = -5.125;   G2 = 4; G1 = 2+2 = 4; G0 = 1+2 = 3
    # B2 = 2/2; B1 = -1 + 1/4; B0 = (-5 - 0.75/4) / 2;   L2 = 4; L1 = 2 + (2+4)/4 = 3.5; L0 = 1 + (4+3.5)/4
    "terminated last": (LAST, NONE, (4, 2, 16), (-5.125, -0.5, 2), (3, 4, 4), (-2.59375, -0.75, 1), (2.875, 3.5, 4)),
    # delta2 = 4+16-2 = 18: A1 = -1 + 18/4 = 3.5; A0 = -5 + 3.5/4 = -4.125;   G2 = 4+16 = 20; G1 = 12; G0 = 7
    # B2 = 18/2; B1 = -1 + 9/4; B0 = (-5 + 1.25/4) / 2;   L2 = 4+16; L1 = 2 + (2+20)/4 = 7.5; L0 = 1 + (4+7.5)/4
    "truncated last": (NONE, LAST, (4, 2, 32), (-4.125, 3.5, 18), (7, 12, 20), (-2.34375, 1.25, 9), (3.875, 7.5, 20)),
    # row 0 cut: A0 = 1+16-8 = 9; row 1 terminated: A1 = -2; A2 = 10;   G0 = 1+16 = 17; G1 = 2; G2 = 12
    # B0 = 9/2; B1 = -2
    "two ends": (SECOND, FIRST, (32, 2, 16), (9, -2, 10), (17, 2, 12), (4.5, -2, 5), (17, 2, 12)),
}
# all side by side, [3, cases]: worlds of different fates must not meet
TABLES = [torch.tensor(column, dtype=torch.float32).T for column in zip(*CASES.values(), strict=True)]
TERMINATED, TRUNCATED = TABLES[0].bool(), TABLES[1].bool()
V_TP1, ADVANTAGE, RETURN, OF_ANOTHER, MIXED = TABLES[2:]
REWARD, VALUE, RATIO = (
    torch.tensor(x)[:, None].repeat(1, len(CASES)) for x in ((1.0, 2, 4), (8.0, 4, 2), (0.5, 2, 0.5))
)
ENDS, GAMMA, LAMBDA = (REWARD, TERMINATED, TRUNCATED), 0.5, 0.5


def test_estimators_by_hand():
    following, cut = torch.full((len(CASES),), 16.0), torch.full((1, len(CASES)), 32.0)
    assert torch.equal(next_values(VALUE, following, cut, TRUNCATED, TRUNCATED.long() * 0), V_TP1)
    assert torch.equal(gae(*ENDS, VALUE, V_TP1, GAMMA, LAMBDA), ADVANTAGE)
    assert torch.equal(reward_to_go(*ENDS, V_TP1, GAMMA), RETURN)
    assert torch.equal(vtrace(*ENDS, VALUE, V_TP1, RATIO, GAMMA, LAMBDA), OF_ANOTHER)
    assert torch.equal(lambda_returns(*ENDS, V_TP1, GAMMA, LAMBDA), MIXED)


def test_next_values_takes_the_slot_of_the_row_and_of_the_world_and_reads_no_other():
    truncated = torch.tensor([[1, 0], [1, 1], [0, 1]], dtype=torch.bool)
    slot = torch.tensor([[1, 0], [0, 0], [1, 1]])
    v_final = torch.tensor([[10.0, 20.0], [11.0, 21.0], [math.nan, math.nan]])
    expected = torch.tensor([[11.0, 0], [10, 20], [5, 21]])
    assert torch.equal(next_values(torch.zeros(3, 2), torch.tensor([5.0, 6.0]), v_final, truncated, slot), expected)
    rubbish = torch.full((3, 2), math.nan)
    assert next_values(torch.ones(3, 2), torch.ones(2), rubbish, truncated & False, slot).eq(1).all()


def random_ratio(like, seed=7):
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(seed)).exp()


def random_rollout(steps=40, n=6, seed=0):
    reward, terminated, truncated = random_tables(steps, n, seed)
    value, v_tp1 = torch.randn(2, steps, n, generator=torch.Generator().manual_seed(seed + 1))
    following = torch.cat([value[1:], v_tp1[-1:]])
    return reward, terminated, truncated, value, torch.where(truncated, v_tp1, following)


@settings(max_examples=30)
@given(st.integers(1, 14), st.integers(1, 3), st.integers(0, 999), st.sampled_from([0.0, 0.8, 1.0]))
def test_estimators_are_the_sums_that_define_them(steps, n, seed, lam):
    """v_s = V_s + sum over t >= s of gamma^(t-s) (product of c_s .. c_t-1) rho_t delta_t, in float64, term by term.

    So nothing flows over an end, and no world into another.
    """
    gamma = 0.9
    reward, terminated, truncated, value, v_tp1 = random_rollout(steps, n, seed)
    ends, ratio = (reward, terminated, truncated), random_ratio(value)
    advantages = gae(*ends, value, v_tp1, gamma, lam), vtrace(*ends, value, v_tp1, ratio, gamma, lam)
    for result, weight in zip(advantages, (torch.ones_like(ratio), ratio.clamp(max=1)), strict=True):
        for s in range(steps):
            for world in range(n):
                total, trace = 0.0, 1.0
                for t in range(s, steps):
                    following = 0.0 if terminated[t, world] else v_tp1[t, world].item()
                    delta = reward[t, world].item() + gamma * following - value[t, world].item()
                    total += gamma ** (t - s) * trace * weight[t, world].item() * delta
                    trace *= lam * weight[t, world].item()
                    if terminated[t, world] or truncated[t, world]:
                        break
                assert result[s, world].item() == pytest.approx(total, abs=1e-5)


def test_from_episode_start_repeats_the_first_row_of_each_episode():
    returns = torch.tensor([[1.0, 10], [2, 20], [3, 30], [4, 40]])
    is_first = torch.tensor([[0, 1], [0, 0], [1, 1], [0, 1]], dtype=torch.bool)
    # world 0 was under way when the rollout began: its first row stands for the start
    assert torch.equal(from_episode_start(returns, is_first), torch.tensor([[1.0, 10], [1, 10], [3, 30], [3, 40]]))


def test_ends_within():
    terminated = torch.tensor([[0, 0, 0, 0], [1, 0, 0, 1], [0, 0, 0, 0]], dtype=torch.bool)
    truncated = torch.tensor([[0, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]], dtype=torch.bool)
    expected = torch.tensor([[1, 1, 0, 1], [1, 1, 0, 1], [0, 1, 0, 0]], dtype=torch.bool)
    assert torch.equal(ends_within(terminated, truncated), expected)


def test_explained_variance():
    target = torch.tensor([[1.0, 2], [3, 4]])
    # an offset is not variance; target - v = .5, 1, 1.5, 2: a quarter of the variance is left
    for value, expected in ((target, 1), (target + 7, 1), (torch.full((2, 2), 9.0), 0), (target / 2, 0.75)):
        assert explained_variance(value, target).item() == pytest.approx(expected)
    assert explained_variance(target, torch.ones(2, 2)).isnan()


def test_standardize():
    # mean 3, variance (4 + 0 + 4 + 0) / 4 = 2
    expected = torch.tensor([-2.0, 0, 2, 0]) / 2**0.5
    torch.testing.assert_close(standardize(torch.tensor([1.0, 3, 5, 3])), expected)
    assert not standardize(torch.full((5,), 4.0)).any() and not standardize(torch.ones(1)).any()


WAYS = {  # how an estimator is called with (reward, terminated, truncated, value, v_tp1)
    "gae": (gae, lambda *x: (*x, 0.99, 0.95)),
    "vtrace": (vtrace, lambda *x: (*x, random_ratio(x[0]), 0.99, 0.95)),
    "reward_to_go": (reward_to_go, lambda *x: (*x[:3], x[4], 0.99)),
    **{f"lambda {lam}": (lambda_returns, lambda *x, lam=lam: (*x[:3], x[4], 0.99, lam)) for lam in (0, 0.3, 0.65, 1)},
    "from_episode_start": (from_episode_start, lambda *x: (x[0], x[2])),
}


@pytest.mark.parametrize("spoiled", [False, True])
@pytest.mark.parametrize("size", [(1, 1), (7, 3), (64, 300)])
@pytest.mark.parametrize(("estimator", "way"), WAYS.values(), ids=WAYS)
def test_kernels_agree_bit_for_bit(estimator, way, size, spoiled):
    """What a GPU runs, compiled for this processor, and torch's own operations on it; NaN and infinity, too."""
    tables = random_rollout(*size, seed=3)
    if spoiled:
        for table, number in zip((tables[0], tables[3], tables[4]), (math.nan, math.inf, -math.inf), strict=True):
            table[torch.rand(size, generator=torch.Generator().manual_seed(4)) < 0.02] = number
    arguments = way(*tables)
    if spoiled and estimator is vtrace:
        arguments[5][0, 0], arguments[5][-1, -1] = math.nan, math.inf
    expected, result = estimator(*arguments), launch(estimator.__name__, *arguments, compile=compile_host)
    assert torch.equal(result.nan_to_num(7.0), expected.nan_to_num(7.0))
    assert torch.equal(result.isnan(), expected.isnan())


# --- losses


def surrogate_of(ratio, advantage):
    return clipped_surrogate(ratio, torch.tensor(advantage), 0.2)


def value_loss_of(value, target, clip=0.5):
    """Where the value was 1 before."""
    return value_loss(value, torch.ones_like(value), torch.tensor(target), clip)


@pytest.mark.parametrize(
    ("function", "numbers", "goals", "loss", "gradient"),
    [
        # ratio, advantage; in range: -r A
        (surrogate_of, [1.1], [2.0], -2.2, [-2.0]),
        (surrogate_of, [0.9], [-2.0], 1.8, [2.0]),
        (surrogate_of, [1.0], [2.0], -2.0, [-2.0]),
        # above 1.2: gains stop at 1.2, losses do not
        (surrogate_of, [1.5], [2.0], -2.4, [0.0]),
        (surrogate_of, [1.5], [-2.0], 3.0, [2.0]),
        # below 0.8: what is bad stops at 0.8, what is good may come back
        (surrogate_of, [0.5], [2.0], -1.0, [-2.0]),
        (surrogate_of, [0.5], [-2.0], 1.6, [0.0]),
        # the mean: -(min(1.5, 1.2) * 1 + min(0.5 * -1, 0.8 * -1)) / 2 = -(1.2 - 0.8) / 2
        (surrogate_of, [1.5, 0.5], [1.0, -1.0], -0.2, [0.0, 0.0]),
        # value, target; without clipping (v - g)^2 and 2 (v - g) / 2
        (lambda *x: value_loss_of(*x, None), [1.0, 4.0], [3.0, 3.0], 2.5, [-2.0, 1.0]),
        (value_loss_of, [1.2], [3.0], 1.8**2, [2 * -1.8]),  # moved little: both alike
        (value_loss_of, [2.0], [3.0], 1.5**2, [0.0]),  # moved 1, only 0.5 is believed: (1.5 - 3)^2, no more pull
        (value_loss_of, [2.0], [0.0], 2.0**2, [2 * 2.0]),  # moved away: the unclipped error is the larger one
        (value_loss_of, [0.0], [-3.0], 3.5**2, [0.0]),  # the same downwards: (0.5 + 3)^2
    ],
)
def test_losses_of_ppo(function, numbers, goals, loss, gradient):
    x = torch.tensor(numbers, requires_grad=True)
    result = function(x, goals)
    result.backward()
    assert result.item() == pytest.approx(loss) and x.grad.tolist() == pytest.approx(gradient)


def test_approximate_kl():
    # (r - 1) - log r at r = 2, 1/2, 1: 1 - log 2, -1/2 + log 2, 0
    log_ratio = torch.tensor([math.log(2), -math.log(2), 0.0])
    assert approximate_kl(log_ratio).item() == pytest.approx(0.5 / 3) and approximate_kl(torch.zeros(5)) == 0
    old, new = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.4, 0.4, 0.2])
    rows = torch.repeat_interleave(torch.arange(3), (old * 10).round().long())  # as frequent as under the old policy
    torch.testing.assert_close(approximate_kl((new / old).log()[rows]), (old * (old / new).log()).sum())


COUNTED = torch.tensor([1.0, 0.0, 1.0, 1.0])


def test_rows_that_do_not_count_change_nothing():
    numbers = torch.tensor([1.0, 100.0, 2.0, 6.0])
    assert masked_mean(numbers, COUNTED).item() == 3
    expected = torch.tensor([-2.0, -1.0, 3.0]) / math.sqrt(14 / 3)  # of 1, 2, 6: mean 3, variance (4 + 1 + 9) / 3
    torch.testing.assert_close(masked_standardize(numbers, COUNTED)[COUNTED.bool()], expected)
    assert masked_standardize(torch.tensor([4.0, 9.0]), torch.tensor([1.0, 0.0]))[0].item() == 0
    log_prob = torch.tensor([-1.0, -5.0, -2.0, -3.0], requires_grad=True)
    loss = policy_gradient(log_prob, torch.tensor([3.0, 1000.0, -1.5, 6.0]), COUNTED)
    loss.backward()
    assert loss.item() == pytest.approx(-(-3 + 3 - 18) / 3)
    assert log_prob.grad.tolist() == pytest.approx([-1.0, 0.0, 0.5, -2.0])  # -w / 3


def test_where_no_row_counts_everything_is_0():
    log_prob, none = torch.tensor([-1.0, -2.0], requires_grad=True), torch.zeros(2)
    weight = masked_standardize(torch.tensor([4.0, 9.0]), none)
    loss = policy_gradient(log_prob, weight, none)
    loss.backward()
    assert weight.isfinite().all() and loss.item() == 0 and not log_prob.grad.any()
    assert masked_mean(torch.tensor([4.0, 9.0]), none).item() == 0
