"""Files whole or not at all, litter of the dead swept, room asked for before anything is written."""

import os

import pytest

from stride.runstore import run_files
from stride.utils.durable_file import check_room, replacing, sweep, temporary, write_json
from stride.utils.user_error import UserError

DEAD = 2**22 + 1  # above the kernel's largest process number


def litter(folder, pid, name="epoch=01.ckpt"):
    path = folder / f".{name}.{pid}-0123abcd.tmp"
    path.write_bytes(b"half")
    return path


def test_a_block_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError), replacing(path) as file:
        file.write(b"new")
        assert path.read_bytes() == b"old"
        raise RuntimeError
    assert path.read_bytes() == b"old" and [p.name for p in tmp_path.iterdir()] == ["file"]
    with replacing(path) as file:
        file.write(b"new")
    assert path.read_bytes() == b"new"


def test_only_the_litter_of_the_dead_is_swept(tmp_path):
    dead, alive, mine = litter(tmp_path, DEAD), litter(tmp_path, os.getppid()), temporary(tmp_path / "x")
    mine.write_bytes(b"")
    others = [tmp_path / ".profile", tmp_path / "notes.tmp", tmp_path / ".a.b.tmp"]
    for path in others:
        path.write_bytes(b"")
    half_a_run = tmp_path / f".run.{DEAD}-0123abcd.tmp"
    (half_a_run / "checkpoints").mkdir(parents=True)
    assert sweep(tmp_path) == 2
    assert not dead.exists() and not half_a_run.exists() and alive.exists() and mine.exists()
    assert run_files.sweep(tmp_path) == 1 and mine.exists() and all(path.exists() for path in others)
    assert not alive.exists(), "whoever holds a run's lock knows that nobody else writes there"


def test_a_link_left_half_made_is_swept_too(tmp_path):
    (tmp_path / f".@last.{DEAD}-0123abcd.tmp").symlink_to("nowhere")
    assert sweep(tmp_path) == 1 and not list(tmp_path.iterdir())


def test_room_is_asked_for_where_the_folder_will_be(tmp_path):
    check_room(tmp_path / "not" / "yet", 1)
    assert not list(tmp_path.iterdir())
    with pytest.raises(UserError, match="MiB free, this run needs"):
        check_room(tmp_path, 2**60)


def test_what_cannot_be_written_as_json_changes_nothing(tmp_path):
    with pytest.raises(TypeError):
        write_json(tmp_path / "a.json", {"a": object()})
    assert not list(tmp_path.iterdir())
