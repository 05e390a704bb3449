"""Rows on disk: written once, named by their hash, damage noticed, deleted when nobody names them.

That what was saved comes back is among the properties of test_memory.py.
"""

import pytest
from replay_log import ReplayLog

from stride.agents.experience.segments import delete_unnamed
from stride.utils.user_error import UserError


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
