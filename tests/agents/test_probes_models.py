"""Dreamer and PlaNet on worlds whose values and best actions are known: what is wrong with a model shows here."""

import pytest
import torch
from gymnasium.spaces import Box
from probe_envs import (
    ChosenReward,
    ConstantReward,
    DelayedReward,
    Endless,
    MatchedReward,
    Probe,
    RememberedReward,
    SeenReward,
)
from worlds import driven

from stride.agents.dreamer import Dreamer
from stride.agents.experience.collector import Collector
from stride.agents.planet import PlaNet
from stride.config.schema import DreamerConfig, PlaNetConfig

GAMMA = 0.9
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """These networks are too small to share."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


COMMON = dict(
    n_envs=8, deter=32, width=32, stoch=4, classes=4, bins=41, batch_size=8, batch_length=16, horizon=5,
    learning_starts=128, policy_lr=2e-3, lr_warmup=20, max_timesteps=10**6, buffer_size=8000, train_ratio=32,
)  # fmt: skip
# an update takes as long as its steps one after the other are many, and more updates for a step need fewer steps
SHORT = {"batch_size": 16, "batch_length": 6, "horizon": 3, "train_ratio": 64}
SHORTEST = {"batch_size": 32, "batch_length": 3, "train_ratio": 64}


class Aimed(Probe):
    """One step, -(a - 0.5)^2 for a real action: aim at 0.5."""

    def __init__(self, num_envs):
        super().__init__(num_envs)
        self.action_space = Box(-1, 1, (1,))

    def reward(self, action):
        return -(action[:, 0] - 0.5).square()


def dreamer(world, updates, **options):
    config = DreamerConfig(**{**COMMON, "gamma": GAMMA, "algo_id": "dreamer", "imagined_starts": 64, **options})
    return trained(Dreamer(config, world(config.n_envs)), updates)


def planet(world, updates, **options):
    config = PlaNetConfig(**{**COMMON, "algo_id": "planet", **options})
    return trained(PlaNet(config, world(config.n_envs)), updates)


def trained(agent, updates):
    driven(agent)
    while agent.progress["updates"] < updates:
        agent.training_step(iter([0]))
    return agent


def opinions(agent, *seen):
    """Of episodes that begin with these observations."""
    first = torch.ones(len(seen), dtype=torch.bool)
    obs = torch.tensor(seen, dtype=torch.float32)[:, None]
    return agent.policy.explain(obs, agent.policy.initial(len(seen)), first)


def mean_return(agent, world):
    return sum(Collector(world(16), agent.policy, 3, greedy=True).play(64).returns) / 64


@pytest.mark.soak
def test_constant_reward():
    assert opinions(dreamer(ConstantReward, 300), 0).value.tolist() == pytest.approx([1], abs=0.1)


@pytest.mark.soak
def test_seen_reward():
    """What was seen at the end is worth its reward; before it nothing tells which one it will be."""
    agent = dreamer(SeenReward, 400)
    assert opinions(agent, 1, -1).value.tolist() == pytest.approx([1, -1], abs=0.2)


@pytest.mark.parametrize("gamma", [0.9, pytest.param(1.0, marks=pytest.mark.soak)])
def test_delayed_reward(gamma):
    agent = dreamer(DelayedReward, 500, gamma=gamma)
    assert opinions(agent, 0).value.tolist() == pytest.approx([gamma], abs=0.1)


def test_endless():
    """The limit cuts, it does not end: V = 1 + gamma V. As an end it would be 2.19 at most."""
    agent = dreamer(Endless, 350, gamma=0.7, **SHORT)
    assert opinions(agent, 0).value.item() == pytest.approx(1 / 0.3, abs=0.5)


@pytest.mark.parametrize("made", [dreamer, planet])
def test_chosen_and_matched_reward(made):
    assert mean_return(made(ChosenReward, 300), ChosenReward) == 1
    assert mean_return(made(MatchedReward, 500), MatchedReward) == 1


@pytest.mark.parametrize("made", [dreamer, planet])
def test_continuous_action(made):
    """That more is better is soon learnt, and that too much is worse takes three times as long: until then it is 1."""
    others = {"horizon": 2} if made is dreamer else {"horizon": 1, "epsilon": 0.5}
    agent = made(Aimed, 600 if made is dreamer else 800, **SHORTEST, **others)
    collector = Collector(Aimed(16), agent.policy, 3, greedy=True)
    obs, first = torch.zeros(16, 1), torch.ones(16, dtype=torch.bool)
    (noise,) = collector.noise(1)
    action = agent.policy.act(obs, agent.policy.initial(16), first, noise, True).action
    assert action.mean().item() == pytest.approx(0.5, abs=0.2)


@pytest.mark.soak
def test_what_was_seen_before_decides():
    """A coin is less than a nat: where one is free nothing pulls it through the steps between, and it takes 3,000.

    When it is found rests on the last bits, which are a processor's: two of the first three seeds find it by then.
    """

    def found(seed):
        agent = dreamer(RememberedReward, 1400, train_ratio=64, free_nats=0.0, seed=seed)
        return mean_return(agent, RememberedReward) > 0.9

    assert any(found(seed) for seed in (1, 2, 3))


def test_one_episode_is_learnt_by_heart():
    """Rewards, observations and its end of an episode that is always the same: what is told is what was there."""

    class Always(Probe):
        length = 6

        def observe(self):
            return (self.age * 2.1).sin()

        def reward(self, action):
            return self.age - 2

    agent = dreamer(Always, 350, free_nats=0.0)
    batch = agent.memory.sequences(8, 16)
    model, policy = agent.policy.model, agent.policy
    u = torch.full((16, 8, 4), 0.5)
    begins = batch.is_first.clone()
    begins[0] = True
    with torch.no_grad():
        states, _ = model.rssm.observe(
            model.senses(model.senses.look(batch.obs)), policy.actions(batch.action), begins, u
        )
        reward, goes_on = model.expect(states.features)
        seen, told = model.senses.look(batch.obs).vector, model.senses.decode(states.features).vector
    known = batch.is_first.cumsum(0) > 0  # a stretch cut out of an episode cannot know where it begins
    assert known.any() and batch.terminated[known].any()
    assert (told - seen)[known].abs().max() < 0.15
    assert (reward - batch.reward)[known].abs().max() < 0.4
    assert (goes_on - (~batch.terminated).float())[known].abs().max() < 0.1
