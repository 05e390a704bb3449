"""Around the replay memory: its size, its rows on disk, which rows priorities let be drawn, how many updates are owed.

That what was saved comes back is among the properties of test_memory.py.
"""

from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_log import ReplayLog, same

from stride.agents.experience import storage
from stride.agents.experience.memory import Memory, slots_for
from stride.agents.experience.nouns import Row
from stride.agents.experience.priorities import DevicePriorities, Priorities
from stride.agents.experience.ratio import Ratio, updates_per_step
from stride.agents.experience.segments import delete_unnamed
from stride.agents.experience.storage import check_fits, readable_size
from stride.config.schema import DQNConfig
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
    with pytest.raises(UserError, match=r"buffer_size 1,000 needs 4 GB, 900 MB may be used in memory; buffer_size=225"):
        check_fits(4 * 10**9, 1000, "ram")
    example = example_row(torch.zeros(1, 1000))
    monkeypatch.setattr(storage, "free_bytes", lambda kind: 10**6)
    with pytest.raises(UserError, match="on the disk of the runs"):
        Memory(example, (), 10**3, 10, seed=1, storage="memmap")
    Memory(example, (), 10**3, 10, seed=1, replayed=False)
    assert [readable_size(size) for size in (7.1e9, 42e6, 1000, 12)] == ["7.1 GB", "42 MB", "1 kB", "12 bytes"]


def test_a_mapped_memory_is_the_same_and_leaves_no_file(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    ram, mapped = (ReplayLog(seed=3, storage=kind).write(50).memory.transitions(64, 3, 0.9) for kind in KINDS)
    assert same(ram, mapped) and not list(tmp_path.rglob("*"))
    assert all(10**6 < storage.free_bytes(kind) < 10**18 for kind in KINDS)


# --- rows on disk: written once, named by their hash


def log_in(folder, rows=32):
    log = ReplayLog(rows, seed=8)
    log.memory.save_in(folder)
    return log


def test_a_checkpoint_writes_only_what_is_new_also_after_a_resumption(tmp_path):
    log = log_in(tmp_path, rows=100).write(60)
    first = log.memory.state_dict()["segments"]
    assert log.memory.state_dict()["segments"] == first
    second = log.write(10).memory.state_dict()["segments"]
    assert second[0] == first[0] and (second[1]["first"], second[1]["last"]) == (60, 70)
    other = log_in(tmp_path, rows=100)
    other.memory.load_state_dict(log.memory.state_dict())
    assert other.memory.state_dict()["segments"] == second and len(list(tmp_path.iterdir())) == 2
    third = log.write(95).memory.state_dict()["segments"]
    assert [(segment["first"], segment["last"]) for segment in third] == [(60, 70), (70, 165)]


@pytest.mark.parametrize("damage", ["flip", "cut", "missing", "leads elsewhere"])
def test_damage_and_names_that_lead_elsewhere_are_refused(tmp_path, damage):
    folder = tmp_path / "run"
    state = log_in(folder).write(40).memory.state_dict()
    (path,) = folder.iterdir()
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    path.write_bytes(data[:-1] if damage == "cut" else data)
    if damage == "missing":
        path.unlink()
    if damage == "leads elsewhere":
        path.rename(tmp_path / "elsewhere.rows")
        state["segments"][0]["file"] = "../elsewhere.rows"
    words = {"missing": "is missing", "leads elsewhere": "is not the name of a part of a replay memory"}
    with pytest.raises(UserError, match=words.get(damage, "is damaged")):
        log_in(folder).memory.load_state_dict(state)


def test_what_nobody_names_is_deleted(tmp_path):
    log = log_in(tmp_path).write(20)
    old = [segment["file"] for segment in log.memory.state_dict()["segments"]]
    named = [segment["file"] for segment in log.write(80).memory.state_dict()["segments"]]
    (tmp_path / ".1-2-ab.rows.77-0123abcd.tmp").write_bytes(b"half")
    (tmp_path / "epoch=01.ckpt").write_bytes(b"not a segment")
    assert sorted(delete_unnamed(tmp_path, named)) == sorted(old)
    assert {path.name for path in tmp_path.iterdir()} == {*named, "epoch=01.ckpt"}


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


# --- how many updates are owed, in Stable-Baselines3's words, too


@given(st.fractions(0, 5, max_denominator=400), st.lists(st.integers(1, 40), min_size=1), st.integers(0, 300))
def test_whole_updates_are_paid_as_soon_as_they_are_owed_and_the_rest_is_saved(owed, steps, warmup):
    """Nothing is owed up to the warm-up nor while no row can be drawn, and nothing of it is caught up."""
    ratio, total, counted, paid = Ratio(owed, warmup), 0, 0, 0
    for new in steps:
        total, ready = total + new, new % 7 != 0
        counted += new if total > warmup and ready else 0
        restored = Ratio(owed, warmup)
        restored.load_state_dict(ratio.state_dict())
        ratio = restored
        paid += ratio.due(new, total, ready)
        assert paid == int(counted * owed)


@pytest.mark.parametrize(
    ("train_freq", "gradient_steps", "n_envs", "updates"),
    [(256, 128, 1, 128), (4, -1, 8, 32), (3, 7, 3, 7)],
)
def test_an_iteration_makes_the_gradient_steps_it_was_given(train_freq, gradient_steps, n_envs, updates):
    """train_freq counts steps of each environment; -1 is one update per env step over all of them."""
    config = DQNConfig(env_id="CartPole-v1", train_freq=train_freq, gradient_steps=gradient_steps, n_envs=n_envs)
    ratio, new = Ratio(updates_per_step(config), warmup=0), train_freq * n_envs
    assert [ratio.due(new, (i + 1) * new) for i in range(50)] == [updates] * 50
    assert updates_per_step(replace(config, updates_per_step=0.3)) == Fraction(3, 10), "one's own is no float"
