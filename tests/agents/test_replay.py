"""The replay memory: n-step windows by hand, stacks from single frames, priorities, storages, sizes, brute force."""

import random

import pytest
import torch
from goodness import ALPHA, chi_square
from replay_log import Logged, ReplayLog

from stride.agents.experience import storage
from stride.agents.experience.memory import Memory, slots_for
from stride.agents.experience.minibatches import in_order
from stride.agents.experience.nouns import Act, Row, leaves
from stride.agents.experience.storage import check_fits, readable_size
from stride.envs_fast.vec_env import Step
from stride.utils.user_error import UserError

GAMMA = 0.9
KINDS = {
    "neither": [(1, 0, 0), (2, 0, 0), (4, 0, 0)],
    "terminated": [(1, 0, 0), (2, 1, 0), (4, 0, 0)],
    "truncated": [(1, 0, 0), (2, 0, 1), (4, 0, 0)],
    "both": [(1, 0, 0), (2, 1, 1), (4, 0, 0)],
    "at once": [(1, 0, 1), (2, 0, 0), (4, 0, 0)],
    "at last": [(1, 0, 0), (2, 0, 0), (4, 0, 1)],
}
BY_HAND = {  # n-step return of row 0, its discount, and the frame it leads to; by pencil
    "neither": (1 + 0.9 * 2 + 0.81 * 4, 0.729, "next"),
    "terminated": (1 + 0.9 * 2, 0.0, None),
    "truncated": (1 + 0.9 * 2, 0.81, "final 1"),
    "both": (1 + 0.9 * 2, 0.0, None),
    "at once": (1, 0.9, "final 0"),
    "at last": (1 + 0.9 * 2 + 0.81 * 4, 0.729, "final 2"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_window_of_three_by_hand(kind):
    log = ReplayLog(rows=8, n=1)
    for t, (reward, terminated, truncated) in enumerate([*KINDS[kind], (0, 0, 0)]):
        log.put([Logged(log.stacks[0], t, float(reward), bool(terminated), bool(truncated), [100.0 + t])])
    reward, discount, leads_to = BY_HAND[kind]
    drawn = log.memory.transitions(4, 3, GAMMA)
    frames = {"next": log.log[3][0].stack[0], "final 0": 100.0, "final 1": 101.0, "final 2": 102.0}
    assert drawn.row_id.tolist() == [0] * 4
    assert drawn.reward.tolist() == pytest.approx([reward] * 4)
    assert drawn.discount.tolist() == pytest.approx([discount] * 4)
    if leads_to:
        assert drawn.next_obs[:, 0].tolist() == [frames[leads_to]] * 4
    assert drawn.weight.tolist() == [1] * 4


def play(seed, operations):
    """Random writing, drawing, telling of errors, saving and loading, until so many rows were written or drawn."""
    chance = random.Random(seed)
    done = 0
    while done < operations:
        rows, n, frames = chance.choice([5, 16, 33, 64]), chance.choice([1, 2, 3]), chance.choice([1, 1, 2, 4])
        steps = chance.choice([1, 2, 3])
        log = ReplayLog(rows, n, frames, chance.randrange(10**6), storage=chance.choice(["ram", "ram", "memmap"]))
        if by_priority := chance.random() < 0.5:
            log.memory.prioritise(0.6, steps)
        for _ in range(chance.randrange(40, 120)):
            count = chance.randrange(1, 2 * rows)
            log.write(chance.randrange(1, 8))
            done += 4 * n
            if not log.memory.ready(steps + 1):
                continue
            drawn = log.memory.transitions(count, steps, GAMMA, beta=0.5)
            log.check(drawn, steps, GAMMA)
            done += count
            if by_priority:
                log.write(chance.choice([0, 0, 1, rows]))  # what was drawn may be overwritten before its error is known
                log.memory.priorities.update(drawn.row_id, torch.rand(count) * 10 ** chance.uniform(-6, 3))
            if chance.random() < 0.1:
                fresh = ReplayLog(rows, n, frames, log.memory._seed)
                if by_priority:
                    fresh.memory.prioritise(0.6, steps)
                fresh.memory.load_state_dict(log.memory.state_dict())
                log.memory = fresh.memory
        assert not log.memory.overflowed


@pytest.mark.parametrize("seed", range(2))
def test_whatever_is_done_the_views_are_what_the_log_says(seed):
    play(seed, 10_000)


@pytest.mark.soak
@pytest.mark.slow
def test_a_million_random_operations():
    play(1234, 10**6)


def test_batches_are_one_draw_cut_in_pieces(monkeypatch):
    log, same = ReplayLog(seed=4).write(50), ReplayLog(seed=4).write(50)
    whole = log.memory.transitions(5 * 8, 2, GAMMA)
    (drawn,) = same.memory.draws(5, 8, 2, GAMMA)
    pieces = list(in_order(drawn, 8))
    assert [len(piece.reward) for piece in pieces] == [8] * 5
    for mine, parts in zip(leaves(whole), zip(*map(leaves, pieces), strict=True), strict=True):
        assert torch.equal(mine, torch.cat(parts))
    monkeypatch.setattr("stride.agents.experience.memory.GATHERED", 1)
    assert [len(each.reward) for each in same.memory.draws(3, 8, 2, GAMMA)] == [8] * 3


def test_by_priority_every_batch_is_a_draw_of_its_own():
    log = ReplayLog(seed=4)
    log.memory.prioritise(0.6, 2)
    draws = log.write(50).memory.draws(3, 8, 2, GAMMA, 0.4)
    assert [len(each.reward) for each in draws] == [8] * 3


# Stacks


def test_images_are_kept_once_as_bytes_and_stacked_when_drawn():
    """3 frames of 2 channels: what is drawn is what FrameStack showed, over a wrapped ring."""
    frames, n, rows = 3, 2, 12
    count = iter(range(1, 10**6))

    def frame():
        return torch.full((2, 4, 4), next(count) % 251, dtype=torch.uint8)

    stacks = [[frame()] * frames for _ in range(n)]
    obs = torch.stack([torch.cat(stack) for stack in stacks])
    flag = torch.zeros(n, dtype=torch.bool)
    example = Row(obs, flag, flag.long(), flag.float(), flag, flag, flag.long(), ())
    memory = Memory(example, (), rows, rows, seed=1, frames=frames)
    assert memory.table.obs.shape == (rows, n, 2, 4, 4) and memory.table.obs.dtype == torch.uint8
    seen, first = [], torch.ones(n, dtype=torch.bool)
    for t in range(40):
        obs = torch.stack([torch.cat(stack) for stack in stacks])
        ended = torch.tensor([t % 7 == 6, t % 5 == 4])
        following = [[*stack[1:], frame()] for stack in stacks]
        final = torch.stack([torch.cat(stack) for stack in following])
        stacks = [[frame()] * frames if end else stack for stack, end in zip(following, ended.tolist(), strict=True)]
        after = torch.stack([torch.cat(stack) for stack in stacks])
        seen.append((obs, torch.where(ended[:, None, None, None], final, after)))
        step = Step(after, flag.float(), flag, ended, final, flag.float(), flag.float())
        memory.write(obs, first, Act(flag.long()), step)
        first = ended
    drawn = memory.transitions(200, 1, GAMMA)
    assert drawn.obs.dtype == drawn.next_obs.dtype == torch.uint8
    for b, row_id in enumerate(drawn.row_id.tolist()):
        row, world = divmod(row_id, n)
        assert torch.equal(drawn.obs[b], seen[row][0][world]) and torch.equal(drawn.next_obs[b], seen[row][1][world])


def test_a_million_rows_of_atari_stay_under_8_gb():
    """Four 84 x 84 frames are shown, one is kept; nothing is touched before it is written, so this costs nothing."""
    flag = torch.zeros(1, dtype=torch.bool)
    obs = torch.zeros(1, 4, 84, 84, dtype=torch.uint8)
    example = Row(obs, flag, flag.long(), flag.float(), flag, flag, flag.long(), ())
    slots = slots_for(10**6, 27_000)
    kept = example._replace(obs=obs[:, :1])
    size = 10**6 * storage.bytes_of(kept) + slots * storage.bytes_of(obs[:, :1])
    assert size < 8e9
    if size < 0.9 * storage.free_bytes("ram"):
        memory = Memory(example, (), 10**6, slots, seed=1, frames=4)
        assert memory.bytes == size and str(memory) == "replay memory: 1,000,000 env steps, 7.08 GB in ram"


# Sizes and storages


def test_what_cannot_fit_is_refused_with_the_key_to_lower(monkeypatch):
    monkeypatch.setattr(storage, "free_bytes", lambda kind: 10**9)
    check_fits(9 * 10**8, 1000, "ram")
    with pytest.raises(
        UserError, match=r"buffer_size 1,000 takes 4 GB, 900 MB may be taken in memory; buffer_size=225"
    ):
        check_fits(4 * 10**9, 1000, "ram")
    flag = torch.zeros(1, dtype=torch.bool)
    example = Row(torch.zeros(1, 1000), flag, flag.long(), flag.float(), flag, flag, flag.long(), ())
    monkeypatch.setattr(storage, "free_bytes", lambda kind: 10**6)
    with pytest.raises(UserError, match="on the disk of the runs"):
        Memory(example, (), 10**3, 10, seed=1, storage="memmap")
    Memory(example, (), 10**3, 10, seed=1, replayed=False)


@pytest.mark.parametrize("kind", ["ram", "memmap"])
def test_free_space_is_a_number(kind):
    assert 10**6 < storage.free_bytes(kind) < 10**18


def test_sizes_in_words():
    assert [readable_size(size) for size in (7.1e9, 42e6, 1000, 12)] == ["7.1 GB", "42 MB", "1 kB", "12 bytes"]


def test_a_restored_memory_notices_the_cut_that_is_one_too_many():
    """Five cuts fill five slots and are checkpointed; for a sixth there is none left but one that may be drawn."""
    cut, on = (Logged([0.0], 0, 0.0, False, truncated, [0.0]) for truncated in (True, False))
    log, restored = ReplayLog(n=1, slots=6), ReplayLog(n=1, slots=6)
    for line in (cut, on, cut, on, cut, cut, cut):
        log.put([line])
    restored.memory.load_state_dict(log.memory.state_dict())
    for each in (log, restored):
        assert each.memory.slots == 6
        each.put([cut])
        each.memory.check_slots()
        assert each.memory.slots == 12 and not each.memory.overflowed


def test_a_mapped_memory_is_the_same_and_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    ram, mapped = (ReplayLog(seed=3, storage=kind).write(50) for kind in ("ram", "memmap"))
    for mine, other in zip(
        leaves(ram.memory.transitions(64, 3, GAMMA)), leaves(mapped.memory.transitions(64, 3, GAMMA)), strict=True
    ):
        assert torch.equal(mine, other)
    assert not list(tmp_path.rglob("*"))


# Priorities


def prioritised(rows=40, n=2, steps=2, total=90, alpha=0.7, frames=1):
    log = ReplayLog(rows, n, frames, seed=5)
    log.memory.prioritise(alpha, steps)
    log.write(total)
    log.memory.priorities.follow(total)
    return log


def possible(log, steps):
    return range(log.valid * log.n, (len(log.log) - steps) * log.n)


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("total", [20, 40, 90])
def test_rows_are_drawn_as_often_as_their_priorities_say(total, frames):
    log, alpha = prioritised(total=total, frames=frames), 0.7
    rows = possible(log, 2)
    error = torch.rand(len(rows), generator=torch.Generator().manual_seed(1)).double() * 5
    log.memory.priorities.update(torch.tensor(rows), error)
    drawn = log.memory.transitions(200 * len(rows), 2, GAMMA, beta=0.4)
    p = (error + 1e-6) ** alpha
    counts = torch.bincount(drawn.row_id - rows.start, minlength=len(rows))
    assert len(counts) == len(rows) and chi_square(counts.numpy(), (p / p.sum()).numpy()) > ALPHA
    mine = p[drawn.row_id - rows.start]
    torch.testing.assert_close(drawn.weight, (mine / mine.min()).pow(-0.4).float())
    assert drawn.weight.max() == 1


def test_a_new_row_has_the_highest_priority_there_has_been():
    log = prioritised(total=30)
    rows = torch.tensor(possible(log, 2))
    log.memory.priorities.update(rows, torch.full((len(rows),), 1e-3).double())
    log.memory.priorities.update(rows[:1], torch.tensor([7.0]).double())
    log.memory.priorities.update(rows[:1], torch.tensor([1e-3]).double())
    log.write(1)
    drawn = log.memory.transitions(2000, 2, GAMMA)
    newest = set(possible(log, 2)[-2:])
    share = sum(row in newest for row in drawn.row_id.tolist()) / 2000
    assert share > 0.9  # 2 of 7^0.7 beside 54 of 0.001^0.7: 0.948


def test_priorities_of_overwritten_rows_are_not_told_to_their_successors():
    log = prioritised(total=40)
    old = torch.tensor(possible(log, 2))
    log.write(30)
    log.memory.priorities.follow(70)
    before = log.memory.priorities.tree.clone()
    gone = old[old < 30 * log.n]
    log.memory.priorities.update(gone, torch.full((len(gone),), 50.0).double())
    assert (before == log.memory.priorities.tree).all()


def test_the_tree_comes_back_bit_for_bit():
    log = prioritised()
    rows = torch.tensor(possible(log, 2))
    log.memory.priorities.update(rows, torch.rand(len(rows)).double())
    other = prioritised(total=10)
    other.memory.priorities.load_state_dict(log.memory.priorities.state_dict())
    assert (other.memory.priorities.tree == log.memory.priorities.tree).all()
    assert other.memory.priorities.highest == log.memory.priorities.highest
