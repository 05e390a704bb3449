"""Sizes and storages of the replay memory, and which rows priorities let be drawn, on the CPU and on a device."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_log import ReplayLog, same

from stride.agents.experience import storage
from stride.agents.experience.memory import Memory, slots_for
from stride.agents.experience.nouns import Row
from stride.agents.experience.priorities import DevicePriorities, Priorities
from stride.agents.experience.storage import check_fits, readable_size
from stride.utils.devices import CPU
from stride.utils.user_error import UserError

KINDS = "ram", "memmap"


def example_row(obs):
    flag = torch.zeros(1, dtype=torch.bool)
    return Row(obs, flag, flag.long(), flag.float(), flag, flag, flag.long(), ())


# --- sizes and storages


def test_a_million_rows_of_atari_stay_under_8_gb():
    """Four 84 x 84 frames are shown, one is kept; nothing is touched before it is written, so this costs nothing."""
    example, slots = example_row(torch.zeros(1, 4, 84, 84, dtype=torch.uint8)), slots_for(10**6, 27_000)
    frame = example.obs[:, :1]
    size = 10**6 * storage.bytes_of(example._replace(obs=frame)) + slots * storage.bytes_of(frame)
    assert size < 8e9
    if size < 0.9 * storage.free_bytes("ram"):
        memory = Memory(example, (), 10**6, slots, seed=1, frames=4)
        assert memory.bytes == size and str(memory) == "replay memory: 1,000,000 env steps, 7.08 GB in ram"


def test_what_cannot_fit_is_refused_with_the_key_to_lower(monkeypatch):
    monkeypatch.setattr(storage, "free_bytes", lambda kind: 10**9)
    check_fits(9 * 10**8, 1000, "ram")
    with pytest.raises(UserError, match=r"buffer_size 1,000 takes 4 GB, 900 MB may be .* in memory; buffer_size=225"):
        check_fits(4 * 10**9, 1000, "ram")
    example = example_row(torch.zeros(1, 1000))
    monkeypatch.setattr(storage, "free_bytes", lambda kind: 10**6)
    with pytest.raises(UserError, match="on the disk of the runs"):
        Memory(example, (), 10**3, 10, seed=1, storage="memmap")
    Memory(example, (), 10**3, 10, seed=1, replayed=False)


def test_sizes_in_words():
    assert [readable_size(size) for size in (7.1e9, 42e6, 1000, 12)] == ["7.1 GB", "42 MB", "1 kB", "12 bytes"]


def test_a_mapped_memory_is_the_same_and_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    ram, mapped = (ReplayLog(seed=3, storage=kind).write(50).memory.transitions(64, 3, 0.9) for kind in KINDS)
    assert same(ram, mapped) and not list(tmp_path.rglob("*"))
    assert all(10**6 < storage.free_bytes(kind) < 10**18 for kind in KINDS)


# --- priorities


@pytest.mark.parametrize("kind", [Priorities, DevicePriorities])
def test_an_error_that_is_nan_is_not_the_highest(kind):
    priorities = kind(8, 1, 1, 0, 0.5, CPU)
    priorities.follow(8)
    priorities.update(torch.tensor([1, 2]), torch.tensor([float("nan"), 0.1]))
    assert priorities.highest == 1.0


@settings(max_examples=60)
@given(
    rows=st.integers(1, 20),
    worlds=st.integers(1, 4),
    steps=st.integers(0, 3),
    reach=st.integers(0, 3),
    writes=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=20),
)
def test_priorities_are_those_of_a_plain_dict_in_both_forms(rows, worlds, steps, reach, writes):
    """A device's and the CPU's, also where drawn rows are overwritten before their errors are known, or states move.

    A new row has the highest priority there has been; the error of a row that is gone is not passed on to another.
    """
    rows += steps + reach
    sizes = rows, worlds, steps, reach, 0.7, CPU
    near, far = Priorities(*sizes), DevicePriorities(*sizes)
    written, plain, highest = steps + reach + 1, {}, 1.0

    def followed():
        for form in (near, far):
            form.follow(written)
        first = max(0, written - rows) + (reach if written > rows else 0)
        return {row: plain.get(row, highest) for row in range(first * worlds, (written - steps) * worlds)}

    for overwritten, new in writes:
        plain = followed()
        uniforms = torch.rand(12, dtype=torch.float64)
        drawn = near.draw(uniforms)
        assert torch.equal(drawn, far.draw(uniforms)) and torch.equal(near.weights(drawn, 0.4), far.weights(drawn, 0.4))
        assert set(drawn.tolist()) <= plain.keys()
        written += overwritten
        plain = followed()
        errors = torch.randn(12) * 3
        for form in (near, far):
            form.update(drawn, errors)
        for row, p in zip(drawn.tolist(), (errors.double().abs() + 1e-6).pow(0.7).tolist(), strict=True):
            highest = max(highest, p)
            if row in plain:
                plain[row] = p
        states = near.state_dict(), far.state_dict()
        leaves = torch.zeros(rows * worlds, dtype=torch.float64)
        leaves[[row % (rows * worlds) for row in plain]] = torch.tensor([*plain.values()], dtype=torch.float64)
        assert same(*states) and torch.equal(states[0]["leaves"], leaves) and far.highest.item() == highest
        if new > 6:
            near, far = Priorities(*sizes), DevicePriorities(*sizes)
            for form, state in zip((near, far), states[::-1], strict=True):
                form.load_state_dict(state)
        written += new % 3
