"""A run folder from elsewhere: nothing outside of it is read or written, whatever stands in a file's place."""

import os
import socket

import pytest
from refusals import refusal, refusals

from stride.runstore import run_files, run_names
from stride.runstore.run_facts import finite, read_facts
from stride.utils.user_error import UserError

SECRET = "what only its owner reads"
NAMES = ("config.json", "metrics.csv", "run.log", "report.md", ".lock", "checkpoints/epoch=04.json",
         "checkpoints/step=8.ckpt", "checkpoints/best.json", "checkpoints/last.ckpt",
         "checkpoints/segments/0-8-0123456789abcdef.rows", "videos/epoch=04.mp4", "logs/curve.svg",
         "logs/events.out.tfevents.1764133000123456789",
         "logs/events.out.tfevents.1764133000.a-host.local.4711.0")  # fmt: skip


@pytest.fixture
def run(tmp_path, monkeypatch):
    for folder in ("checkpoints/segments", "videos", "logs"):
        (tmp_path / "run" / folder).mkdir(parents=True)
    (tmp_path / "outside").mkdir()
    monkeypatch.setenv("OUTSIDE", str(tmp_path / "outside"))
    monkeypatch.chdir(tmp_path)  # names of sockets have 108 characters
    (tmp_path / "outside" / "secret").write_text(SECRET)
    return tmp_path / "run"


def listening(path):
    socket.socket(socket.AF_UNIX).bind(os.path.relpath(path))


KINDS = {
    "a link": lambda path: path.symlink_to(os.path.join(os.environ["OUTSIDE"], "secret")),
    "a FIFO": os.mkfifo,
    "a folder": os.mkdir,
    "a socket": listening,
}
DOORS = {
    "read": run_files.read_bytes,
    "write": lambda path: run_files.write_text(path, "x"),
    "append": lambda path: run_files.open_to_write(path, append=True).close(),
    "check": run_files.check,
    "exists": run_files.exists,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_what_is_no_file_is_refused_in_a_line(run, name, kind):
    path = run / name
    KINDS[kind](path)
    for door in DOORS.values():
        line = refusal(door, path)
        assert str(path) in line and SECRET not in line
        assert (run.parent / "outside" / "secret").read_text() == SECRET
        assert os.listdir(run.parent / "outside") == ["secret"]


@pytest.mark.parametrize("folder", ["", *run_names.FOLDERS])
def test_a_folder_that_is_a_link_is_refused(run, folder):
    name = next(name for name in NAMES if os.path.dirname(name) == folder)
    outside, place = run.parent / "outside", run / folder
    (outside / os.path.basename(name)).write_text(SECRET)
    place.rename(run.parent / "moved")
    place.symlink_to(outside)
    for door, path in [*((door, run / name) for door in DOORS.values()), (run_files.list_names, place)]:
        assert "is a link, not a folder of the run" in refusal(door, path)
    assert (outside / os.path.basename(name)).read_text() == SECRET


STRANGE = ("notes.txt", "config.json ", "config.json\n", "epoch=x.ckpt", "epoch=\u0663.ckpt", "x.mp4", "..",
           "0-8-0123456789ABCDEF.rows", "0-8-0123456789abcdef.rows.pth")  # fmt: skip


@pytest.mark.parametrize("name", STRANGE)
def test_only_names_this_program_writes_are_opened(run, name):
    for door in DOORS.values():
        assert "is not the name of a run's file" in refusal(door, run / name)


@pytest.mark.parametrize("opened", [run_files.open_file, run_files.open_to_write])
def test_a_link_that_takes_the_place_of_a_file_after_the_look_is_not_followed(opened, run, tmp_path, monkeypatch):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    path = run / "config.json"
    look = run_files._resolved

    def look_too_early(folder, asked):
        answer = look(folder, asked)
        path.unlink(missing_ok=True)
        path.symlink_to(secret)
        return answer

    monkeypatch.setattr(run_files, "_resolved", look_too_early)
    with pytest.raises((UserError, OSError)):
        opened(path)
    assert secret.read_text() == "secret"


def test_links_of_checkpoints_are_read_not_followed(run):
    folder = run / "checkpoints"
    run_files.write_json(folder / "epoch=04.json", {"epoch": 4})
    run_files.point(folder / "best.json", "epoch=04.json")
    assert run_files.read_json(folder / "best.json") == {"epoch": 4}
    assert [run_files.read_link(folder / name) for name in ("best.json", "last.json")] == ["epoch=04.json", ""]
    for target in ("../config.json", "/etc/passwd", "epoch=04.ckpt", "best.json", "./epoch=04.json", "epoch=04.json/"):
        os.unlink(folder / "best.json")
        os.symlink(target, folder / "best.json")
        for door in (run_files.read_json, run_files.read_link, run_files.exists, run_files.open_to_write):
            assert "is not a checkpoint of this run" in refusal(door, folder / "best.json")


def test_sizes_are_known_before_anything_is_read(run):
    with open(run / "config.json", "wb") as file:
        file.truncate(1 << 40)
    assert "has 1,099,511,627,776 bytes, more than the limit of 16,777,216" in refusal(
        run_files.read_json, run / "config.json"
    )
    (run / "run.log").write_text("twelve bytes")
    assert run_files.read_bytes(run / "run.log", 12) == b"twelve bytes"
    assert "more than the limit of 11" in refusal(run_files.read_bytes, run / "run.log", 11)


def test_a_file_that_is_also_elsewhere_is_read_but_not_written(run):
    os.link(run.parent / "outside" / "secret", run / "run.log")
    assert "hard link" in refusal(lambda: run_files.open_to_write(run / "run.log", append=True))
    run_files.write_text(run / "run.log", "mine")
    assert (run.parent / "outside" / "secret").read_text() == SECRET


def test_a_run_is_looked_over_at_once(run):
    run_files.check_folder(run)
    (run / "notes").symlink_to("/etc")  # nobody opens it
    run_files.check_folder(run)
    os.mkfifo(run / "logs" / "debug.csv")
    assert "logs/debug.csv is a FIFO" in refusal(run_files.check_folder, run)


WRONG = [
    [], {"env_id": 5}, {"variant": "a\x1b[31m"}, {"goal": 10**400}, {"goal": "high"}, {"seed": -1}, {"resumed": 5},
    {"outcome": []}, {"outcome": {"solved": 1}}, {"outcome": {"solved": True, "test_mean": float("nan")}},
    {"outcome": {"solved": True, "test_mean": 1.0, "env_steps": 1.5}},
]  # fmt: skip


def test_facts_have_the_types_their_readers_rely_on(run, snapshot):
    config = run / "config.json"
    assert refusals(lambda facts: (run_files.write_json(config, facts), read_facts(run)), WRONG) == snapshot
    config.write_text('{"a": ')
    assert "not valid JSON" in refusal(run_files.read_json, config)
    config.write_text("{}")
    with pytest.raises(TypeError):
        run_files.write_json(config, {"a": object()})
    assert config.read_text() == "{}", "a failed write leaves the old file"


def test_a_number_is_finite_or_none():
    wrong = (True, "1", None, 10**400, float("inf"), float("nan"), [])
    assert [finite(x) for x in (1, 2.5, *wrong)] == [1.0, 2.5, *[None] * len(wrong)]
