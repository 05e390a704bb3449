"""Rows on disk: written once, named by their hash, damage noticed, deleted when nobody names them."""

import pytest
import torch
from replay_log import ReplayLog

from stride.agents.experience.nouns import leaves
from stride.agents.experience.segments import delete_unnamed
from stride.utils.user_error import UserError


def log_in(folder, **options):
    log = ReplayLog(**{"rows": 32, "n": 2, "seed": 8, **options})
    log.memory.save_in(folder)
    return log


def restored(folder, state, **options):
    log = log_in(folder, **options)
    log.memory.load_state_dict(state)
    return log


@pytest.mark.parametrize("options", [{}, {"frames": 3}, {"storage": "memmap"}], ids=["", "frames", "memmap"])
@pytest.mark.parametrize("stops", [[7], [7, 20, 31], [10, 45, 60], [100], [3, 200]])
def test_what_was_saved_comes_back(tmp_path, options, stops):
    log, written = log_in(tmp_path, **options), 0
    for stop in stops:
        log.write(stop - written)
        written, state = stop, log.memory.state_dict()
    assert "rows" not in state
    other = restored(tmp_path, state, **options)
    other.log = log.log
    drawn = [each.memory.transitions(100, 2, 0.9) for each in (log, other)]
    other.check(drawn[1], 2, 0.9)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(*map(leaves, drawn), strict=True))


def test_a_checkpoint_writes_only_what_is_new(tmp_path):
    log = log_in(tmp_path, rows=100).write(60)
    first = log.memory.state_dict()["segments"]
    assert log.memory.state_dict()["segments"] == first
    second = log.write(10).memory.state_dict()["segments"]
    assert second[0] == first[0] and (second[1]["first"], second[1]["last"]) == (60, 70)
    assert len(list(tmp_path.iterdir())) == 2
    third = log.write(95).memory.state_dict()["segments"]
    assert [(each["first"], each["last"]) for each in third] == [(60, 70), (70, 165)]


def test_a_resumed_memory_goes_on_where_it_was(tmp_path):
    log = log_in(tmp_path).write(40)
    state = log.memory.state_dict()
    other = restored(tmp_path, state)
    assert other.memory.state_dict()["segments"] == state["segments"] and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("damage", ["flip", "cut", "missing"])
def test_damage_is_noticed(tmp_path, damage):
    state = log_in(tmp_path).write(40).memory.state_dict()
    (path,) = tmp_path.iterdir()
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    path.write_bytes(data[:-1] if damage == "cut" else data)
    if damage == "missing":
        path.unlink()
    with pytest.raises(UserError, match=r"is missing" if damage == "missing" else r"is damaged"):
        restored(tmp_path, state)


def test_a_name_that_leads_elsewhere_is_not_followed(tmp_path):
    state = log_in(tmp_path / "run").write(40).memory.state_dict()
    (path,) = (tmp_path / "run").iterdir()
    path.rename(tmp_path / "elsewhere.rows")
    state["segments"][0]["file"] = "../elsewhere.rows"
    with pytest.raises(UserError, match="is not the name of a part of a replay memory"):
        restored(tmp_path / "run", state)


def test_what_nobody_names_is_deleted(tmp_path):
    log = log_in(tmp_path).write(20)
    old = [each["file"] for each in log.memory.state_dict()["segments"]]
    kept = [each["file"] for each in log.write(80).memory.state_dict()["segments"]]
    (tmp_path / ".1-2-ab.rows.77-0123abcd.tmp").write_bytes(b"half")
    (tmp_path / "epoch=01.ckpt").write_bytes(b"not a segment")
    assert sorted(delete_unnamed(tmp_path, kept)) == sorted(old)
    assert {path.name for path in tmp_path.iterdir()} == {*kept, "epoch=01.ckpt"}
