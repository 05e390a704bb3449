"""Run folders: names that never collide, links that survive races and moves, selectors from hostile hands."""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stride.runstore import run_dir
from stride.runstore.run_dir import RunDir, list_runs, relink
from stride.runstore.run_files import read_json, write_json
from stride.utils.places import PROJECT
from stride.utils.user_error import UserError

SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def make(name, env_id="CartPole-v1", variant="ppo", score=None):
    run = RunDir(run_dir.runs_root() / name)
    run.checkpoints.mkdir(parents=True)
    write_json(run.config_json, {"env_id": env_id, "variant": variant})
    if score is not None:
        write_json(run.checkpoints / "best.json", {"score": score})
    return run


def create_many(count):
    return [RunDir.create("CartPole-v1", "ppo", 1).id for _ in range(count)]


def relink_often(names):
    for i in range(300):
        relink(run_dir.runs_root() / "@last", run_dir.runs_root() / names[i % 2])


def test_create_makes_the_folder_its_parts_and_the_link(root):
    run = RunDir.create("ALE/Pong-v5", "ppo", 3)
    assert run.id[15:].startswith("-ALE-Pong-v5-ppo-s3-") and run.path.parent == root
    assert run.checkpoints.is_dir() and run.logs.is_dir() and run.videos.is_dir()
    assert os.readlink(root / "@last") == run.id  # relative: the bare name
    assert RunDir.find("@last") == run == RunDir.find(run.id)
    assert RunDir.find(run_dir.check_id(run.id)).report == run.path / "report.md"


def test_ids_never_collide_between_processes(root):
    with SPAWN.Pool(4) as pool:
        ids = [run_id for batch in pool.map(create_many, [25] * 4) for run_id in batch]
    assert len(set(ids)) == 100 == len(list_runs())
    assert RunDir.find("@last").id in ids
    assert not list(root.glob(".*"))  # no temporary left behind


def test_last_resolves_while_two_writers_hammer_it():
    names = [[make(f"run-{i}-a").id, make(f"run-{i}-b").id] for i in range(2)]
    relink_often(names[0][:1] * 2)
    writers = [SPAWN.Process(target=relink_often, args=(pair,)) for pair in names]
    for writer in writers:
        writer.start()
    seen = set()
    while any(writer.is_alive() for writer in writers):
        seen.add(RunDir.find("@last").id)
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert seen <= {name for pair in names for name in pair} and len(seen) > 1


def test_a_moved_root_still_resolves(root, monkeypatch):
    run = RunDir.create("CartPole-v1", "ppo", 1)
    (run.checkpoints / "epoch=01.ckpt").write_text("weights")
    relink(run.checkpoints / "best.ckpt", run.checkpoints / "epoch=01.ckpt")
    moved = root.parent / "elsewhere"
    root.rename(moved)
    monkeypatch.setenv("STRIDE_RUNS", str(moved))
    found = RunDir.find("@last")
    assert found.path == moved / run.id
    assert (found.checkpoints / "best.ckpt").read_text() == "weights"


@pytest.mark.parametrize(
    "selector",
    ["../x", "/etc", "a/../../b", "", "a\x00b", "a/\x00", ".", "..", "~", "a b", "@nothing", "nope"],
)
def test_hostile_and_unknown_selectors_are_refused(selector, root):
    make("20260101-000000-CartPole-v1-ppo-s1-aaaa")
    (root.parent / "x").mkdir()
    with pytest.raises(UserError):
        RunDir.find(selector)


def test_prefix_path_and_nearest(root):
    first, second = make("20260101-000000-CartPole-v1-ppo-s1-aaaa"), make("20260102-000000-CartPole-v1-ppo-s1-bbbb")
    assert RunDir.find("20260102") == second
    assert RunDir.find(str(first.path)) == first
    with pytest.raises(UserError, match=r"begins 2 runs: 20260102.*20260101"):
        RunDir.find("2026")
    with pytest.raises(UserError, match="did you mean 20260101-000000-CartPole-v1-ppo-s1-aaaa"):
        RunDir.find("20260101-000000-CartPole-v1-ppo-s1-aaab")
    with pytest.raises(UserError, match="not the folder of a run"):
        RunDir.find(str(root))


def test_an_id_that_begins_another_is_itself():
    make("run"), make("run-2")
    assert RunDir.find("run").id == "run"


def test_list_is_newest_first_and_ignores_what_is_no_run(root):
    assert list_runs() == []
    old, new, named = make("20260101-000000-a"), make("20260103-000000-a"), make("zoo")
    (root / "notes").mkdir()
    relink(root / "@last", new.path)
    assert list_runs() == [new, old, named]


def test_best_is_the_highest_score_of_that_environment():
    make("a", score=10.0), make("b", score=30.0), make("c", variant="other", score=20.0)
    make("d", env_id="Acrobot-v1", score=-70.0), make("e", score=float("nan")), make("f")
    assert RunDir.find("@best:CartPole-v1").id == "b"
    assert RunDir.find("@best:CartPole-v1:other").id == "c"
    assert RunDir.find("@best:Acrobot-v1").id == "d"
    with pytest.raises(UserError, match="did you mean CartPole-v1"):
        RunDir.find("@best:CartPol-v1")


def test_dangling_or_missing_last(root):
    with pytest.raises(UserError, match="no run yet"):
        RunDir.find("@last")
    run = RunDir.create("CartPole-v1", "ppo", 1)
    run.path.rename(root / "kept-elsewhere")
    with pytest.raises(UserError, match="no longer under"):
        RunDir.find("@last")


def test_a_link_planted_to_point_outside_is_refused(root):
    RunDir.create("CartPole-v1", "ppo", 1)
    relink(root / "@last", Path("/etc"))
    with pytest.raises(UserError, match="not a run id"):
        RunDir.find("@last")


def test_a_failed_write_leaves_the_old_file_whole(tmp_path):
    path = tmp_path / "config.json"
    write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        write_json(path, {"a": object()})
    assert read_json(path) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]
    path.write_text('{"a": ')
    with pytest.raises(UserError, match="not valid JSON"):
        read_json(path)


def test_an_unwritable_root_is_one_clear_line(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "file" / "runs"))
    with pytest.raises(UserError, match="Not a directory"):
        RunDir.create("CartPole-v1", "ppo", 1)


def test_run_dir_and_statistics_do_not_load_torch():
    code = "import sys; from stride.runstore import run_dir; from stride.runstore.many import process_pool\n"
    code += "from stride.utils import statistics, user_error; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"
