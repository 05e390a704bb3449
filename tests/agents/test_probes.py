"""Worlds whose values and best actions are known: what is wrong with an algorithm shows here, each in seconds."""

import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from probe_envs import (
    ChosenReward,
    ConstantReward,
    DelayedReward,
    Endless,
    MatchedReward,
    PixelCatch,
    Probe,
    SeenReward,
)
from worlds import Scripted, driven, random_tables, weights

from stride.agents.ppo import PPO
from stride.agents.reinforce import REINFORCE
from stride.config.schema import PPOConfig, REINFORCEConfig


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """These networks are too small to share."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


GAMMA = 0.9
COMMON = {"n_envs": 8, "n_steps": 16, "gamma": GAMMA, "hidden_dims": (32,), "max_timesteps": 10**6}


def ppo(world, longer=1, **options):
    rate, iterations = (3e-3, 50) if "share_trunk" in options else (1e-2, 15)  # policy and value pull at one trunk
    options = {"policy_lr": rate, **options}
    return PPO(PPOConfig(**COMMON, **options), world(8)), longer * iterations


def lagging(world, longer=1, **options):
    agent, iterations = ppo(world, longer, lag=1, **options)
    return agent, iterations * 5 // 4  # what was chosen otherwise pulls less


def reinforce(world, longer=1, **options):
    options = {"policy_lr": 3e-2, "normalize_returns": "off", **options}
    return REINFORCE(REINFORCEConfig(**COMMON, **options), world(8)), longer * 60


def with_critic(world, longer=1, **options):
    return reinforce(world, longer + 1, policy_targets="advantages", **options)


def trained(made):
    return driven(*made)


def values(agent, *seen):
    obs = torch.tensor(seen, dtype=torch.float32)[:, None]
    with torch.no_grad():
        return agent.policy.value(obs, (), torch.ones(len(seen), dtype=torch.bool)).tolist()


def chance_of_1(agent, *seen):
    obs = torch.tensor(seen, dtype=torch.float32)[:, None]
    policy = agent.policy
    with torch.no_grad():
        return policy.actor(policy.trunk(policy.encoder(obs))).exp()[:, 1].tolist()


CRITICS = pytest.mark.parametrize("algorithm", [ppo, lagging, with_critic])
ACTORS = pytest.mark.parametrize(
    "algorithm", [ppo, pytest.param(lagging, marks=pytest.mark.slow), reinforce, with_critic]
)


@CRITICS
def test_constant_reward(algorithm):
    assert values(trained(algorithm(ConstantReward)), 0) == pytest.approx([1], abs=0.05)


@CRITICS
@pytest.mark.parametrize(
    "options", [{}, {"share_trunk": True, "normalize_obs": "rolling"}], ids=["plain", "shared, normalized"]
)
def test_seen_reward(algorithm, options):
    assert values(trained(algorithm(SeenReward, **options)), 1, -1) == pytest.approx([1, -1], abs=0.05)


@CRITICS
def test_delayed_reward(algorithm):
    assert values(trained(algorithm(DelayedReward)), 0, 1) == pytest.approx([GAMMA, 1], abs=0.05)


@CRITICS
def test_endless(algorithm):
    """The limit cuts, it does not end: V = 1 + gamma V. As an end it would be 1 + gamma + gamma^2 = 2.71 at most."""
    assert values(trained(algorithm(Endless, longer=2)), 0) == pytest.approx([1 / (1 - GAMMA)], abs=0.05)


@ACTORS
def test_chosen_reward(algorithm):
    agent = trained(algorithm(ChosenReward))
    assert chance_of_1(agent, 0)[0] > 0.95
    assert agent.collector.window.summary()["ep_rew/mean"] > 0.8


@ACTORS
@pytest.mark.parametrize(
    "options", [{}, {"share_trunk": True, "normalize_obs": "rolling"}], ids=["plain", "shared, normalized"]
)
def test_matched_reward(algorithm, options):
    matched, other = chance_of_1(trained(algorithm(MatchedReward, **options)), 1, -1)
    assert matched > 0.95 and other < 0.05


@pytest.mark.parametrize("returns_type", ["mc:rtg", "mc:episode"])
@pytest.mark.parametrize("normalize_returns", ["batch", "rollout"])
def test_reinforce_learns_with_every_kind_of_return(returns_type, normalize_returns):
    made = reinforce(ChosenReward, returns_type=returns_type, normalize_returns=normalize_returns)
    assert chance_of_1(trained(made), 0)[0] > 0.95


@pytest.mark.parametrize("normalize_advantages", ["rollout", "off"])
def test_ppo_learns_with_every_kind_of_advantage(normalize_advantages):
    made = ppo(ChosenReward, normalize_advantages=normalize_advantages, clip_range_vf=0.2)
    assert chance_of_1(trained(made), 0)[0] > 0.95


class Aimed(Probe):
    """One step, -(a - 0.5)^2 for a real action: aim at 0.5."""

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.action_space = Box(-1, 1, (1,))

    def reward(self, action):
        return -(action[:, 0] - 0.5).square()


class Paired(Probe):
    """One step, half a point for each of two choices: the last of 2 and the middle of 3."""

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.action_space = MultiDiscrete([2, 3])

    def reward(self, action):
        return 0.5 * ((action[:, 0] == 1).float() + (action[:, 1] == 1).float())


def answer(agent):
    policy = agent.policy
    with torch.no_grad():
        return policy.act(
            torch.zeros(1, 1), (), torch.ones(1, dtype=torch.bool), torch.zeros(1, policy.draws), True
        ).action[0]


@ACTORS
def test_continuous_action(algorithm):
    agent = trained(algorithm(Aimed, policy_kwargs={"log_std_init": -1.0}))
    assert answer(agent).item() == pytest.approx(0.5, abs=0.1)


@ACTORS
def test_several_choices_at_once(algorithm):
    agent = trained(algorithm(Paired))
    assert answer(agent).tolist() == [1, 1]
    assert agent.collector.window.summary()["ep_rew/mean"] > 0.8


@pytest.mark.parametrize("kind", [ppo, lagging, reinforce, with_critic])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize(
    "space", [Discrete(3), MultiDiscrete([2, 3]), Box(-1, 1, (2,))], ids=["one", "several", "real"]
)
@pytest.mark.parametrize(
    "options", [{}, {"normalize_obs": "rolling", "normalize_reward": True}], ids=["raw", "normalized"]
)
def test_every_kind_of_observation_and_action_runs(kind, named, space, options):
    agent, _ = kind(lambda n: Scripted(*random_tables(50, n, 0), action_space=space, named=named), **options)
    before = weights(agent.policy)
    driven(agent, 2)
    assert agent.progress["iterations"] == 2 and agent.progress["env_steps"] == 256
    assert agent.progress["updates"] == (32 if kind in (ppo, lagging) else 2)
    assert not torch.equal(before, weights(agent.policy)) and weights(agent.policy).isfinite().all()
    row = agent.metrics.flush()
    assert "train/loss/policy" in row and all(torch.tensor(list(row.values())).isfinite())


def test_reinforce_learns_nothing_from_a_rollout_without_an_end():
    never = torch.zeros(16, 8, dtype=torch.bool)
    agent, _ = reinforce(lambda n: Scripted(torch.ones(16, n), never, never))
    before = weights(agent.policy)
    driven(agent, 2)
    assert torch.equal(before, weights(agent.policy)) and not agent.broken
    assert all(torch.tensor(list(agent.metrics.flush().values())).isfinite())


@pytest.mark.parametrize(("strive", "paid"), [(1, 1.0), (0, -1.0)])
def test_the_paddle_catches_what_it_follows(strive, paid):
    """From what is seen alone, wherever the dot begins; who stays never has it here."""
    world, begun = PixelCatch(), set()
    for seed in range(30):
        picture, _ = world.reset(seed=seed)
        assert picture.shape == (1, 16, 16) and (picture == 255).sum() == 8
        dot, paddle = picture[0, 0, ::2].argmax(), picture[0, -1, ::2].argmax()
        if not strive and dot == paddle:
            continue
        begun.add(int(dot))
        for step in range(7):
            picture, reward, ended, cut, _ = world.step(1 + strive * int((dot > paddle) - int(dot < paddle)))
            paddle = picture[0, -1, ::2].argmax() if step < 6 else paddle
            assert ended == (step == 6) and not cut and (ended or reward == 0)
        assert reward == paid and (picture == 255).sum() == (4 if strive else 8)
    assert len(begun) >= 7
