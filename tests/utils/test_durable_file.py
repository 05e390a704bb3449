"""Files whole or not at all, litter of the dead swept, room asked for before anything is written."""

import os
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stride.runstore import run_files
from stride.utils.durable_file import check_room, replacing, sweep, temporary, write_json
from stride.utils.user_error import UserError

DEAD = 2**22 + 1  # above the kernel's largest process number


def litter(folder, pid, name="epoch=01.ckpt"):
    path = folder / f".{name}.{pid}-0123abcd.tmp"
    path.write_bytes(b"half")
    return path


@given(st.binary(max_size=64), st.lists(st.binary(max_size=64), max_size=4), st.booleans())
def test_a_file_is_the_old_or_the_new_one_whole_and_nothing_else_is_left(tmp_path_factory, old, pieces, fails):
    path = tmp_path_factory.mktemp("folder") / "file"
    path.write_bytes(old)
    with suppress(RuntimeError), replacing(path) as file:
        for piece in pieces:
            file.write(piece)
            assert path.read_bytes() == old
        if fails:
            raise RuntimeError
    assert path.read_bytes() == (old if fails else b"".join(pieces))
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_only_the_litter_of_the_dead_is_swept(tmp_path):
    dead, alive, mine = litter(tmp_path, DEAD), litter(tmp_path, os.getppid()), temporary(tmp_path / "x")
    mine.write_bytes(b"")
    others = [tmp_path / ".profile", tmp_path / "notes.tmp", tmp_path / ".a.b.tmp"]
    for path in others:
        path.write_bytes(b"")
    half_a_run = tmp_path / f".run.{DEAD}-0123abcd.tmp"
    (half_a_run / "checkpoints").mkdir(parents=True)
    half_a_link = tmp_path / f".@last.{DEAD}-0123abcd.tmp"
    half_a_link.symlink_to("nowhere")
    assert sweep(tmp_path) == 3 and not half_a_link.is_symlink()
    assert not dead.exists() and not half_a_run.exists() and alive.exists() and mine.exists()
    assert run_files.sweep(tmp_path) == 1 and mine.exists() and all(path.exists() for path in others)
    assert not alive.exists(), "whoever holds a run's lock knows that nobody else writes there"


def test_room_is_asked_for_where_the_folder_will_be(tmp_path):
    check_room(tmp_path / "not" / "yet", 1)
    with pytest.raises(UserError, match="MiB free, this run needs"):
        check_room(tmp_path, 2**60)
    with pytest.raises(TypeError):  # nor does what is no JSON leave anything
        write_json(tmp_path / "a.json", {"a": object()})
    assert not list(tmp_path.iterdir())
