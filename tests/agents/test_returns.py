"""Return estimators against arithmetic done by hand; gamma and lambda of 0.5 keep every number exact."""

import math

import pytest
import torch
from host_kernels import compile_host
from worlds import random_tables

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

GAMMA = LAMBDA = 0.5


def column(*values):
    return torch.tensor(values, dtype=torch.float32)[:, None]


def flags(*values):
    return torch.tensor(values, dtype=torch.bool)[:, None]


NEVER = flags(0, 0, 0)
# one world, three rows: r = 1, 2, 4; v = 8, 4, 2; V after the last row 16; V of what was cut 32
REWARD, VALUE, NEXT, CUT = column(1, 2, 4), column(8, 4, 2), torch.tensor([16.0]), torch.tensor([[32.0]])
# name: terminated, truncated, v_tp1, advantages, returns
CASES = {
    # v_tp1 = 4, 2, 16; delta = 1+2-8, 2+1-4, 4+8-2 = -5, -1, 10
    # A2 = 10; A1 = -1 + 10/4 = 1.5; A0 = -5 + 1.5/4 = -4.625;   G2 = 4+8 = 12; G1 = 2+6 = 8; G0 = 1+4 = 5
    "neither": (NEVER, NEVER, (4, 2, 16), (-4.625, 1.5, 10), (5, 8, 12)),
    # delta1 = 2-4 = -2 and nothing follows it: A1 = -2; A0 = -5 - 2/4 = -5.5;   G1 = 2; G0 = 1+1 = 2
    "terminated": (flags(0, 1, 0), NEVER, (4, 2, 16), (-5.5, -2, 10), (2, 2, 12)),
    # delta1 = 2 + 32/2 - 4 = 14: A1 = 14; A0 = -5 + 14/4 = -1.5;   G1 = 2+16 = 18; G0 = 1+9 = 10
    "truncated": (NEVER, flags(0, 1, 0), (4, 32, 16), (-1.5, 14, 10), (10, 18, 12)),
    # delta2 = 4-2 = 2: A1 = -1 + 2/4 = -0.5; A0 = -5 - 0.5/4 = -5.125;   G2 = 4; G1 = 2+2 = 4; G0 = 1+2 = 3
    "terminated in the last row": (flags(0, 0, 1), NEVER, (4, 2, 16), (-5.125, -0.5, 2), (3, 4, 4)),
    # delta2 = 4+16-2 = 18: A1 = -1 + 18/4 = 3.5; A0 = -5 + 3.5/4 = -4.125;   G2 = 4+16 = 20; G1 = 12; G0 = 7
    "truncated in the last row": (NEVER, flags(0, 0, 1), (4, 2, 32), (-4.125, 3.5, 18), (7, 12, 20)),
    # row 0 cut: A0 = 1+16-8 = 9; row 1 terminated: A1 = -2; A2 = 10;   G0 = 1+16 = 17; G1 = 2; G2 = 12
    "two ends": (flags(0, 1, 0), flags(1, 0, 0), (32, 2, 16), (9, -2, 10), (17, 2, 12)),
}
NAMES = [*CASES, "all at once"]


def case(name):
    """One case as [3, 1], or all side by side as [3, cases]: worlds of different fates must not meet."""
    chosen = list(CASES.values()) if name == "all at once" else [CASES[name]]
    terminated, truncated, *numbers = zip(*chosen, strict=True)
    v_tp1, advantage, returns = (torch.cat([column(*x) for x in xs], 1) for xs in numbers)
    n = len(chosen)
    wide = REWARD.repeat(1, n), torch.cat(terminated, 1), torch.cat(truncated, 1), VALUE.repeat(1, n)
    return (*wide, v_tp1, advantage, returns)


@pytest.mark.parametrize("name", NAMES)
def test_next_values(name):
    _, _, truncated, value, v_tp1, _, _ = case(name)
    n = value.shape[1]
    slot = torch.zeros_like(truncated, dtype=torch.long)
    assert torch.equal(next_values(value, NEXT.repeat(n), CUT.repeat(1, n), truncated, slot), v_tp1)


def test_next_values_takes_the_slot_of_the_row_and_of_the_world():
    value = torch.zeros(3, 2)
    truncated = torch.tensor([[1, 0], [1, 1], [0, 1]], dtype=torch.bool)
    slot = torch.tensor([[1, 0], [0, 0], [1, 1]])
    v_final = torch.tensor([[10.0, 20.0], [11.0, 21.0]])
    expected = torch.tensor([[11.0, 0], [10, 20], [5, 21]])
    assert torch.equal(next_values(value, torch.tensor([5.0, 6.0]), v_final, truncated, slot), expected)


def test_next_values_never_reads_what_no_row_points_to():
    value, rubbish = torch.ones(2, 1), torch.full((3, 1), float("nan"))
    result = next_values(value, torch.ones(1), rubbish, flags(0, 0), torch.zeros(2, 1, dtype=torch.long))
    assert torch.equal(result, torch.ones(2, 1))


@pytest.mark.parametrize("name", NAMES)
def test_gae(name):
    reward, terminated, truncated, value, v_tp1, advantage, _ = case(name)
    assert torch.equal(gae(reward, terminated, truncated, value, v_tp1, GAMMA, LAMBDA), advantage)


@pytest.mark.parametrize("name", NAMES)
def test_reward_to_go(name):
    reward, terminated, truncated, _, v_tp1, _, returns = case(name)
    assert torch.equal(reward_to_go(reward, terminated, truncated, v_tp1, GAMMA), returns)


# who chose liked the actions of rows 0 and 2 twice as much, that of row 1 half as much: rho = 1/2, 1, 1/2
RATIO = column(0.5, 2, 0.5)
# the deltas are those above, A_t = rho_t (delta_t + A_t+1 / 4)
CHOSEN_BY_ANOTHER = {
    # A2 = 10/2; A1 = -1 + 5/4 = 0.25; A0 = (-5 + 0.25/4) / 2
    "neither": (-2.46875, 0.25, 5),
    # A1 = -2; A0 = (-5 - 2/4) / 2
    "terminated": (-2.75, -2, 5),
    # A1 = 14; A0 = (-5 + 14/4) / 2
    "truncated": (-0.75, 14, 5),
    # A2 = 2/2; A1 = -1 + 1/4; A0 = (-5 - 0.75/4) / 2
    "terminated in the last row": (-2.59375, -0.75, 1),
    # A2 = 18/2; A1 = -1 + 9/4; A0 = (-5 + 1.25/4) / 2
    "truncated in the last row": (-2.34375, 1.25, 9),
    # A0 = 9/2; A1 = -2
    "two ends": (4.5, -2, 5),
}


@pytest.mark.parametrize("name", NAMES)
def test_vtrace(name):
    reward, terminated, truncated, value, v_tp1, _, _ = case(name)
    chosen = CHOSEN_BY_ANOTHER.values() if name == "all at once" else [CHOSEN_BY_ANOTHER[name]]
    ratio, expected = RATIO.repeat(1, len(chosen)), torch.cat([column(*each) for each in chosen], 1)
    assert torch.equal(vtrace(reward, terminated, truncated, value, v_tp1, ratio, GAMMA, LAMBDA), expected)


def random_ratio(like, seed=7):
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(seed)).exp()


def random_rollout(steps=40, n=6, seed=0):
    reward, terminated, truncated = random_tables(steps, n, seed)
    value, v_tp1 = torch.randn(2, steps, n, generator=torch.Generator().manual_seed(seed + 1))
    following = torch.cat([value[1:], v_tp1[-1:]])
    return reward, terminated, truncated, value, torch.where(truncated, v_tp1, following)


def test_gae_with_lambda_1_is_the_return_less_the_value():
    reward, terminated, truncated, value, v_tp1 = random_rollout()
    returns = reward_to_go(reward, terminated, truncated, v_tp1, 0.9)
    torch.testing.assert_close(gae(reward, terminated, truncated, value, v_tp1, 0.9, 1.0), returns - value)


def test_gae_with_lambda_0_is_the_one_step_error():
    reward, terminated, truncated, value, v_tp1 = random_rollout()
    expected = reward + 0.9 * torch.where(terminated, 0.0, v_tp1) - value
    torch.testing.assert_close(gae(reward, terminated, truncated, value, v_tp1, 0.9, 0.0), expected)


@pytest.mark.parametrize("lam", [0.0, 0.95, 1.0])
def test_vtrace_of_ones_own_actions_is_gae_to_the_bit(lam):
    *ends, value, v_tp1 = random_rollout()
    found = vtrace(*ends, value, v_tp1, torch.ones_like(value), 0.9, lam)
    assert torch.equal(found, gae(*ends, value, v_tp1, 0.9, lam))
    assert not torch.equal(found, vtrace(*ends, value, v_tp1, random_ratio(value), 0.9, lam))


def test_vtrace_is_the_sum_that_defines_it():
    """v_s = V_s + sum over t >= s of gamma^(t-s) (product of c_s .. c_t-1) rho_t delta_t, in float64, term by term."""
    reward, terminated, truncated, value, v_tp1 = random_rollout(12, 5)
    ratio, gamma, lam = random_ratio(value), 0.9, 0.8
    found = value + vtrace(reward, terminated, truncated, value, v_tp1, ratio, gamma, lam)
    for s in range(12):
        for world in range(5):
            target, trace = value[s, world].item(), 1.0
            for t in range(s, 12):
                rho = min(1.0, ratio[t, world].item())
                following = 0.0 if terminated[t, world] else v_tp1[t, world].item()
                delta = reward[t, world].item() + gamma * following - value[t, world].item()
                target += gamma ** (t - s) * trace * rho * delta
                trace *= lam * min(1.0, ratio[t, world].item())
                if terminated[t, world] or truncated[t, world]:
                    break
            assert found[s, world].item() == pytest.approx(target, abs=1e-5)


@pytest.mark.parametrize("kind", ["terminated", "truncated"])
def test_nothing_flows_over_an_end(kind):
    reward, _, _, value, v_tp1 = random_rollout(8, 3)
    ended = torch.zeros(8, 3, dtype=torch.bool)
    ended[4] = True
    never = torch.zeros_like(ended)
    terminated, truncated = (ended, never) if kind == "terminated" else (never, ended)

    def each(reward, value, v_tp1):
        advantage = gae(reward, terminated, truncated, value, v_tp1, 0.9, 0.8)
        others = vtrace(reward, terminated, truncated, value, v_tp1, random_ratio(value), 0.9, 0.8)
        return advantage, others, reward_to_go(reward, terminated, truncated, v_tp1, 0.9)

    other = [x.clone() for x in (reward, value, v_tp1)]
    for x in other:
        x[5:] += 100
    if kind == "terminated":
        other[2][4] += 100  # the value of the next episode's first observation
    for before, after in zip(each(reward, value, v_tp1), each(*other), strict=True):
        assert torch.equal(before[:5], after[:5])
        assert not torch.isclose(before[5:], after[5:]).any()


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
    assert explained_variance(target, target) == 1
    assert explained_variance(target + 7, target) == 1  # an offset is not variance
    assert explained_variance(torch.full((2, 2), 9.0), target) == 0
    # target - v = .5, 1, 1.5, 2: a quarter of the variance is left
    torch.testing.assert_close(explained_variance(target / 2, target), torch.tensor(0.75))
    assert explained_variance(target, torch.ones(2, 2)).isnan()


def test_standardize():
    # mean 3, variance (4 + 0 + 4 + 0) / 4 = 2
    expected = torch.tensor([-2.0, 0, 2, 0]) / 2**0.5
    torch.testing.assert_close(standardize(torch.tensor([1.0, 3, 5, 3])), expected)
    assert torch.equal(standardize(torch.full((5,), 4.0)), torch.zeros(5))
    assert torch.equal(standardize(torch.ones(1)), torch.zeros(1))


WAYS = {
    gae: lambda reward, terminated, truncated, value, v_tp1: (reward, terminated, truncated, value, v_tp1, 0.99, 0.95),
    vtrace: lambda reward, terminated, truncated, value, v_tp1: (
        reward, terminated, truncated, value, v_tp1, random_ratio(value), 0.99, 0.95,
    ),
    reward_to_go: lambda reward, terminated, truncated, value, v_tp1: (reward, terminated, truncated, v_tp1, 0.99),
    lambda_returns: lambda reward, terminated, truncated, value, v_tp1: (
        reward, terminated, truncated, v_tp1, 0.99, 0.65,
    ),
    from_episode_start: lambda reward, terminated, truncated, value, v_tp1: (reward, truncated),
}  # fmt: skip


@pytest.mark.parametrize("spoiled", [False, True])
@pytest.mark.parametrize("size", [(1, 1), (7, 3), (64, 300)])
@pytest.mark.parametrize("estimator", WAYS)
def test_kernels_agree_bit_for_bit(estimator, size, spoiled):
    """What a GPU runs, compiled for this processor, and torch's own operations on it; NaN and infinity, too."""
    tables = random_rollout(*size, seed=3)
    if spoiled:
        for table, number in zip((tables[0], tables[3], tables[4]), (math.nan, math.inf, -math.inf), strict=True):
            table[torch.rand(size, generator=torch.Generator().manual_seed(4)) < 0.02] = number
    arguments = WAYS[estimator](*tables)
    if spoiled and estimator is vtrace:
        arguments[5][0, 0], arguments[5][-1, -1] = math.nan, math.inf
    expected, found = estimator(*arguments), launch(estimator.__name__, *arguments, compile=compile_host)
    assert torch.equal(found.nan_to_num(7.0), expected.nan_to_num(7.0)) and torch.equal(found.isnan(), expected.isnan())


@pytest.mark.parametrize("lam", [0.0, 0.3, 0.5, 1.0])
def test_a_kernel_weighs_as_torch_does(lam):
    reward, terminated, truncated, _, v_tp1 = random_rollout(30, 50)
    arguments = (reward, terminated, truncated, v_tp1, 0.9, lam)
    assert torch.equal(launch("lambda_returns", *arguments, compile=compile_host), lambda_returns(*arguments))
