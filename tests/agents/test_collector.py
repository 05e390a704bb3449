"""Collecting against a plain Python loop, the window against a deque, playing whole episodes, and resuming.

Then what a rollout goes through before it is learnt: its rewards are scaled, its rows are cut into minibatches.
"""

import copy
from collections import deque
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_log import same, through_file
from torch import Tensor
from worlds import NAN, Scripted, random_tables

from stride.agents.experience.collector import WINDOW, Collector, Policy, Window
from stride.agents.experience.finite_guard import NonFiniteError
from stride.agents.experience.memory import Memory
from stride.agents.experience.minibatches import minibatches, world_minibatches
from stride.agents.experience.nouns import Act, leaves
from stride.agents.experience.reward_scale import RewardScale
from stride.agents.networks.actor_critic import ActorCritic, Plan
from stride.commands.plain_tree import fingerprint
from stride.utils.counter_rng import ACT, EVALUATE, SHUFFLE, Key, permutation, uniforms

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
    """Its noise follows from seed, purpose and call alone: examples were asked for before."""
    calls, steps, seed, purpose = 3, 7, 5, EVALUATE if greedy else ACT
    envs = worlds(named=named)
    collector, memory = collector_and_memory(calls * steps, worlds(named=named), greedy=greedy, purpose=purpose)
    for _ in range(calls):
        collector.collect(steps, memory)
    table, cuts, episodes = memory.table, 0, []
    obs, first, since = copy.deepcopy(envs.reset(seed)), [True] * N, [0] * N
    for row in range(calls * steps):
        noise = uniforms(Key(seed, purpose, 0, 1 + row // steps), (steps, N, 2))[row % steps]
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


def test_numbers_of_episodes_that_still_run_are_not_saved():
    """A process that went on has them in the bin behind the window, one that was resumed has none."""
    went_on, resumed, loaded = (Window(torch.device("cpu")) for _ in range(3))
    ended = torch.tensor([[True, False]])
    returns, lengths = torch.tensor([[3.0, -1073.5], [7.0, 200.0]])[:, None]
    went_on.add(ended, returns, lengths)
    resumed.add(ended, returns * ended, lengths * ended)
    assert fingerprint(went_on.state_dict()) == fingerprint(resumed.state_dict())
    assert went_on.ring[0, WINDOW] == -1073.5  # the state itself is a copy
    loaded.load_state_dict(went_on.state_dict())
    expected = {"ep_rew/mean": 3.0, "ep_rew/best": 3.0, "ep_len/mean": 7.0, "episodes": 1.0}
    assert loaded.summary() == went_on.summary() == expected


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
    collector.steps_per_fetch = looks
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
    collector.steps_per_fetch = 4
    with pytest.raises(ValueError, match="an invalid action"):
        collector.play(5)


def test_evaluating_changes_nothing_in_a_policy():
    space = worlds().observation_space
    policy = ActorCritic(Plan(space, worlds().action_space, (8,), normalize_obs="rolling", seed=3))
    policy.encoder.learn(torch.rand(9, N, 2))
    before = copy.deepcopy({**policy.state_dict()})
    assert len(Collector(worlds(seed=9), policy, 5, EVALUATE).play(11).returns) == 11
    assert same({**policy.state_dict()}, before)


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


# --- rewards over the deviation of the discounted return, against NumPy

STEPS, WORLDS, GAMMA = 16, 3, 0.9
LIVE = SimpleNamespace(gamma=GAMMA)


def rollouts(count):
    generator = torch.Generator().manual_seed(0)
    for _ in range(count):
        yield (
            torch.randn(STEPS, WORLDS, generator=generator) * 5 + 1,
            torch.rand(STEPS, WORLDS, generator=generator) < 0.2,
        )


def test_the_deviation_is_that_of_all_returns_so_far_also_after_a_resumption():
    scaler = RewardScale(True, LIVE, torch.zeros(WORLDS))
    running, returns = np.zeros(WORLDS), []
    for reward, ended in rollouts(5):
        for t in range(STEPS):
            running = reward[t].double().numpy() + GAMMA * running
            returns.append(running.copy())
            running[ended[t].numpy()] = 0  # a new episode starts at nothing
        expected = (reward.double() / np.std(returns)).clamp(-10, 10)
        before, state = reward.clone(), scaler.state_dict()
        saved, restored = through_file(state), RewardScale(True, LIVE, torch.zeros(WORLDS))
        restored.load_state_dict(saved)
        scaled = scaler(reward, ended)
        assert scaled.dtype == torch.float32 and torch.equal(reward, before), "the raw reward is left alone"
        torch.testing.assert_close(scaled.double(), expected, rtol=1e-5, atol=1e-6)
        assert same(state, saved), "it does not follow its owner"
        assert torch.equal(restored(reward, ended), scaled)


def test_what_stands_out_is_clipped():
    scaler = RewardScale(True, SimpleNamespace(gamma=0.0), torch.zeros(1))
    reward = torch.zeros(1000, 1)
    reward[10], reward[20] = 1.0, -1.0
    scaled = scaler(reward, torch.zeros(1000, 1, dtype=torch.bool))  # deviation 0.045, so +-22
    assert scaled.unique().tolist() == [-10, 0, 10]


@pytest.mark.parametrize("value", [0.0, -200.3, 1e6 / 3])
def test_constant_rewards_stay_finite(value):
    """Episodes of one step that always pay the same: there is no deviation to divide by."""
    scaler = RewardScale(True, LIVE, torch.zeros(WORLDS))
    for _ in range(50):
        scaled = scaler(torch.full((STEPS, WORLDS), value), torch.ones(STEPS, WORLDS, dtype=torch.bool))
        assert scaled.isfinite().all()
        assert not (scaled * value < 0).any(), "and keep their sign"


# --- one pass over a table, in the order of a key

KEY = Key(3, SHUFFLE, 1, 7)


class Table(NamedTuple):
    """Columns [steps, worlds, ...], and what [worlds, ...] was before them."""

    obs: dict[str, Tensor]
    number: Tensor
    is_first: Tensor
    start: tuple = ()


def table(steps, worlds):
    number = torch.arange(steps * worlds).view(steps, worlds)
    image = number[..., None, None].expand(steps, worlds, 2, 3) + 0.5
    return Table({"image": image, "vector": number[..., None] * 2.0}, number, number == 5)


@pytest.mark.parametrize("size", [1, 10, 24])
def test_every_row_comes_once_with_all_its_leaves_in_the_keys_order(size):
    """What does not divide comes last and is shorter; the table is left as it was."""
    mine, order = table(6, 4), []
    torch.manual_seed(size)  # says nothing
    for batch in minibatches(mine, size, KEY):
        assert type(batch) is Table and len(batch.number) == min(size, 24 - len(order))
        assert torch.equal(batch.obs["vector"], batch.number[:, None] * 2.0)
        assert torch.equal(batch.obs["image"], (batch.number[:, None, None] + 0.5).expand(-1, 2, 3))
        order += batch.number.tolist()
        batch.number.zero_()
        batch.obs["vector"].zero_()
    assert order == permutation(KEY, 24).tolist() and sorted(order) == list(range(24)) != order
    assert same([*mine[:3]], [*table(6, 4)[:3]])


@pytest.mark.parametrize("worlds", [1, 2, 6])
def test_a_cut_by_worlds_keeps_sequences_and_their_start(worlds):
    steps, n = 4, 6
    mine, order = table(steps, n)._replace(start=((torch.arange(n)[:, None] * 10.0,),)), []
    for batch in world_minibatches(mine, worlds * steps, KEY):
        assert type(batch) is Table and batch.number.shape == (steps, worlds)
        ids = batch.number[0]
        assert torch.equal(batch.number, mine.number[:, ids]) and torch.equal(batch.is_first, mine.is_first[:, ids])
        assert torch.equal(batch.start[0][0], ids[:, None] * 10.0)
        order += ids.tolist()
    assert order == permutation(KEY, n).tolist() and order != sorted(order)
