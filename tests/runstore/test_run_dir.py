"""Run folders: names that never collide, links that survive races and moves, selectors from hostile hands."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.faults import races
from stride.runstore import run_dir
from stride.runstore.run_dir import RunDir, relink
from stride.runstore.run_files import write_json
from stride.runstore.select import group_selectors
from stride.utils.user_error import UserError

NAME = "20260101-000000-CartPole-v1-ppo-s1-aaaa"
HOSTILE = st.sampled_from(["../x", "/etc", "a/../../b", "nope", "@nothing"])


pytestmark = pytest.mark.usefixtures("root")


def make(name, env_id="CartPole-v1", variant="ppo", score=None):
    run = RunDir(run_dir.runs_root() / name)
    run.checkpoints.mkdir(parents=True)
    write_json(run.config_json, {"env_id": env_id, "variant": variant})
    if score is not None:
        write_json(run.checkpoints / "best.json", {"score": score})
    return run


def test_create_makes_the_folder_its_parts_and_the_link(root):
    run = RunDir.create("ALE/Pong-v5", "ppo", 3)
    assert run.id[15:].startswith("-ALE-Pong-v5-ppo-s3-") and run.path.parent == root
    assert run.checkpoints.is_dir() and run.logs.is_dir() and run.videos.is_dir()
    assert os.readlink(root / "@last") == run.id  # relative: the bare name
    assert RunDir.find("@last") == run == RunDir.find(run.id)
    assert RunDir.find(run_dir.check_id(run.id)).report == run.path / "report.md"


def test_ids_and_the_last_link_hold_while_many_write_at_once(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "ids"))
    for line, good in (races.one_id(4, tmp_path), races.one_link(300, tmp_path)):
        assert good, line


def test_hostile_and_unknown_selectors_are_refused(root):
    make(NAME)
    (root.parent / "x").mkdir()

    @given(HOSTILE | st.text(st.sampled_from("ab./@~: -\x00\n*\u00e9"), max_size=8))
    def refuses(selector):
        with pytest.raises(UserError):
            RunDir.find(selector)

    refuses()


def test_a_run_is_found_by_any_beginning_that_no_other_has():
    ids = [NAME, NAME.replace("0101", "0102"), f"{NAME}-2"]
    for run_id in ids:
        make(run_id)
    for beginning in {run_id[:length] for run_id in ids for length in range(1, len(run_id) + 1)}:
        matching = [run_id for run_id in ids if run_id.startswith(beginning)]
        if beginning in ids or len(matching) == 1:
            assert RunDir.find(beginning).id == (beginning if beginning in ids else matching[0])
        else:
            with pytest.raises(UserError, match=f"matches {len(matching)} runs: "):
                RunDir.find(beginning)


def test_a_path_finds_a_run_and_the_nearest_is_named(root):
    assert RunDir.find(str(make(NAME).path)).id == NAME
    with pytest.raises(UserError, match=f"did you mean {NAME}"):
        RunDir.find(NAME.replace("aaaa", "aaab"))
    with pytest.raises(UserError, match="not the folder of a run"):
        RunDir.find(str(root))


def test_best_is_the_highest_score_of_that_environment():
    make("a", score=10.0), make("b", score=30.0), make("c", variant="other", score=20.0)
    make("d", env_id="Acrobot-v1", score=-70.0), make("e", score=float("nan")), make("f")
    assert RunDir.find("@best:CartPole-v1").id == "b"
    assert RunDir.find("@best:CartPole-v1:other").id == "c"
    assert RunDir.find("@best:Acrobot-v1").id == "d"
    with pytest.raises(UserError, match="did you mean CartPole-v1"):
        RunDir.find("@best:CartPol-v1")


def test_a_last_that_leads_to_no_run_is_refused(root):
    with pytest.raises(UserError, match="no runs yet"):
        RunDir.find("@last")
    run = RunDir.create("CartPole-v1", "ppo", 1)
    run.path.rename(root / "kept-elsewhere")
    with pytest.raises(UserError, match="no longer in"):
        RunDir.find("@last")
    relink(root / "@last", Path("/etc"))  # planted
    with pytest.raises(UserError, match="not a run id"):
        RunDir.find("@last")


def test_the_prefix_of_several_groups_is_written_once():
    assert group_selectors("group:A, B,,@last-group") == ["group:A", "group:B", "group:@last"]
