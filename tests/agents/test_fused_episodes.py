"""Evaluations by the fused engine against the collector's own: the same episodes, errors and bits, and no trace."""

import math

import pytest
import torch
from driven import advance
from fused_cases import REPLAY
from same_as_eager import assert_evaluates_as_eager, assert_same, evaluated, everything, on_fused_cpu

from stride.agents.experience.collector import Collector, episodes_per_world
from stride.agents.experience.finite_guard import NonFiniteError
from stride.agents.sockets import EagerEpisodes
from stride.envs_gym.make import make_envs
from stride.trainer_callbacks.evaluate import Evaluate
from stride.utils.counter_rng import EVALUATE

ROLLOUT = ("n_envs=8", "n_steps=64", "batch_size=256", "n_epochs=1", "normalize_obs=true")
CASES = {
    "ppo": ("CartPole-v1:ppo", *ROLLOUT, "hidden_dims=[24]", "activation=relu"),
    "ppo, gaussian": ("Pendulum-v1:ppo", *ROLLOUT, "max_episode_steps=60"),
    "dqn": ("CartPole-v1:dqn", *REPLAY[:-1], "normalize_obs=true"),
    "sac": ("Pendulum-v1:sac", *REPLAY, "normalize_obs=static"),
    "td3": ("Pendulum-v1:td3", *REPLAY, "hidden_dims=[24]"),
}


def trained(name, *words, iterations=6):
    return advance(on_fused_cpu(*CASES[name], *words), iterations)


def collector(agent, worlds=7, policy=None):
    return Collector(make_envs(agent.config, worlds), policy or agent.policy, 11, EVALUATE, greedy=True)


def played(agent, *limits, **how):
    return evaluated(agent, agent.engine.episodes, *limits, **how)


def unused(*arguments):
    raise AssertionError("the collector itself was asked")


@pytest.mark.parametrize("limits", [(0, None, 3), (2, None, 5), (9, 12, 4), (40, 33, 7), (5, 0, 2)])
def test_limits_and_shares_are_those_of_the_collector(limits):
    assert_evaluates_as_eager(trained("ppo"), *limits)


def test_a_world_that_has_had_its_episodes_is_not_stepped_again():
    agent = trained("ppo")
    mine = collector(agent)
    agent.engine.episodes.play(agent, mine, 17, None)
    assert mine.envs.episodes.tolist() == episodes_per_world(17, 7) == [3, 3, 3, 2, 2, 2, 2]
    assert not mine.envs.ages.any()


@pytest.mark.parametrize("greedy", [True, False], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", CASES)
def test_one_and_two_threads_are_equal_to_the_last_bit(name, greedy):
    one, two = (trained(name, f"threads={n}") for n in (1, 2))
    assert two.engine.learn.bound.workers.threads == 2
    results = [played(agent, 45, 300, 20, greedy) for agent in (one, two)]
    assert results[0] == results[1] and len(results[0].returns) >= 20


@pytest.mark.parametrize("name", CASES)
def test_training_cannot_tell_that_it_was_evaluated(name):
    watched, alone = trained(name), trained(name)
    for _ in range(3):
        played(watched, 9, 40), played(watched, 9, 40, greedy=False)
        advance(watched, 2), advance(alone, 2)
    assert_same(everything(watched), everything(alone))


def test_the_weights_are_those_of_now():
    agent = trained("ppo")
    before = played(agent, 12)
    assert played(agent, 12) == before
    with torch.no_grad():
        agent.policy.head.linear.weight.neg_()
    assert_evaluates_as_eager(agent, 12)
    assert played(agent, 12) != before


def test_another_policys_episodes_are_its_own():
    agent, other = trained("ppo"), trained("ppo", iterations=1)
    mine = collector(agent, policy=other.policy)
    assert agent.engine.episodes.play(agent, mine, 9, 100) == played(other, 9)


SPOILED = {
    "a world": lambda collector: collector.envs.state[:, 5].fill(math.nan),
    "an observation": lambda collector: collector.obs[3].fill_(math.inf),
    "a return": lambda collector: collector.envs.returns[2:3].fill(math.inf),
}


@pytest.mark.parametrize("spoil", SPOILED)
@pytest.mark.parametrize("name", ["ppo", "ppo, gaussian", "sac"])
def test_what_is_not_finite_is_located_as_the_collector_does(name, spoil):
    agent, errors = trained(name), []
    for player in (agent.engine.episodes, EagerEpisodes()):
        mine = collector(agent)
        SPOILED[spoil](mine)
        with pytest.raises(NonFiniteError) as error:
            player.play(agent, mine, 17, None)
        errors.append((str(error.value), error.value.world, error.value.step, error.value.episode))
    assert errors[0] == errors[1] and f"of environment {errors[0][1]} at step" in errors[0][0]


def test_worlds_that_do_not_count_may_be_anything():
    agent = trained("ppo")
    mine = collector(agent)
    mine.envs.state[:, 5], mine.obs[6] = math.nan, math.nan
    assert len(agent.engine.episodes.play(agent, mine, 5, None).returns) == 5


def test_an_evaluation_is_the_engines_and_its_seconds_are_counted(monkeypatch):
    agent = trained("ppo", "eval_episodes=9")
    plain, fused = (Evaluate(agent.config, lambda n: make_envs(agent.config, n)) for _ in range(2))
    fused.setup(None, agent, "fit")
    exact = plain.test(agent.policy)
    assert agent.seconds["evaluate"] == 0.0
    monkeypatch.setattr(Collector, "play", unused)
    assert fused.test(agent.policy) == exact
    assert agent.seconds["evaluate"] > 0.0
