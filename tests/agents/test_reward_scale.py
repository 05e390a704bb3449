"""Rewards over the deviation of the discounted return, against NumPy over every world and step so far."""

import io

import numpy as np
import pytest
import torch

from stride.agents.experience.reward_scale import RewardScale

T, N, GAMMA = 16, 3, 0.9


def rollouts(count, seed=0, scale=5.0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        yield torch.randn(T, N, generator=generator) * scale + 1, torch.rand(T, N, generator=generator) < 0.2


def test_off_means_untouched():
    scaler = RewardScale(False, GAMMA, torch.zeros(N))
    for reward, ended in rollouts(2):
        assert scaler(reward, ended) is reward
    assert not scaler.moments.any() and not scaler.running.any()


def test_the_deviation_is_that_of_all_returns_so_far():
    scaler = RewardScale(True, GAMMA, torch.zeros(N))
    running, returns = np.zeros(N), []
    for reward, ended in rollouts(5):
        for t in range(T):
            running = reward[t].double().numpy() + GAMMA * running
            returns.append(running.copy())
            running[ended[t].numpy()] = 0  # a new episode starts at nothing
        expected = (reward.double() / np.std(returns)).clamp(-10, 10)
        scaled = scaler(reward, ended)
        assert scaled.dtype == torch.float32
        torch.testing.assert_close(scaled.double(), expected, rtol=1e-5, atol=1e-6)


def test_the_raw_reward_is_left_alone():
    scaler = RewardScale(True, GAMMA, torch.zeros(N))
    reward, ended = next(rollouts(1))
    before = reward.clone()
    scaler(reward, ended)
    assert torch.equal(reward, before)


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


def test_state_round_trip():
    old, new = (RewardScale(True, GAMMA, torch.zeros(N)) for _ in range(2))
    data = list(rollouts(4))
    for rollout in data[:2]:
        old(*rollout)
    file = io.BytesIO()
    torch.save(old.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    kept = old.state_dict()
    new.load_state_dict(state)
    for rollout in data[2:]:
        assert torch.equal(old(*rollout), new(*rollout))
    assert torch.equal(kept["moments"], state["moments"]), "a state does not follow its owner"
