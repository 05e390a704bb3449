"""Rewards over the deviation of the discounted return, against NumPy over every world and step so far."""

import numpy as np
import pytest
import torch
from replay_log import same, through_file

from stride.agents.experience.reward_scale import RewardScale

T, N, GAMMA = 16, 3, 0.9


def rollouts(count):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        yield torch.randn(T, N, generator=generator) * 5 + 1, torch.rand(T, N, generator=generator) < 0.2


def test_off_means_untouched():
    scaler = RewardScale(False, GAMMA, torch.zeros(N))
    assert all(scaler(reward, ended) is reward for reward, ended in rollouts(2))
    assert not scaler.moments.any() and not scaler.running.any()


def test_the_deviation_is_that_of_all_returns_so_far_also_after_a_resumption():
    scaler = RewardScale(True, GAMMA, torch.zeros(N))
    running, returns = np.zeros(N), []
    for reward, ended in rollouts(5):
        for t in range(T):
            running = reward[t].double().numpy() + GAMMA * running
            returns.append(running.copy())
            running[ended[t].numpy()] = 0  # a new episode starts at nothing
        expected = (reward.double() / np.std(returns)).clamp(-10, 10)
        before, state = reward.clone(), scaler.state_dict()
        saved, restored = through_file(state), RewardScale(True, GAMMA, torch.zeros(N))
        restored.load_state_dict(saved)
        scaled = scaler(reward, ended)
        assert scaled.dtype == torch.float32 and torch.equal(reward, before), "the raw reward is left alone"
        torch.testing.assert_close(scaled.double(), expected, rtol=1e-5, atol=1e-6)
        assert same(state, saved), "it does not follow its owner"
        assert torch.equal(restored(reward, ended), scaled)


def test_what_stands_out_is_clipped():
    scaler = RewardScale(True, 0.0, torch.zeros(1))
    reward = torch.zeros(1000, 1)
    reward[10], reward[20] = 1.0, -1.0
    scaled = scaler(reward, torch.zeros(1000, 1, dtype=torch.bool))  # deviation 0.045, so +-22
    assert scaled.unique().tolist() == [-10, 0, 10]


@pytest.mark.parametrize("value", [0.0, 1.0, -200.3, 12345.678, 1e6 / 3])
def test_constant_rewards_stay_finite(value):
    """Episodes of one step that always pay the same: there is no deviation to divide by."""
    scaler = RewardScale(True, GAMMA, torch.zeros(N))
    for _ in range(50):
        scaled = scaler(torch.full((T, N), value), torch.ones(T, N, dtype=torch.bool))
        assert scaled.isfinite().all()
        assert not (scaled * value < 0).any(), "and keep their sign"
