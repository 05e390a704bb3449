"""Collecting against a plain Python loop, the window against a deque, playing whole episodes, and resuming."""

import copy
import io
from collections import deque
from typing import NamedTuple

import pytest
import torch
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
    obs, first, since, row = copy.deepcopy(envs.reset(seed)), [True] * N, [0] * N, 0
    for call in range(1, calls + 1):
        noise = uniforms(Key(seed, ACT, rank, call), (steps, N, 2))
        for t in range(steps):
            action = torch.zeros(N, dtype=torch.long) if greedy else (noise[t, :, 0] * 3).long()
            step = envs.step(action)
            table = memory.table
            for mine, other in zip(leaves(table.obs), leaves(obs), strict=True):
                assert torch.equal(mine[row], other)
            assert table.is_first[row].tolist() == first
            assert torch.equal(table.action[row], action)
            for name in ("reward", "terminated", "truncated"):
                assert torch.equal(getattr(table, name)[row], getattr(step, name))
            assert torch.equal(table.extras.noise[row], noise[t])
            assert table.extras.greedy[row].tolist() == [greedy] * N
            since = [0 if f else s for f, s in zip(first, since, strict=True)]
            assert table.extras.since[row, :, 0].tolist() == since
            obs, since = copy.deepcopy(step.obs), [s + 1 for s in since]
            first = (step.terminated | step.truncated).tolist()
            row += 1
    assert table.is_first[1:].any() and not table.is_first[1:].all()
    assert memory.written == calls * steps


def test_carry_of_a_cut_state_is_the_one_before_the_reset():
    collector, memory = collector_and_memory(20)
    collector.collect(20, memory)
    table = memory.table
    cut = table.truncated.nonzero().tolist()
    for t, world in cut:
        age = int(table.extras.since[t, world]) + 1
        assert memory.final.carry[0][table.slot[t, world], world].item() == age
    assert cut


def test_the_example_draws_nothing_and_moves_nothing():
    first, memory = collector_and_memory(5)
    for _ in range(3):
        first.example()
    first.collect(5, memory)
    second, other = collector_and_memory(5)
    second.collect(5, other)
    assert torch.equal(memory.table.extras.noise, other.table.extras.noise)
    assert torch.equal(memory.table.obs, other.table.obs)


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
    for mine, other in zip(leaves(tables[0]), leaves(tables[1]), strict=True):
        assert torch.equal(mine, other)
    assert len(tables[0].action.unique()) > 1


def test_noise_differs_by_seed_purpose_and_rank():
    noises = []
    for options in ({}, {"seed": 6}, {"purpose": EVALUATE}, {"rank": 1}):
        collector, memory = collector_and_memory(5, **options)
        collector.collect(5, memory)
        noises.append(memory.table.extras.noise.flatten().tolist())
    assert all(mine != other for i, mine in enumerate(noises) for other in noises[:i])


@pytest.mark.parametrize("p_end", [0.02, 0.9])
def test_window_equals_a_deque(p_end):
    """At 0.9 a single collect of 40 x 4 steps ends about 144 episodes, more than the window holds."""
    steps, rounds = 40, 60
    reward, terminated, truncated = random_tables(steps * rounds, N, 7, p_end / 2, p_end / 2)
    collector, memory = collector_and_memory(steps, Scripted(reward, terminated, truncated))
    episodes, best, count, most = deque(maxlen=100), float("-inf"), 0, 0
    paid, age = [0.0] * N, [0] * N
    assert collector.window.summary() == {"episodes": 0.0}
    for start in range(0, steps * rounds, steps):
        collector.collect(steps, memory)
        before = count
        for t in range(start, start + steps):
            for world in range(N):
                paid[world], age[world] = paid[world] + reward[t, world].item(), age[world] + 1
                if terminated[t, world] or truncated[t, world]:
                    episodes.append((paid[world], age[world]))
                    paid[world], age[world], count = 0.0, 0, count + 1
        most = max(most, count - before)
        summary = collector.window.summary()
        if count:
            mean, length = (sum(column) / len(episodes) for column in zip(*episodes, strict=True))
            best = max(best, mean)
            expected = {"ep_rew/mean": mean, "ep_rew/best": best, "ep_len/mean": length, "episodes": count}
            assert summary == pytest.approx(expected, rel=1e-5)
    assert count > (5000 if p_end > 0.5 else 150)
    assert (most > WINDOW) == (p_end > 0.5)


def test_window_keeps_the_last_hundred_in_order_when_one_call_brings_more():
    window = Window(torch.device("cpu"))
    window.add(torch.ones(3, 90, dtype=torch.bool), torch.arange(270.0).view(3, 90), torch.ones(3, 90))
    assert window.summary()["ep_rew/mean"] == sum(range(170, 270)) / 100
    window.add(torch.ones(1, 1, dtype=torch.bool), torch.tensor([[1170.0]]), torch.ones(1, 1))  # the oldest, 170, goes
    assert window.summary() == {"ep_rew/mean": 229.5, "ep_rew/best": 229.5, "ep_len/mean": 1.0, "episodes": 271.0}


def periodic(lengths, returns):
    """World i ends every lengths[i] steps with returns[i], paid in the last step."""
    t = torch.arange(1, 841)[:, None]
    ended = t % torch.tensor(lengths) == 0
    return Scripted(ended * torch.tensor(returns), ended, torch.zeros_like(ended))


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, [1.0]),
        (2, [1.0, 2.0]),
        (3, [1.0, 2.0, 3.0]),
        (7, [1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0]),
        (9, [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0, 3.0]),
    ],
)
def test_play_shares_the_episodes_out_evenly(count, expected):
    """The first world ends twenty episodes while the last ends one."""
    lengths = [1, 4, 20]
    played = Collector(periodic(lengths, [1.0, 2.0, 3.0]), Counting(), 0).play(count)
    assert played.returns == expected
    assert played.lengths == [float(lengths[int(r) - 1]) for r in expected]


def test_play_takes_each_worlds_episodes_in_their_order():
    reward = torch.arange(1.0, 7)[:, None].repeat(1, 2) * torch.tensor([1, 10])
    ended = torch.ones(6, 2, dtype=torch.bool)
    played = Collector(Scripted(reward, ended, ~ended), Counting(), 0).play(6)
    assert played.returns == [1.0, 2, 3, 10, 20, 30]


@pytest.mark.parametrize(
    ("max_steps", "expected"), [(3, [1.0] * 2), (4, [1.0] * 2 + [2.0]), (20, [1.0, 1.0, 2.0, 2.0, 3.0, 3.0][:5])]
)
def test_play_gives_up_after_max_steps(max_steps, expected):
    envs = periodic([1, 4, 20], [1.0, 2.0, 3.0])
    assert Collector(envs, Counting(), 0).play(6, max_steps).returns == expected
    assert envs.now == max_steps


def test_play_stops_as_soon_as_it_has_all():
    envs = periodic([1, 4, 20], [1.0, 2.0, 3.0])
    Collector(envs, Counting(), 0).play(5)
    assert envs.now == 20
    assert Collector(envs, Counting(), 0).play(0).returns == [] and envs.now == 0


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
    found = [played(each, None, count, max_steps, guarded) for each in (1, looks)]
    assert found[0] == found[1]
    assert len(found[0].returns) <= count and (max_steps or len(found[0].returns) == count)


@pytest.mark.parametrize("value", [NAN, float("inf"), -float("inf")])
@pytest.mark.parametrize("at", [0, 7, 20])
def test_to_look_rarely_finds_the_same_first_number(value, at):
    reward, terminated, truncated = random_tables(60, N, 0)
    reward[at, 2] = value
    watched, rarely = (played(looks, (reward, terminated, truncated), 30) for looks in (1, 9))
    assert watched == rarely and watched[1:3] == (f"reward: {word(value)}", 2)


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


def word(value):
    return "NaN" if value != value else "infinity" if value > 0 else "-infinity"


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
    for mine, other in zip(leaves(tables[0][0]), leaves(tables[1][0]), strict=True):
        assert torch.equal(mine, other)
    assert tables[0][1] == tables[1][1]


@pytest.mark.parametrize("form", ["tuple", "tensor", "dict"])
@pytest.mark.parametrize("named", [False, True])
def test_state_continues_in_mid_episode(form, named):
    old, memory = collector_and_memory(15, worlds(named=named), Counting(form))
    old.collect(15, memory)
    assert not old.is_first.all()
    file = io.BytesIO()
    torch.save(old.state_dict(), file)
    file.seek(0)
    new, other = collector_and_memory(15, worlds(named=named), Counting(form))
    new.load_state_dict(torch.load(file, weights_only=True))
    assert new.window.summary() == old.window.summary()
    for collector, into in ((old, memory), (new, other)):
        collector.collect(15, into)
    # the slot a row points to is the memory's state
    for mine, theirs in zip(leaves(memory.table._replace(slot=())), leaves(other.table._replace(slot=())), strict=True):
        assert torch.equal(mine, theirs)
    assert new.window.summary() == old.window.summary()
