"""Collecting against a plain Python loop, the window against a deque, playing whole episodes, and resuming."""

import copy
from collections import deque
from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_log import through_file
from torch import Tensor
from worlds import NAN, Scripted, random_tables

from stride.agents.experience.collector import WINDOW, Collector, Policy, Window
from stride.agents.experience.finite_guard import NonFiniteError
from stride.agents.experience.memory import Memory
from stride.agents.experience.nouns import Act, leaves
from stride.agents.networks.actor_critic import ActorCritic, Plan
from stride.utils.counter_rng import ACT, EVALUATE, Key, uniforms

N = 4


class Noted(NamedTuple):
    """Everything the policy was told."""

    noise: Tensor
    since: Tensor
    greedy: Tensor


class Counting(Policy):
    """Chooses by its noise alone and carries the steps since the episode began, in the wished form."""

    draws = 2

    def __init__(self, form="tuple"):
        super().__init__()
        self.form = form

    def shaped(self, since):
        forms = {"tuple": (since, -since), "tensor": since, "dict": {"since": since, "back": -since}}
        return forms[self.form]

    def initial(self, num_envs):
        return self.shaped(torch.zeros(num_envs, 1))

    def act(self, obs, carry, is_first, noise, greedy):
        since = torch.where(is_first[:, None], 0.0, leaves(carry)[0])
        action = torch.zeros(len(noise), dtype=torch.long) if greedy else (noise[:, 0] * 3).long()
        extras = Noted(noise, since, torch.full((len(noise),), greedy))
        return Act(action, extras, self.shaped(since + 1))


def worlds(steps=60, seed=0, **options):
    return Scripted(*random_tables(steps, N, seed), **options)


def same(*trees):
    assert all(torch.equal(mine, other) for mine, other in zip(*map(leaves, trees), strict=True))


def collector_and_memory(rows, envs=None, policy=None, seed=5, **options):
    collector = Collector(envs or worlds(), policy or Counting(), seed, **options)
    return collector, Memory(collector.example(), collector.carry, rows, rows, seed)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("greedy", [False, True])
def test_rows_equal_those_of_a_plain_loop(named, greedy):
    calls, steps, seed, rank = 3, 7, 5, 2
    envs = worlds(named=named)
    collector, memory = collector_and_memory(calls * steps, worlds(named=named), rank=rank, greedy=greedy)
    for _ in range(calls):
        collector.collect(steps, memory)
    table, cuts = memory.table, 0
    obs, first, since = copy.deepcopy(envs.reset(seed)), [True] * N, [0] * N
    for row in range(calls * steps):
        noise = uniforms(Key(seed, ACT, rank, 1 + row // steps), (steps, N, 2))[row % steps]
        action = torch.zeros(N, dtype=torch.long) if greedy else (noise[:, 0] * 3).long()
        step = envs.step(action)
        since = [0 if f else s for f, s in zip(first, since, strict=True)]
        expected = [*leaves(obs), torch.tensor(first), action, step.reward, step.terminated, step.truncated]
        expected += [noise, torch.tensor(since)[:, None].float(), torch.full((N,), greedy)]
        mine = [x[row] for x in leaves(table._replace(slot=()))]
        assert all(torch.equal(a, b) for a, b in zip(mine, expected, strict=True))
        obs, since = copy.deepcopy(step.obs), [s + 1 for s in since]
        first = (step.terminated | step.truncated).tolist()
        for world in step.truncated.nonzero()[:, 0].tolist():  # the carry of what was cut is the one before the reset
            cuts += 1
            assert memory.final.carry[0][table.slot[row, world], world].item() == since[world]
    assert table.is_first[1:].any() and not table.is_first[1:].all() and cuts
    assert memory.written == calls * steps


def test_the_example_draws_nothing_and_moves_nothing():
    tables = []
    for examples in (0, 3):
        collector, memory = collector_and_memory(5)
        for _ in range(examples):
            collector.example()
        collector.collect(5, memory)
        tables.append(memory.table)
    same(*tables)


def test_noise_never_depends_on_torchs_global_generator():
    tables = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        policy = ActorCritic(Plan(worlds().observation_space, worlds().action_space, (8,), seed=3))
        collector, memory = collector_and_memory(10, policy=policy)
        torch.rand(seed + 1)
        state = torch.get_rng_state()
        collector.collect(10, memory)
        assert torch.equal(torch.get_rng_state(), state), "and collecting draws nothing from it"
        tables.append(memory.table)
    same(*tables)
    assert len(tables[0].action.unique()) > 1


def test_noise_differs_by_seed_purpose_and_rank():
    noises = []
    for options in ({}, {"seed": 6}, {"purpose": EVALUATE}, {"rank": 1}):
        collector, memory = collector_and_memory(5, **options)
        collector.collect(5, memory)
        noises.append(memory.table.extras.noise.flatten().tolist())
    assert all(mine != other for i, mine in enumerate(noises) for other in noises[:i])


@settings(max_examples=60)
@given(
    st.integers(1, 4), st.integers(0, 99), st.sampled_from([0.0, 0.1, 0.9]), st.lists(st.integers(1, 60), max_size=9)
)
def test_window_equals_a_deque(n, seed, p_end, calls):
    """At 0.9 a single call may end more episodes than the window holds."""
    steps = sum(calls)
    _, terminated, truncated = random_tables(steps, n, seed, p_end / 2, p_end / 2)
    ended, paid = terminated | truncated, torch.arange(steps * n, dtype=torch.float32).view(steps, n)
    window, episodes, best, count = Window(torch.device("cpu")), deque(maxlen=WINDOW), float("-inf"), 0
    start = 0
    for call in calls:
        rows = slice(start, start + call)
        window.add(ended[rows], paid[rows], paid[rows] + 1)
        start += call
        new = paid[rows][ended[rows]].tolist()
        episodes.extend(new)
        count += len(new)
        expected = {"episodes": count}
        if count:
            mean = sum(episodes) / len(episodes)
            best = max(best, mean)
            expected |= {"ep_rew/mean": mean, "ep_rew/best": best, "ep_len/mean": mean + 1}
        assert window.summary() == pytest.approx(expected, rel=1e-5)


def test_collecting_fills_the_window_with_returns_and_lengths():
    reward, terminated, truncated = random_tables(40, N, 7, 0.1, 0.1)
    collector, memory = collector_and_memory(40, Scripted(reward, terminated, truncated))
    collector.collect(40, memory)
    paid, age, episodes = torch.zeros(N), torch.zeros(N), []
    for t in range(40):
        paid, age, ended = paid + reward[t], age + 1, terminated[t] | truncated[t]
        episodes += zip(paid[ended].tolist(), age[ended].tolist(), strict=True)
        paid, age = paid * ~ended, age * ~ended
    mean, length = (sum(column) / len(episodes) for column in zip(*episodes, strict=True))
    expected = {"ep_rew/mean": mean, "ep_rew/best": mean, "ep_len/mean": length, "episodes": len(episodes)}
    assert collector.window.summary() == pytest.approx(expected, rel=1e-5)


def periodic(lengths, returns):
    """World i ends every lengths[i] steps with returns[i], paid in the last step."""
    t = torch.arange(1, 841)[:, None]
    ended = t % torch.tensor(lengths) == 0
    return Scripted(ended * torch.tensor(returns), ended, torch.zeros_like(ended))


LENGTHS = [1, 4, 20]


def three_worlds():
    """The first world ends twenty episodes, paid 1 each, while the last ends one, paid 3."""
    return periodic(LENGTHS, [1.0, 2.0, 3.0])


@pytest.mark.parametrize(
    ("count", "shares"), [(0, []), (1, [1]), (2, [1, 1]), (3, [1, 1, 1]), (7, [3, 2, 2]), (9, [3] * 3)]
)
def test_play_shares_the_episodes_out_evenly(count, shares):
    played = Collector(three_worlds(), Counting(), 0).play(count)
    assert played.returns == [float(world + 1) for world, share in enumerate(shares) for _ in range(share)]
    assert played.lengths == [float(LENGTHS[int(r) - 1]) for r in played.returns]


def test_play_takes_each_worlds_episodes_in_their_order():
    reward = torch.arange(1.0, 7)[:, None].repeat(1, 2) * torch.tensor([1, 10])
    ended = torch.ones(6, 2, dtype=torch.bool)
    played = Collector(Scripted(reward, ended, ~ended), Counting(), 0).play(6)
    assert played.returns == [1.0, 2, 3, 10, 20, 30]


@pytest.mark.parametrize(("max_steps", "expected"), [(3, [1.0] * 2), (4, [1.0] * 2 + [2.0]), (20, [1.0, 1, 2, 2, 3])])
def test_play_gives_up_after_max_steps(max_steps, expected):
    envs = three_worlds()
    assert Collector(envs, Counting(), 0).play(6, max_steps).returns == expected
    assert envs.now == max_steps


def test_play_stops_as_soon_as_it_has_all():
    for count, steps in ((5, 20), (0, 0)):
        envs = three_worlds()
        Collector(envs, Counting(), 0).play(count)
        assert envs.now == steps


def played(looks, tables=None, count=11, max_steps=None, guarded=True):
    """What a collector answers that is looked at every `looks` steps, or the place of what was not finite."""
    envs = worlds() if tables is None else Scripted(*tables)
    envs.wrong = None
    collector = Collector(envs, Counting(), 5, EVALUATE)
    collector.looks = looks
    try:
        return collector.play(count, max_steps, guarded)
    except NonFiniteError as error:
        return str(error), error.description, error.world, error.step, error.episode


@pytest.mark.parametrize("looks", [2, 5, 32])
@pytest.mark.parametrize(("count", "max_steps"), [(11, None), (3, None), (0, None), (40, 30), (40, 32)])
@pytest.mark.parametrize("guarded", [True, False])
def test_to_look_rarely_counts_the_same_episodes(looks, count, max_steps, guarded):
    often, rarely = (played(every, None, count, max_steps, guarded) for every in (1, looks))
    assert often == rarely
    assert len(often.returns) <= count and (max_steps or len(often.returns) == count)


@pytest.mark.parametrize(("value", "word"), [(NAN, "NaN"), (float("inf"), "infinity"), (-float("inf"), "-infinity")])
@pytest.mark.parametrize("at", [0, 7, 20])
def test_to_look_rarely_finds_the_same_first_number(value, word, at):
    reward, terminated, truncated = random_tables(60, N, 0)
    reward[at, 2] = value
    often, rarely = (played(looks, (reward, terminated, truncated), 30) for looks in (1, 9))
    assert often == rarely and often[1:3] == (f"reward: {word}", 2)


def test_to_look_rarely_minds_no_world_that_is_done():
    reward, terminated, truncated = random_tables(60, N, 0)
    terminated[0], truncated[0] = True, False
    reward[1:] = NAN
    assert played(32, (reward, terminated, truncated), N) == played(1, (reward, terminated, truncated), N)
    assert len(played(32, (reward, terminated, truncated), N).returns) == N


def test_an_action_that_worlds_noted_ends_the_playing():
    envs = worlds()
    envs.wrong = torch.ones(1, dtype=torch.int32)
    collector = Collector(envs, Counting(), 5, EVALUATE)
    collector.looks = 4
    with pytest.raises(ValueError, match="an action that there is not"):
        collector.play(5)


def test_greedy_play_takes_the_mode():
    class Echo(Scripted):
        def step(self, action):
            assert not action.any()
            return super().step(action)

    ended = torch.ones(1, 2, dtype=torch.bool)
    Collector(Echo(torch.zeros(1, 2), ended, ~ended), Counting(), 0, greedy=True).play(4)


def test_evaluating_leaves_the_training_collector_untouched():
    tables = []
    for evaluated in (False, True):
        policy = ActorCritic(
            Plan(worlds().observation_space, worlds().action_space, (8,), normalize_obs="rolling", seed=3)
        )
        collector, memory = collector_and_memory(20, policy=policy)
        for _ in range(2):
            collector.collect(10, memory)
            policy.encoder.learn(memory.table.obs)
            if evaluated:
                state = copy.deepcopy(policy.state_dict())
                assert len(Collector(worlds(seed=9), policy, 5, EVALUATE).play(11).returns) == 11
                assert all(torch.equal(state[name], now) for name, now in policy.state_dict().items())
        tables.append((memory.table, collector.window.summary()))
    same(tables[0][0], tables[1][0])
    assert tables[0][1] == tables[1][1]


@pytest.mark.parametrize("form", ["tuple", "tensor", "dict"])
@pytest.mark.parametrize("named", [False, True])
def test_state_continues_in_mid_episode(form, named):
    old, memory = collector_and_memory(15, worlds(named=named), Counting(form))
    old.collect(15, memory)
    assert not old.is_first.all()
    new, other = collector_and_memory(15, worlds(named=named), Counting(form))
    new.load_state_dict(through_file(old.state_dict()))
    assert new.window.summary() == old.window.summary()
    for collector, into in ((old, memory), (new, other)):
        collector.collect(15, into)
    same(memory.table._replace(slot=()), other.table._replace(slot=()))  # the slot of a row is the memory's state
    assert new.window.summary() == old.window.summary()
