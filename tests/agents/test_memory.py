"""The replay memory: its views against brute force over a log, and how often each row is drawn.

And worlds that truncate before the time limit they declare: it makes room, says so once, and loses no bit.
"""

import logging
from pathlib import Path
from tempfile import TemporaryDirectory

import gymnasium
import pytest
import torch
from driven import advance, agent_for, continued
from goodness import ALPHA, chi_square
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_log import ReplayLog, same, through_file
from worlds import Scripted, random_tables

from stride.agents.experience import storage
from stride.agents.experience.memory import slots_for
from stride.agents.experience.minibatches import in_order
from stride.agents.experience.nouns import Final, leaves, tree_map
from stride.utils.user_error import UserError

GAMMA = 0.9
ENDS = st.sampled_from([(0.1, 0.15), (0.3, 0.3), (0.0, 0.9), (0.5, 0.0), (0.0, 0.0)])  # terminations, cuts
SHAPES = st.fixed_dictionaries(
    {
        "rows": st.integers(4, 32),
        "n": st.integers(1, 3),
        "frames": st.sampled_from([1, 1, 2, 4]),
        "seed": st.integers(0, 99),
        "slots": st.sampled_from([None, 2, 5]),
        "ends": ENDS,
        "named": st.booleans(),
        "keep_terminal": st.booleans(),
        "storage": st.sampled_from(["ram", "ram", "memmap"]),
    }
)
WRITES = st.lists(st.integers(1, 40), min_size=3, max_size=6)


def resumed(log, memory, steps):
    """`memory` after a checkpoint of the log's memory, from which it draws the same rows."""
    old = log.memory
    state = through_file(old.state_dict())
    assert ("rows" in state) == (old.saved is None)
    memory.load_state_dict(state)
    assert memory.slots == old.slots and memory.segment_names() == old.segment_names()
    assert torch.equal(memory.slot, old.slot) and same(memory.columns_written(), old.columns_written())
    if memory.ready(steps + 1):
        assert same(memory.transitions(20, steps, GAMMA, 0.5), old.transitions(20, steps, GAMMA, 0.5))
    return memory


def play(shape, steps, priority, saved, moving, writes):
    """Writing, drawing, learning errors, saving and resuming: all that is drawn is what the log says."""
    log = ReplayLog(**shape)
    with TemporaryDirectory() as folder:

        def prepared(memory):
            if priority:
                memory.prioritise(0.6, steps)
            if saved:
                memory.save_in(Path(folder))
            if moving:
                memory.keep_gammas(GAMMA)
            return memory

        prepared(log.memory)
        for number in (*writes, 9, 8):
            gamma = number % 10 / 10 if moving else None
            memory = log.write(number, gamma).memory
            if memory.ready(steps + 1):
                drawn = memory.transitions(number, steps, GAMMA, beta=0.5)
                log.check(drawn, steps, GAMMA)
                if priority:
                    log.write(number % 5, gamma)  # what was drawn may be overwritten before its error is known
                    memory.priorities.update(drawn.row_id, torch.rand(number) * 5)
            if memory.keep_terminal and memory.ready(number // 3 + 2):
                log.check_sequences(memory.sequences(20, number // 3 + 1), number // 3 + 1)
            if number % 2:
                memory.state_dict()  # what is new is a file of its own
            assert len(memory) == min(len(log.log), log.rows) * log.n
            assert memory.slots == log.slots and memory.grown == (log.slots > log.first_slots)
            assert not memory.overflowed and not (memory.growth_unreported and memory.keep_terminal)
            if number % 3 == 0:
                log.memory = resumed(log, prepared(log.empty()), steps)


PLAYED = given(SHAPES, st.integers(1, 3), st.booleans(), st.booleans(), st.booleans(), WRITES)


@settings(max_examples=45)
@PLAYED
def test_whatever_is_done_the_views_are_what_the_log_says(shape, steps, priority, saved, moving, writes):
    play(shape, steps, priority, saved, moving, writes)


@pytest.mark.soak
@pytest.mark.slow
@settings(max_examples=5_000)
@PLAYED
def test_a_million_operations_are_what_the_log_says(shape, steps, priority, saved, moving, writes):
    play(shape, steps, priority, saved, moving, writes)


@settings(max_examples=70)
@given(
    st.integers(1, 16), st.integers(1, 4), st.none() | st.integers(1, 20), ENDS, st.booleans(), st.integers(0, 99)
)  # fmt: skip
def test_every_cut_row_of_a_rollout_finds_its_final_observation(steps, n, limit, ends, named, seed):
    """Also where worlds are cut more often than their limit says: then the memory makes room, and says so once."""
    log = ReplayLog(steps, n, 1, seed, slots_for(steps, limit), ends, named, limit, replayed=False)
    memory, addresses = log.memory, {}
    for _ in range(5):
        view = log.write(steps).check_rollout()
        assert view.row is memory.table and view.final is memory.final
        addresses.setdefault(memory.slots, []).append([x.data_ptr() for x in leaves((view.row, view.final))])
        assert memory.slots == log.slots and memory.growth_unreported == memory.grown == (log.slots > log.first_slots)
    assert all(places.count(places[0]) == len(places) for places in addresses.values()), "nothing is copied"
    assert not memory.overflowed and (ends[1] or limit is None or not memory.grown)
    fresh, state = log.empty(), through_file(memory.state_dict())
    fresh.load_state_dict(state)
    assert "rows" not in state and torch.equal(fresh.slot, memory.slot) and fresh.written == 5 * steps


def test_slots_are_few_where_a_time_limit_is_declared():
    assert [slots_for(128, 500), slots_for(128, 64), slots_for(128, None), slots_for(1, 500)] == [2, 4, 128, 1]


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("total", [4, 40, 41, 90])
@pytest.mark.parametrize("by_priority", [False, True], ids=["evenly", "by priority"])
def test_each_row_is_drawn_as_often_as_it_should(total, frames, by_priority, steps=2, alpha=0.7):
    log = ReplayLog(40, 2, frames, seed=5)
    if by_priority:
        log.memory.prioritise(alpha, steps)
    rows = log.write(total).possible(steps)
    p = torch.ones(len(rows)).double()
    if by_priority:
        error = torch.rand(len(rows), generator=torch.Generator().manual_seed(1)).double() * 5
        log.memory.priorities.follow(total)
        log.memory.priorities.update(torch.tensor(rows), error)
        p = (error + 1e-6) ** alpha
    drawn = log.memory.transitions(200 * len(rows), steps, GAMMA, beta=0.4)
    counts = torch.bincount(drawn.row_id - rows.start, minlength=len(rows))
    assert len(counts) == len(rows) and ALPHA < chi_square(counts.numpy(), (p / p.sum()).numpy()) < 1 - ALPHA
    mine = p[drawn.row_id - rows.start]
    torch.testing.assert_close(drawn.weight, (mine / mine.min()).pow(-0.4).float())


def test_draws_differ_from_call_to_call_and_between_ranks_and_seeds():
    logs = [ReplayLog(**changed).write(32) for changed in ({}, {}, {"rank": 1}, {"seed": 4})]
    first, again, rank, seed = (log.memory.transitions(50, 1, GAMMA).row_id.tolist() for log in logs)
    assert first == again
    assert logs[0].memory.transitions(50, 1, GAMMA).row_id.tolist() not in (first, rank, seed)
    assert first != rank != seed != first


@pytest.mark.parametrize("priority", [False, True])
def test_batches_are_one_draw_in_pieces_or_a_draw_each_by_priority(monkeypatch, priority):
    log, other = ReplayLog(seed=4), ReplayLog(seed=4)
    for memory in (log.memory, other.memory) if priority else ():
        memory.prioritise(0.6, 2)
    pieces = [piece for drawn in log.write(32).memory.draws(5, 8, 2, GAMMA) for piece in in_order(drawn, 8)]
    memory = other.write(32).memory
    drawn = [memory.transitions(8, 2, GAMMA) for _ in range(5)] if priority else [memory.transitions(40, 2, GAMMA)]
    whole, joined = (tree_map(lambda *x: torch.cat(x), *parts) for parts in (drawn, pieces))
    assert same(whole, joined)
    monkeypatch.setattr("stride.agents.experience.memory.GATHER_BYTES", 1)
    assert [len(piece.reward) for piece in memory.draws(3, 8, 2, GAMMA)] == [8] * 3


@pytest.mark.parametrize("written", [0, 3])
def test_too_few_rows_is_a_clear_error_and_just_enough_are_enough(written):
    log = ReplayLog(keep_terminal=True).write(written)
    for draw, steps in ((log.memory.transitions, (3, GAMMA)), (log.memory.sequences, (12,))):
        with pytest.raises(ValueError, match=rf"{steps[0] + 1} consecutive .* {written} are stored"):
            draw(5, *steps)
    assert set((log.write(4 - written).memory.transitions(50, 3, GAMMA).row_id // log.n).tolist()) == {0}


def test_a_state_does_not_follow_its_owner():
    log = ReplayLog(slots=2)
    log.memory.prioritise(0.6, 1)
    state = log.write(40).memory.state_dict()
    before = through_file(state)
    log.write(40).memory.priorities.update(log.memory.transitions(9, 1, GAMMA).row_id, torch.rand(9))
    assert same(state, before)


# --- slots that were used again too early are noted, wherever rows were written by others


def test_sequences_from_a_slot_used_again_too_early_are_noted():
    memory = ReplayLog(keep_terminal=True, slots=8).write(32).memory
    memory._cuts[1] = memory.slots
    memory.sequences(5, 6)
    assert memory.overflowed


def test_what_an_engine_wrote_and_cut_too_often_is_noted():
    memory = ReplayLog(rows=8, slots=3).memory
    memory.table.truncated[:3, 1] = True
    memory.count_written(8, torch.zeros(8, 2, dtype=torch.bool))
    memory.rollout((), Final(memory.table.obs[0], ()))
    assert memory.overflowed


# --- worlds that truncate before their time limit

MOMENTS = (1, 8, 40)  # iterations after which it is interrupted


ROLLOUT = "n_envs=2 n_steps=32 batch_size=32 n_epochs=2"
FROM_MEMORY = "n_envs=2 train_freq=16 gradient_steps=2 batch_size=16 buffer_size=800 learning_starts=64"
AGENTS = {
    "ppo": f"CartPole-v1:ppo {ROLLOUT} engine=eager",
    "ppo, fused": f"CartPole-v1:ppo {ROLLOUT} engine=fused_cpu",
    "ppo, lstm": "CartPole-v1:ppo_lstm n_envs=2 n_steps=32 n_epochs=1 batch_size=1.0",
    "reinforce, fused": "CartPole-v1:reinforce n_envs=2 n_steps=32 policy_targets=advantages engine=fused_cpu",
    "dqn, prioritised": f"CartPole-v1:dqn {FROM_MEMORY} prioritised=true n_step=3 engine=eager",
    "dqn, fused": f"CartPole-v1:dqn {FROM_MEMORY} engine=fused_cpu",
    "sac, fused": f"Pendulum-v1:sac {FROM_MEMORY} engine=fused_cpu",
}


def short(config, n):
    """Worlds that cut their episodes after about 20 steps; the limit that they declare is 500."""
    space = gymnasium.spaces.Box(-1, 1, (1,)) if config.algo_id == "sac" else gymnasium.spaces.Discrete(2)
    return Scripted(*random_tables(997, n, 3, 0.0, 0.05), time_limit=500, action_space=space)


def agent_of(name, folder):
    agent = agent_for(*AGENTS[name].split(), worlds=short)
    agent.memory.save_in(folder)
    return agent


def everything(agent):
    parts = {name: part.state_dict() for name, part in agent.parts.items()}
    rows = agent.memory.columns_written() if agent.memory.replayed else []
    return [agent.state_dict(), agent.optimizer.state_dict(), {**parts, "memory": []}, rows]


@pytest.mark.parametrize("name", AGENTS)
def test_what_is_interrupted_before_or_after_a_growth_goes_on_as_if_it_had_not_been(name, tmp_path, caplog):
    caplog.set_level(logging.INFO, "stride")
    straight = agent_of(name, tmp_path)
    declared, interrupted, slots = straight.memory.slots, [], []
    for at in range(1, 46 if straight.memory.replayed else 16):
        for agent in (straight, *interrupted):
            advance(agent, 1)
        slots.append(straight.memory.slots)
        if at in MOMENTS:
            interrupted.append(continued(straight, agent_of(name, tmp_path)))
    assert len({declared, *slots}) > 2, "it has grown, and more than once"
    assert not straight.memory.overflowed and straight.progress["updates"]
    assert all(same(everything(agent), everything(straight)) for agent in interrupted)
    line = "-v1 truncates episodes before its time limit of 500 steps: "
    lines = [message for message in caplog.messages if line in message]
    # by the straight one, and by those that were interrupted before the first growth
    assert len(lines) == 1 + sum(slots[at - 1] == declared for at in MOMENTS if at <= len(slots))


def test_room_that_is_not_there_names_the_key_to_lower(monkeypatch):
    log = ReplayLog(rows=31, n=1, slots=2, seed=1, ends=(0.3, 0.3))
    monkeypatch.setattr(storage, "free_bytes", lambda kind: 10)
    with pytest.raises(UserError, match=r"buffer_size 31 needs 16 bytes, 9 bytes may be used in memory"):
        log.write(31)
