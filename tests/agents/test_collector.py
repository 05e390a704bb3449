"""Collecting against a plain Python loop, the window against a deque, playing whole episodes, and resuming."""

import copy
from collections import deque

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_log import same, through_file
from worlds import NAN, Scripted, random_tables

from stride.agents.experience.collector import WINDOW, Collector, Policy, Window
from stride.agents.experience.finite_guard import NonFiniteError
from stride.agents.experience.memory import Memory
from stride.agents.experience.nouns import Act, leaves
from stride.agents.networks.actor_critic import ActorCritic, Plan
from stride.utils.counter_rng import ACT, EVALUATE, Key, uniforms

N = 4


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
        extras = noise, since, torch.full((len(noise),), greedy)
        return Act(action, extras, self.shaped(since + 1))


def worlds(steps=60, seed=0, **options):
    return Scripted(*random_tables(steps, N, seed), **options)


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
    table, cuts, episodes = memory.table, 0, []
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
        ended = step.terminated | step.truncated
        episodes += zip(step.episode_return[ended].tolist(), step.episode_length[ended].tolist(), strict=True)
        first = ended.tolist()
        for world in step.truncated.nonzero()[:, 0].tolist():  # the carry of what was cut is the one before the reset
            cuts += 1
            assert memory.final.carry[0][table.slot[row, world], world].item() == since[world]
    assert table.is_first[1:].any() and not table.is_first[1:].all() and cuts
    assert memory.written == calls * steps
    mean, length = (sum(column) / len(episodes) for column in zip(*episodes, strict=True))
    summary = collector.window.summary()
    expected = {"ep_rew/mean": mean, "ep_rew/best": mean, "ep_len/mean": length, "episodes": len(episodes)}
    assert summary == pytest.approx(expected)


def collected(torchs=0, examples=0, **options):
    torch.manual_seed(torchs)
    policy = ActorCritic(Plan(worlds().observation_space, worlds().action_space, (8,), seed=3))
    collector, memory = collector_and_memory(10, policy=policy, **options)
    for _ in range(examples):
        collector.example()
    state = torch.get_rng_state()
    collector.collect(10, memory)
    assert torch.equal(torch.get_rng_state(), state), "collecting draws nothing from torch's generator"
    return memory.table


def test_noise_follows_from_seed_purpose_and_rank_alone():
    """Not from the generator of torch, nor from how often an example was asked for."""
    table = collected()
    assert same(table, collected(torchs=1)) and same(table, collected(examples=3))
    others = (collected(**changed) for changed in ({}, {"seed": 6}, {"purpose": EVALUATE}, {"rank": 1}))
    actions = [other.action.flatten().tolist() for other in others]
    assert all(mine != other for i, mine in enumerate(actions) for other in actions[:i])


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


WORDS = {"NaN": NAN, "infinity": float("inf"), "-infinity": -float("inf")}


@settings(max_examples=100)
@given(
    n=st.integers(1, 4),
    seed=st.integers(0, 99),
    p_end=st.sampled_from([0.05, 0.3, 0.9]),
    count=st.integers(0, 20),
    max_steps=st.none() | st.integers(1, 40),
    looks=st.integers(1, 32),
    guarded=st.booleans(),
    bad=st.none() | st.tuples(st.integers(0, 30), st.integers(0, 3), st.sampled_from(list(WORDS))),
)
def test_play_is_a_plain_loop(n, seed, p_end, count, max_steps, looks, guarded, bad):
    """Episodes are shared out evenly and come world by world; the first number that is non-finite is named.

    Also where the host looks once in some steps. Worlds that have played their share go on unwatched.
    """
    reward, terminated, truncated = random_tables(60, n, seed, p_end / 2, p_end / 2)
    terminated[-1], truncated[-1] = True, False
    if bad:
        reward[bad[0], bad[1] % n] = WORDS[bad[2]]
    share = [count // n + (world < count % n) for world in range(n)]
    episodes, paid, age, t, wrong = [[] for _ in range(n)], [0.0] * n, [0] * n, 0, []
    while not wrong and t != max_steps and [len(results) for results in episodes] != share:
        for world in range(n):
            if len(episodes[world]) == share[world]:
                continue
            paid[world], age[world] = paid[world] + reward[t % 60, world].item(), age[world] + 1
            if guarded and not reward[t % 60, world].isfinite():
                wrong.append((world, age[world], len(episodes[world]) + 1))
            if terminated[t % 60, world] or truncated[t % 60, world]:
                episodes[world].append((paid[world], age[world]))
                paid[world], age[world] = 0.0, 0
        t += 1
    envs = Scripted(reward, terminated, truncated)
    envs.wrong, collector = None, Collector(envs, Counting(), 5, EVALUATE)
    collector.looks = looks
    if wrong:
        with pytest.raises(NonFiniteError, match=f"^reward: {bad[2]} of") as caught:
            collector.play(count, max_steps, guarded)
        assert (caught.value.world, caught.value.step, caught.value.episode) == wrong[0]
        return
    played = collector.play(count, max_steps, guarded)
    expected = [episode for results in episodes for episode in results]
    assert played.returns == pytest.approx([paid for paid, _ in expected], nan_ok=True)
    assert played.lengths == [length for _, length in expected]
    assert looks > 1 or envs.now == t


def test_an_action_that_worlds_noted_ends_the_playing():
    envs = worlds()
    envs.wrong = torch.ones(1, dtype=torch.int32)
    collector = Collector(envs, Counting(), 5, EVALUATE)
    collector.looks = 4
    with pytest.raises(ValueError, match="an action that there is not"):
        collector.play(5)


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
    assert same(tables[0][0], tables[1][0])
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
    assert same(
        memory.table._replace(slot=()), other.table._replace(slot=())
    )  # the slot of a row is the memory's state
    assert new.window.summary() == old.window.summary()
