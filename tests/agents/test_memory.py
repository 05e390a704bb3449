"""The three views of the memory against brute force over recorded episodes."""

import io
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from worlds import Scripted, limited_tables, random_tables

from stride.agents.experience.memory import Memory, slots_for
from stride.agents.experience.nouns import Act, Final, Row

N, ROWS, GAMMA = 3, 64, 0.9
TOTALS = {"half full": 37, "exactly full": 64, "wrapped": 150, "wrapped twice": 192}


class Stored(NamedTuple):
    """What a policy might want to remember."""

    mark: Tensor
    double: Tensor


class Instant(NamedTuple):
    """One row of one world, in plain numbers."""

    obs: float
    is_first: bool
    action: int
    reward: float
    terminated: bool
    truncated: bool
    final: float


def memory_for(envs, rows=ROWS, slots=None, keep_terminal=False, replayed=True, seed=3, rank=0):
    n = envs.num_envs
    flag, mark = torch.zeros(n, dtype=torch.bool), torch.zeros(n, 2)
    example = Row(
        envs.reset(0),
        flag,
        torch.zeros(n, dtype=torch.long),
        mark[:, 0],
        flag,
        flag,
        flag.long(),
        Stored(mark, mark[:, 0]),
    )
    return Memory(example, (), rows, rows if slots is None else slots, seed, rank, keep_terminal, replayed)


class Recording:
    """A memory being written, and a Python log of the same, log[row][world]."""

    def __init__(self, envs, memory):
        self.envs, self.memory, self.log = envs, memory, []
        self.obs = self._copy(envs.reset(0))
        self.first = torch.ones(envs.num_envs, dtype=torch.bool)

    def _copy(self, obs):
        return {name: x.clone() for name, x in obs.items()} if self.envs.named else obs.clone()

    def _instants(self, obs):
        return (obs["at"] if self.envs.named else obs)[:, 1].tolist()

    def write(self, steps):
        for _ in range(steps):
            t, n = len(self.log), self.envs.num_envs
            action = (torch.arange(n) * 7 + t * 5) % 4 + 1  # never 0, which stands for "no action led here"
            mark = torch.stack([torch.full((n,), float(t)), torch.arange(n).float()], 1)
            at, first = self._instants(self.obs), self.first.tolist()
            step = self.envs.step(action)
            self.memory.write(self.obs, self.first, Act(action, Stored(mark, 2 * mark[:, 0])), step)
            columns = (step.reward, step.terminated, step.truncated)
            facts = zip(
                at, first, action.tolist(), *(x.tolist() for x in columns), self._instants(step.final_obs), strict=True
            )
            self.log.append([Instant(*fact) for fact in facts])
            self.obs, self.first = self._copy(step.obs), step.terminated | step.truncated
        return self


def recording(total, keep_terminal=False, named=False, rows=ROWS, slots=None, tables=None):
    envs = Scripted(*(tables or random_tables(total, N, seed=total)), named=named)
    return Recording(envs, memory_for(envs, rows, slots, keep_terminal)).write(total)


def check_kinds(obs, at):
    """The other leaves of a named observation belong to the same instant."""
    whole = at[..., 1].long()
    assert torch.equal(obs["kind"], whole % 3)
    assert torch.equal(obs["pair"], torch.stack((whole % 2, whole % 3), -1))


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("total", TOTALS.values(), ids=TOTALS)
def test_transitions(total, steps, named):
    recorded = recording(total, named=named)
    log, drawn = recorded.log, recorded.memory.transitions(600, steps, GAMMA)
    seen = set()
    obs, next_obs = (x["at"] if named else x for x in (drawn.obs, drawn.next_obs))
    for b in range(600):
        row, world = divmod(int(drawn.row_id[b]), N)
        assert max(0, total - ROWS) <= row < total - steps
        reward, discount, k = 0.0, 1.0, 0
        while True:
            at = log[row + k][world]
            reward, discount, k = reward + discount * at.reward, discount * GAMMA, k + 1
            if at.terminated or at.truncated or k == steps:
                break
        future = at.final if at.truncated else log[row + k][world].obs
        seen.add("terminated" if at.terminated else "truncated" if at.truncated else "neither")
        assert drawn.reward[b].item() == pytest.approx(reward, abs=1e-5)
        assert drawn.discount[b].item() == (0 if at.terminated else pytest.approx(discount, abs=1e-6))
        assert obs[b].tolist() == [world, log[row][world].obs]
        assert drawn.action[b] == log[row][world].action
        if not at.terminated:  # after a termination nobody may look at it; it is finite all the same
            assert next_obs[b].tolist() == [world, future]
    assert seen == {"terminated", "truncated", "neither"}
    assert next_obs.isfinite().all()
    if named:
        check_kinds(drawn.obs, obs)
        check_kinds(drawn.next_obs, next_obs)


def arrivals(log, world):
    """(obs, action that led here, reward on arrival, is_first, terminated, row_id) in order, finals included."""
    stream, action, reward = [], 0, 0.0
    for row, worlds in enumerate(log):
        at = worlds[world]
        action, reward = (0, 0.0) if at.is_first else (action, reward)
        stream.append((at.obs, action, reward, at.is_first, False, row * N + world))
        action, reward = at.action, at.reward
        if at.terminated or at.truncated:
            stream.append((at.final, action, reward, False, at.terminated, -1))
    return stream


@pytest.mark.parametrize("slots", [None, 2], ids=["all the room", "room that grows"])
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("total", TOTALS.values(), ids=TOTALS)
def test_sequences(total, named, slots):
    length = 12
    recorded = recording(total, keep_terminal=True, named=named, slots=slots)
    memory = recorded.memory
    assert (memory.grown, memory.slots < ROWS) == (slots is not None,) * 2 and not memory.growth_unreported
    drawn = recorded.memory.sequences(200, length)
    streams = [arrivals(recorded.log, world) for world in range(N)]
    at = drawn.obs["at"] if named else drawn.obs
    for b in range(200):
        row, world = (int(x) for x in drawn.extras.mark[b])
        assert drawn.extras.double[b] == 2 * row
        assert max(0, total - ROWS) <= row < total - length
        start = [entry[-1] for entry in streams[world]].index(row * N + world) + 1
        for j, expected in enumerate(streams[world][start : start + length]):
            assert at[j, b].tolist() == [world, expected[0]]
            columns = (drawn.action, drawn.reward, drawn.is_first, drawn.terminated, drawn.row_id)
            assert tuple(x[j, b].item() for x in columns) == expected[1:]
    assert drawn.terminated.any() and drawn.is_first.any() and (drawn.row_id < 0).sum() > drawn.terminated.sum()
    assert not memory.overflowed
    if named:
        check_kinds(drawn.obs, at)


def test_sequences_from_a_slot_used_again_too_early_are_noted():
    memory = recording(40, keep_terminal=True, slots=8).memory
    memory._cuts[1] = memory.slots
    memory.sequences(5, 6)
    assert memory.overflowed


@pytest.mark.parametrize("valued", [True, False])
def test_final_observations_have_a_carry_only_where_they_are_valued(valued):
    envs = Scripted(*random_tables(8, N, 1))
    flag = torch.zeros(N, dtype=torch.bool)
    example = Row(envs.reset(0), flag, flag.long(), flag.float(), flag, flag, flag.long(), ())
    memory = Memory(example, (torch.zeros(N, 7),) if valued else (), 8, 8, seed=3)
    memory.write(envs.reset(0), flag, Act(flag.long(), (), (torch.ones(N, 7),)), envs.step(flag.long()))
    assert (memory.final.carry[0][0] == 1).all() if valued else memory.final.carry == ()


@pytest.mark.parametrize("total", TOTALS.values(), ids=TOTALS)
@pytest.mark.parametrize("steps", [1, 3])
def test_draws_cover_every_valid_row_equally(total, steps):
    memory = recording(total).memory
    valid = range(max(0, total - ROWS) * N, (total - steps) * N)
    each = 60
    drawn = memory.transitions(each * len(valid), steps, GAMMA)
    counts = torch.bincount(drawn.row_id - valid.start, minlength=len(valid))
    assert drawn.row_id.min() >= valid.start and len(counts) == len(valid)
    chi_square = ((counts - each).square() / each).sum()
    p = torch.special.gammaincc(torch.tensor((len(valid) - 1) / 2), chi_square / 2)
    assert 1e-6 < p < 1 - 1e-6


def test_draws_differ_from_call_to_call_and_between_ranks_and_seeds():
    envs = Scripted(*random_tables(64, N, 0))
    memories = [
        Recording(envs, memory_for(envs, **which)).write(64).memory for which in ({}, {}, {"rank": 1}, {"seed": 4})
    ]
    first, again, rank, seed = (memory.transitions(50, 1, GAMMA).row_id.tolist() for memory in memories)
    assert first == again
    assert memories[0].transitions(50, 1, GAMMA).row_id.tolist() not in (first, rank, seed)
    assert first != rank != seed != first


@pytest.mark.parametrize("written", [0, 3])
def test_too_few_rows_is_a_clear_error(written):
    memory = recording(written, tables=random_tables(10, N, 0)).memory
    with pytest.raises(ValueError, match=rf"4 consecutive rows were asked for, {written} are stored"):
        memory.transitions(5, 3, GAMMA)
    with pytest.raises(ValueError, match=rf"13 consecutive rows were asked for, {written} are stored"):
        memory.sequences(5, 12)


def test_just_enough_rows_is_enough():
    assert set((recording(4).memory.transitions(50, 3, GAMMA).row_id // N).tolist()) == {0}


def test_length_is_the_rows_remembered():
    assert [len(recording(total).memory) for total in (0 + 1, 37, 64, 150)] == [1 * N, 37 * N, 64 * N, 64 * N]


def through_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("carry_over", [lambda state: state, through_file], ids=["in memory", "through a file"])
@pytest.mark.parametrize("total", [37, 150])
def test_state_continues_the_same_draws_and_the_same_writing(total, carry_over):
    old = recording(total, keep_terminal=True, slots=2)
    old.memory.transitions(5, 1, GAMMA)
    saved = carry_over(old.memory.state_dict())
    assert [len(x) for x in saved["extras"]] == [min(total, ROWS)] * 2
    fresh = memory_for(Scripted(*random_tables(5, N, 0)), slots=2, keep_terminal=True)

    def future():
        return [
            old.memory.transitions(100, 3, GAMMA),
            old.memory.sequences(100, 6),
            old.write(70).memory.transitions(100, 3, GAMMA),
            old.memory.sequences(100, 6),
        ]

    was = old.envs.state_dict(), old.obs.clone(), old.first.clone(), len(old.log)
    expected = future()
    fresh.load_state_dict(saved)
    old.envs.load_state_dict(was[0])
    old.memory, old.obs, old.first = fresh, was[1], was[2]
    del old.log[was[3] :]
    for before, after in zip(expected, future(), strict=True):
        for mine, other in zip(before[:5], after[:5], strict=True):
            assert torch.equal(mine, other)
        assert torch.equal(before.row_id, after.row_id)


def test_a_memory_that_is_not_replayed_saves_no_rows_but_its_slots():
    envs = Scripted(*random_tables(20, N, 0))
    memory = Recording(envs, memory_for(envs, rows=20, replayed=False)).write(20).memory
    state = through_file(memory.state_dict())
    assert "rows" not in state
    fresh = memory_for(envs, rows=20, replayed=False)
    fresh.load_state_dict(state)
    assert torch.equal(fresh.slot, memory.slot) and fresh.slot.any()
    assert (fresh.written, fresh.drawn) == (20, 0)


def test_rollout_is_the_table_itself():
    recorded = recording(16, rows=16)
    following = Final(recorded.obs, ())
    rollout = recorded.memory.rollout((), following)
    assert rollout.row is recorded.memory.table and rollout.final is recorded.memory.final and rollout.next is following
    before = rollout.row.reward.clone()
    recorded.envs.tables = random_tables(16, N, 99)
    addresses = [
        x.data_ptr() for x in (rollout.row.reward, rollout.row.obs, rollout.row.extras.mark, rollout.final.obs)
    ]
    recorded.write(16)
    again = recorded.memory.rollout((), following)
    assert [
        x.data_ptr() for x in (again.row.reward, again.row.obs, again.row.extras.mark, again.final.obs)
    ] == addresses
    assert not torch.equal(before, rollout.row.reward)
    for t in range(16):
        for world in range(N):
            at = recorded.log[16 + t][world]
            row = [x[t, world].item() for x in (again.row.is_first, again.row.action, again.row.reward)]
            assert row == [at.is_first, at.action, at.reward]
            assert again.row.obs[t, world].tolist() == [world, at.obs]
            assert again.row.extras.mark[t, world].tolist() == [16 + t, world]


@pytest.mark.parametrize("limit", [None, 1, 2, 3, 5, 100])
@pytest.mark.parametrize("steps", [1, 2, 5, 8, 16])
@pytest.mark.parametrize("p_terminated", [0.0, 0.2])
def test_every_cut_row_finds_its_final_observation(limit, steps, p_terminated):
    rollouts, n, cut = 12, 4, 0
    tables = limited_tables(rollouts * steps, n, limit, seed=steps, p_terminated=p_terminated)
    envs = Scripted(*tables, time_limit=limit)
    memory = memory_for(envs, rows=steps, slots=slots_for(steps, limit))
    recorded = Recording(envs, memory)
    for rollout in range(rollouts):
        recorded.write(steps)
        view = memory.rollout((), Final(recorded.obs, ()))
        for t, world in view.row.truncated.nonzero().tolist():
            assert view.final.obs[view.row.slot[t, world], world].tolist() == [
                world,
                recorded.log[rollout * steps + t][world].final,
            ]
            cut += 1
    assert cut or limit == 100, "the test must have seen a cut"
    assert not memory.overflowed


def test_slots_are_few_where_a_time_limit_is_declared():
    assert [slots_for(128, 500), slots_for(128, 64), slots_for(128, None), slots_for(1, 500)] == [2, 4, 128, 1]


@pytest.mark.parametrize(
    "cuts", [[], [0], [0, 4], [3, 7], [0, 2, 4], [0, 1, 2, 3], [0, 2, 4, 6], [4, 5, 6, 7], [*range(5)], [*range(8)]]
)
def test_no_final_observation_is_lost_unnoticed(cuts):
    """A limit of 4 was declared for 8 steps; where a world is cut more often the memory makes room."""
    truncated = torch.zeros(8, 2, dtype=torch.bool)
    truncated[cuts, 1] = True
    envs = Scripted(torch.zeros(8, 2), torch.zeros_like(truncated), truncated, time_limit=4)
    recorded = Recording(envs, memory_for(envs, rows=8, slots=slots_for(8, 4))).write(8)
    view = recorded.memory.rollout((), Final(recorded.obs, ()))
    assert all(view.final.obs[view.row.slot[t, 1], 1, 1] == recorded.log[t][1].final for t in cuts)
    assert not recorded.memory.overflowed and recorded.memory.grown == (len(cuts) > 3)
    assert recorded.memory.slots == (4 if len(cuts) < 4 else 8) == len(view.final.obs)


def test_what_an_engine_wrote_and_cut_too_often_is_noted():
    memory = memory_for(Scripted(torch.zeros(8, 1), *torch.zeros(2, 8, 1, dtype=torch.bool)), rows=8, slots=3)
    memory.table.truncated[:3] = True
    memory.count_written(8, torch.zeros(8, 1, dtype=torch.bool))
    memory.rollout((), Final(memory.table.obs[0], ()))
    assert memory.overflowed
