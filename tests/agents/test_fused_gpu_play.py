"""`engine: fused_gpu` plays: its kernel, compiled for this processor in the blocks of a GPU, against the collector.

Worlds give the same bits for the same actions. The policy's sums differ in their last bits: so choices are the same
here, and numbers are within rounding.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from driven import advance, continued
from fused_gpu_cases import (
    BACKWARDS,
    CASES,
    FORWARDS,
    ROLLOUT,
    SHUFFLED,
    N,
    T,
    assert_same,
    gpu_agent,
    played,
    player,
    trained,
    with_engine,
    with_optimizer,
    worlds_for,
)
from host_kernels import compile_host
from tape import Tape, taped

from stride.agents.engines.choice import RECIPES, build_agent, choose_on_gpu
from stride.agents.engines.fused_gpu.ahead import Ahead
from stride.agents.engines.fused_gpu.engine import fused_gpu
from stride.agents.engines.fused_gpu.play import EPISODES, ONE_BLOCK, fitting
from stride.agents.experience.collector import Window
from stride.config.loader import load_config
from stride.config.schema import PPOConfig
from stride.envs_fast.vec_env import CPU
from stride.envs_gym.make import make_envs
from stride.utils.cuda_kernels import read_source
from stride.utils.user_error import NumbersError, UserError

SPLITS = (1, 2, 4, 8)
MORE = ("Pendulum, rolling", "Taxi")


@pytest.mark.parametrize("case", CASES)
def test_it_plays_as_the_collector_does(case):
    """Two rollouts, so that the second begins in the middle of episodes; then how likely the actions were."""
    plain, other = gpu_agent(case), gpu_agent(case)
    play, rounding = player(other), 1e-5 if plain.memory.table.action.is_floating_point() else 0.0
    for _ in range(2):
        if "rolling" in case or case == "REINFORCE":
            for agent in (plain, other):
                agent.policy.encoder.learn(plain.memory.table.obs + plain.collector.obs)
        plain.collector.collect(T, plain.memory)
        play.collect(other, T)
        assert_same(played(other), played(plain), rounding=rounding)
        assert plain.memory.table.truncated.sum() >= N / 2
        with torch.no_grad():
            row = other.memory.table
            judged = other.policy.evaluate(row.obs, (), row.is_first, row.action)
        torch.testing.assert_close(play.log_prob, judged.log_prob, rtol=0.0, atol=1e-6)
    other.engine = other.engine._replace(play=play)
    advance(other, 1)
    assert other.progress["updates"] > 0


def rollouts(case, *changes, **how):
    """What two rollouts leave, and how likely their actions were."""
    agent = gpu_agent(case)
    play, found = player(agent, *changes, **how), []
    for _ in range(2):
        play.collect(agent, T)
        found.append(played(agent) | {"log_prob": play.log_prob.clone()})
    return found


@pytest.mark.parametrize("case", ["CartPole", *(pytest.param(case, marks=pytest.mark.slow) for case in MORE)])
def test_neither_threads_nor_their_order_decide_anything(case):
    """A world's threads, shared out otherwise, in whichever order those of a block and the blocks run."""
    wanted = rollouts(case)
    for split in SPLITS[:-1]:
        for mine, theirs in zip(rollouts(case, split), wanted, strict=True):
            assert_same(mine, theirs, at=split)
    for order in (BACKWARDS, *SHUFFLED):
        for mine, theirs in zip(rollouts(case, order=order), wanted, strict=True):
            assert_same(mine, theirs, at=order)


BARRIERS = (
    "  __syncthreads();  // the last one",
    "  __syncwarp();\n  return 0;",
    "  __syncwarp();  // a world's",
    "  }\n  __syncwarp();\n}",
)


@pytest.mark.parametrize("barrier", BARRIERS)
def test_a_missing_barrier_is_found(barrier):
    """By NaN, or by another result in another order."""

    def without(text):
        assert text.count(barrier) == 1
        return text.replace(barrier, barrier.replace("__syncthreads();", "").replace("__syncwarp();", ""))

    (wanted, _), wrong = rollouts("CartPole"), 0
    for order in (FORWARDS, BACKWARDS, *SHUFFLED):
        first, _ = rollouts("CartPole", text=without, order=order)
        wrong += not torch.equal(first["log_prob"], wanted["log_prob"])
    assert wrong >= 3


def test_two_halves_are_a_whole():
    """With the same draws, which a collector draws for each call."""
    whole, halves = gpu_agent("CartPole"), gpu_agent("CartPole")
    noise = whole.collector.noise(T)
    ways = [(whole, [noise]), (halves, [noise[: T // 2], noise[T // 2 :]])]
    for agent, draws in ways:
        play, given = player(agent), iter(draws)
        agent.collector.noise = lambda steps, given=given: next(given)
        for part in draws:
            play.collect(agent, len(part))
        agent.collector.calls = 1
    assert_same(played(halves), played(whole))


def test_a_row_beyond_the_rollout_is_refused():
    agent = gpu_agent("CartPole")
    play = player(agent)
    play.collect(agent, T // 2)
    with pytest.raises(ValueError, match="32 steps do not fit into the 32 rows of a rollout from row 16 on"):
        play.collect(agent, T)


def test_every_world_that_ships_is_played():
    """Bandit's, of which there is no variant; Blackjack's observation has three parts, which the recipe refuses."""
    config = PPOConfig(env_id="Bandit-v0", algo_id="ppo", n_envs=N, n_steps=T, batch_size=160, seed=3, engine="eager")
    plain, other = (with_optimizer(build_agent(config, worlds_for(config))) for _ in range(2))
    plain.collector.collect(T, plain.memory)
    player(other).collect(other, T)
    assert_same(played(other), played(plain))


@pytest.mark.parametrize("kind", ["observation", "weights"])
def test_what_is_no_number_is_caught_as_by_the_collector(kind):
    """In an observation or in the weights: by the guard, and by the worlds, which take no such action."""
    told = []
    for by_kernel in (False, True):
        agent = gpu_agent("Pendulum, rolling")
        if by_kernel:
            agent.engine = agent.engine._replace(play=player(agent))
        if kind == "observation":
            agent.collector.envs.state[0, 3] = agent.collector.obs[3, 0] = float("nan")
        else:
            agent.policy.head.linear.bias.data.fill_(float("nan"))
        with pytest.raises(NumbersError) as caught:
            advance(agent, 1)
        told.append(str(caught.value))
        assert agent.poisoned
        assert agent.collector.envs.wrong
    assert told[0] == told[1] and told[0].startswith(kind)


@pytest.mark.slow  # the kernels that learn take g++ ten seconds, and the host a second an iteration
@pytest.mark.parametrize("case", ["MountainCarContinuous, static", "FrozenLake"])
def test_what_a_graph_replays_is_what_the_launches_do(case):
    """And whoever goes on from a checkpoint does as who was never stopped."""
    plain, graph, other = (gpu_agent(case, "n_epochs=1", compile=taped(compile_host)) for _ in range(3))
    with_engine(plain, None), with_engine(graph, Tape), with_engine(other, Tape)
    trained(plain, 3)
    assert_same(trained(graph, 3), trained(plain, 0))
    continued(plain, other)
    assert_same(trained(other, 3), trained(plain, 3))
    assert_same(trained(graph, 3), trained(plain, 0))
    assert graph.progress == plain.progress
    for socket in (graph.engine.play, graph.engine.learn):
        assert socket._repeated._graph.replays == 4


@pytest.mark.slow
def test_a_rollout_says_of_its_actions_what_the_updates_begin_from():
    """To the bit, so that the first ratio is 1."""
    agent = with_engine(gpu_agent("MountainCarContinuous, static", "n_epochs=1"), None)
    for _ in range(2):
        advance(agent, 1)
        assert torch.equal(agent.engine.learn.updates.log_prob, agent.engine.play.log_prob.flatten())


@pytest.mark.slow
def test_engines_may_change_between_two_iterations():
    """Eager, this one and eager again are one training: actions are the same here, and weights within rounding."""
    plain, other = (gpu_agent("FrozenLake", "n_epochs=1") for _ in range(2))
    eager, fused = other.engine, fused_gpu(RECIPES[type(other)], other, None)
    for engine in (eager, fused, eager, fused, fused):
        other.engine = engine
        assert_same(trained(other, 1), trained(plain, 1), rounding=1e-5)
    assert plain.progress == other.progress


REFUSED = {
    ("CartPole-v1:ppo", "hidden_dims=[512,512]"): (
        "hidden_dims [512, 512] need 1,311 KB of shared memory, a block has 227 KB; engine: auto takes graphed"
    ),
    ("CartPole-v1:ppo", "policy=gru"): "it does not know policy: gru; engine: auto takes graphed",
    ("CartPole-v1:ppo", "precision=bf16", "hidden_dims=[64]"): (
        "precision: bf16 is of what hidden layers multiply with one another, and there is one; "
        "engine: auto takes graphed"
    ),
    ("Blackjack-v1:ppo",): "the observation has more than one part; engine: auto takes graphed",
    ("CartPole-v1:dqn",): "fused_gpu does not know dqn; engine: auto takes eager",
}


@pytest.mark.parametrize("words", REFUSED, ids=" ".join)
def test_what_it_does_not_know_it_refuses_in_one_line(words):
    name, *own = words
    config = load_config(*name.rsplit(":", 1), ["max_timesteps=1e6", "engine=eager", *own])
    agent = build_agent(config, worlds_for(config))
    with pytest.raises(UserError) as refused:
        choose_on_gpu(replace(config, engine="fused_gpu"), agent)
    assert str(refused.value) == f"engine: fused_gpu cannot run this config: {REFUSED[words]}"
    taken, why = choose_on_gpu(replace(config, engine="auto"), agent)[:2]
    assert REFUSED[words].endswith(taken)
    assert taken == "eager" or why == f"fused_gpu: {REFUSED[words].partition(';')[0]}"


def test_auto_takes_it_where_it_knows_everything():
    agent = gpu_agent("CartPole")
    assert choose_on_gpu(replace(agent.config, engine="auto"), agent)[:2] == (
        "fused_gpu",
        "knows all the config asks for",
    )
    assert choose_on_gpu(replace(agent.config, engine="graphed"), agent).name == "graphed"


def test_with_a_lag_it_is_taken_too_and_plays_beside_its_updates():
    agent = gpu_agent("CartPole", "lag=1")
    for asked in ("auto", "fused_gpu"):
        taken = choose_on_gpu(replace(agent.config, engine=asked), agent)
        assert taken[:2] == ("fused_gpu", "knows all the config asks for") and isinstance(taken.play, Ahead)


def test_of_gymnasiums_worlds_it_says_who_steps_them():
    config = load_config("CartPole-v1", "ppo", ["max_timesteps=1e6", *ROLLOUT, "env_backend=gym"])
    taken = choose_on_gpu(replace(config, engine="auto"), build_agent(config, make_envs(config, N)))
    assert (taken.name, taken.reason) == ("fused_gpu", "updates only: Gymnasium's worlds step on the host")
    assert (taken.play.name, taken.learn.name) == ("eager", "fused_gpu")


def test_a_world_gets_more_threads_where_there_are_few_of_them_or_little_memory():
    agent = gpu_agent("CartPole")
    recipe = RECIPES[type(agent)](agent)
    for worlds, split in ((1 << 16, 1), (1 << 15, 1), (1 << 14, 2), (8192, 4), (4096, 8), (4, 8)):
        agent.memory.num_envs = worlds
        assert fitting(recipe, 227 << 10).split == split
    agent.memory.num_envs = 1 << 16
    assert [fitting(recipe, room << 10).split for room in (99, 64, 48)] == [1, 2, 4]


@pytest.mark.parametrize("order", [FORWARDS, BACKWARDS, *SHUFFLED])
def test_episodes_that_ended_come_into_the_window_as_the_collector_writes_them(order):
    """None, few, more than it holds; in tables shorter and longer than a block."""
    kernels, mine, theirs = compile_host(read_source(EPISODES), CPU), Window(CPU), Window(CPU)
    kernels.order = order
    draw = torch.Generator().manual_seed(1)
    for steps, worlds, odds in ((3, 7, 0.0), (5, 9, 0.3), (40, 60, 0.02), (40, 60, 0.5), (7, 300, 0.01), (1, 5, 1.0)):
        flag = torch.rand(steps, worlds, generator=draw)
        lost, cut = flag < odds / 2, (flag >= odds / 2) & (flag < odds)
        returns, lengths = torch.rand(2, steps, worlds, generator=draw)
        told = lost, cut, returns, lengths, np.int64(steps * worlds), mine.ring, mine.count
        kernels.launch("note_episodes", ONE_BLOCK, *told, block=ONE_BLOCK)
        theirs.add(lost | cut, returns, lengths)
        for name, value in theirs.state_dict().items():
            assert mine.state_dict()[name] == value if name == "best" else torch.equal(mine.state_dict()[name], value)
    assert theirs.count > 1000
