"""Evaluations by the fused engine against the collector's own: the same episodes, errors and bits, and no trace."""

import hashlib
import math

import numpy as np
import pytest
import torch
from driven import advance, agent_for

from stride.agents.engines.fused_cpu.episodes import FusedEpisodes
from stride.agents.engines.fused_cpu.kernels.episodes import play_episodes
from stride.agents.experience.collector import Collector, EpisodeResults, episodes_per_world
from stride.agents.experience.finite_guard import NonFiniteError
from stride.agents.sockets import EagerEpisodes
from stride.config.schema import Config
from stride.envs_gym.make import make_envs
from stride.trainer_callbacks.evaluate import Evaluate
from stride.utils.counter_rng import EVALUATE
from stride.utils.user_error import NumbersError

ROLLOUT = ("n_envs=4", "n_steps=32", "batch_size=64", "n_epochs=2")
REPLAY = ("n_envs=2", "train_freq=16", "gradient_steps=4", "batch_size=16", "buffer_size=500", "learning_starts=40")
REPLAY += ("epsilon_schedule_end=1000",)
SAC = (*REPLAY[:-1], "max_episode_steps=60")
CASES = {
    "ppo": ("CartPole-v1:ppo", *ROLLOUT, "normalize_obs=true", "hidden_dims=[24]", "activation=relu"),
    "ppo, one trunk": (
        "Acrobot-v1:ppo",
        *ROLLOUT,
        "share_trunk=true",
        "max_episode_steps=90",
        "hidden_dims=[16,40,33]",
    ),
    "ppo, gaussian": ("Pendulum-v1:ppo", *ROLLOUT, "normalize_obs=true", "max_episode_steps=60"),
    "ppo, counted": ("FrozenLake-v1:ppo", *ROLLOUT),
    "reinforce": ("CartPole-v1:reinforce", *ROLLOUT[:2]),
    "dqn": ("CartPole-v1:dqn", *REPLAY, "normalize_obs=true"),
    "dqn, dueling": ("MountainCar-v0:dqn", *REPLAY, "dueling=true", "max_episode_steps=50"),
    "sac": ("Pendulum-v1:sac", *SAC, "normalize_obs=true"),
    "sac, static": ("Pendulum-v1:sac", *SAC, "normalize_obs=static", "hidden_dims=[33]"),
    "sac, lasting noise": ("MountainCarContinuous-v0:sac", *SAC, "noise_correlation=0.5"),
}
PLAIN = {("sac, lasting noise", False)}  # what is carried from step to step is the collector's


def trained(name, *words, iterations=6):
    config, *own = CASES[name]
    agent = advance(agent_for(config, *own, "engine=fused_cpu", *words), iterations)
    assert isinstance(agent.engine.episodes, FusedEpisodes)
    return agent


def collector(agent, worlds=7, greedy=True, policy=None):
    envs = make_envs(agent.config, worlds)
    return Collector(envs, policy or agent.policy, 11, EVALUATE, greedy=greedy)


def played(agent, count, max_steps=None, worlds=7, greedy=True):
    return agent.engine.episodes.play(agent, collector(agent, worlds, greedy), count, max_steps)


def expected(agent, count, max_steps=None, worlds=7, greedy=True):
    return EagerEpisodes().play(agent, collector(agent, worlds, greedy), count, max_steps)


def unused(*arguments):
    raise AssertionError("the collector itself was asked")


@pytest.mark.parametrize("greedy", [True, False], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", CASES)
def test_the_episodes_are_those_of_the_collector(name, greedy, monkeypatch):
    agent = trained(name)
    exact = expected(agent, 17, greedy=greedy)
    if (name, greedy) not in PLAIN:
        monkeypatch.setattr(Collector, "play", unused)
    found = played(agent, 17, greedy=greedy)
    assert len(found.returns) == 17 and found.lengths == exact.lengths
    if agent.memory.table.action.dtype == torch.int64:
        assert found == exact  # no action differs, so nothing does
    else:
        np.testing.assert_allclose(found.returns, exact.returns, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("count", "max_steps", "worlds"), [(0, None, 3), (2, None, 5), (9, 12, 4), (40, 33, 7), (5, 0, 2)]
)
@pytest.mark.parametrize("greedy", [True, False], ids=["greedy", "sampled"])
def test_limits_and_shares_are_those_of_the_collector(count, max_steps, worlds, greedy):
    agent = trained("ppo")
    given = (count, max_steps, worlds, greedy)
    assert played(agent, *given) == expected(agent, *given)


def test_a_world_that_has_had_its_episodes_is_not_stepped_again():
    agent = trained("ppo")
    mine = collector(agent, 7)
    agent.engine.episodes.play(agent, mine, 17, None)
    assert mine.envs.episodes.tolist() == episodes_per_world(17, 7) == [3, 3, 3, 2, 2, 2, 2]
    assert not mine.envs.ages.any()


@pytest.mark.parametrize("greedy", [True, False], ids=["greedy", "sampled"])
@pytest.mark.parametrize("config", ["CartPole-v1:ppo", "Pendulum-v1:ppo", "CartPole-v1:dqn", "Pendulum-v1:sac"])
def test_one_and_two_threads_are_equal_to_the_last_bit(config, greedy):
    keys = {"ppo": ("n_envs=8", "n_steps=64", "batch_size=256", "n_epochs=1"), "dqn": REPLAY, "sac": SAC}
    one, two = (agent_for(config, *keys[config[-3:]], f"threads={n}", "engine=fused_cpu") for n in (1, 2))
    advance(one, 6), advance(two, 6)
    assert two.engine.learn.bound.workers.threads == 2
    results = [played(agent, 45, 300, 20, greedy) for agent in (one, two)]
    assert results[0] == results[1] and len(results[0].returns) >= 20


@pytest.mark.parametrize("name", ["ppo", "ppo, gaussian", "dqn", "sac"])
def test_training_cannot_tell_that_it_was_evaluated(name):
    watched, alone = trained(name), trained(name)
    for agent in (watched, alone):
        for _ in range(3):
            if agent is watched:
                played(agent, 9, 40), played(agent, 9, 40, greedy=False)
            advance(agent, 2)
    states = [state_of(agent) for agent in (watched, alone)]
    assert states[0] == states[1]


def state_of(agent):
    state = agent.optimizer.state
    moments = [x for group in agent.optimizer.param_groups for p in group["params"] for x in state[p].values()]
    kept = [*agent.state_dict().values(), *moments, agent.memory.table.action, agent.collector.window.ring]
    return hashlib.sha256(b"".join(x.detach().contiguous().numpy().tobytes() for x in kept)).hexdigest()


def test_the_weights_are_those_of_now():
    agent = trained("ppo")
    before = played(agent, 12)
    assert played(agent, 12) == before
    with torch.no_grad():
        agent.policy.head.linear.weight.neg_()
    assert played(agent, 12) == expected(agent, 12) != before


def test_another_policy_and_gymnasiums_worlds_are_the_collectors():
    agent, other = trained("ppo"), trained("ppo", iterations=1)
    mine = collector(agent, policy=other.policy)
    found = agent.engine.episodes.play(agent, mine, 9, None)
    assert found == played(other, 9)
    gym = trained("ppo", "env_backend=gym", iterations=1)
    assert played(gym, 5) == expected(gym, 5)


def worlds_of_nan(collector):
    collector.envs.state[:, 5] = math.nan


def sight_of_infinity(collector):
    collector.obs[3] = math.inf


def endless_sums(collector):
    collector.envs.returns[2] = math.inf


@pytest.mark.parametrize("spoil", [worlds_of_nan, sight_of_infinity, endless_sums])
@pytest.mark.parametrize("name", ["ppo", "ppo, gaussian", "sac"])
def test_what_is_not_finite_is_located_as_the_collector_does(name, spoil):
    agent, said = trained(name), []
    for player in (agent.engine.episodes, EagerEpisodes()):
        mine = collector(agent)
        spoil(mine)
        with pytest.raises(NonFiniteError) as error:
            player.play(agent, mine, 17, None)
        said.append((str(error.value), error.value.world, error.value.step, error.value.episode))
    assert said[0] == said[1] and f"of environment {said[0][1]} at step" in said[0][0]


def test_worlds_that_do_not_count_may_be_anything():
    agent = trained("ppo")
    mine = collector(agent)
    mine.envs.state[:, 5], mine.obs[6] = math.nan, math.nan
    assert len(agent.engine.episodes.play(agent, mine, 5, None).returns) == 5


def test_weights_that_are_not_finite_are_told_of_the_action():
    agent = trained("ppo, gaussian")
    with torch.no_grad():
        agent.policy.head.linear.bias.fill_(math.nan)
    with pytest.raises(NonFiniteError, match="action: NaN of environment 0 at step 1 of its episode 1"):
        played(agent, 9)


def test_an_evaluation_is_the_engines_and_its_seconds_are_counted(monkeypatch):
    agent = trained("ppo", "eval_episodes=9")
    config: Config = agent.config
    plain, fused = (Evaluate(config, lambda n: make_envs(config, n)) for _ in range(2))
    fused.setup(None, agent, "fit")
    exact = plain.test(agent.policy)
    assert agent.seconds["evaluate"] == 0.0
    monkeypatch.setattr(Collector, "play", unused)
    assert fused.test(agent.policy) == exact
    assert agent.seconds["evaluate"] > 0.0


def test_an_evaluation_that_is_not_finite_counts_nothing(monkeypatch):
    agent = trained("ppo, gaussian")
    evaluate = Evaluate(agent.config, lambda n: make_envs(agent.config, n))
    evaluate.setup(None, agent, "fit")
    with torch.no_grad():
        agent.policy.head.linear.bias.fill_(math.nan)
    with pytest.raises(NumbersError, match=r"Pendulum-v1: action: NaN of environment 0 .* in the test of 100 episodes"):
        evaluate.test(agent.policy)


@pytest.mark.parametrize("name", ["ppo", "dqn", "sac"])
def test_each_entry_that_is_not_bound_is_named(name):
    agent = trained(name)
    assert isinstance(played(agent, 3, 5), EpisodeResults)
    frame = agent.engine.episodes._actors[True].frame
    for entry in frame.read_by(play_episodes) - {"final_obs", "draws"}:
        frame._complete.clear()
        address = getattr(frame.fields, entry)
        setattr(frame.fields, entry, 0)
        with pytest.raises(RuntimeError, match=rf"has no {entry}, which play_episodes"):
            frame.check(play_episodes, ("final_obs", "draws"))
        setattr(frame.fields, entry, address)
