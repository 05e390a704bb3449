"""Several runs of one command, and one run of several commands: `-m`, `--seed`, `--group`, `--pause-at`, `--fork`.

The same command started again, or twice at once, is the same run. With --require-goal a script learns from the exit
code whether the goal was reached, by every run.
"""

import csv
import json
import os
import shutil
import time
from contextlib import suppress

import pytest
from commands import refusal
from tiny_runs import TINY, tiny_run

from lab.faults.rig import TINY as WORDS
from lab.faults.rig import comparable, finish, last_run, start
from stride.commands import run_play, train, train_folder
from stride.commands.train_arguments import parse_arguments
from stride.commands.train_values import combinations
from stride.report.group import read_group
from stride.runstore import seed_group
from stride.runstore.metrics_table import read_csv
from stride.runstore.run_dir import RunDir, list_runs, root_of_groups
from stride.runstore.run_files import read_json, write_json
from stride.runstore.run_lock import locked
from stride.runstore.seed_group import GroupPlan, SeedPart, folder_of, members, read_plan, standings
from stride.utils.user_error import UserError


@pytest.fixture(autouse=True)
def runs_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    return tmp_path


def words(*more: str, **changes: object) -> list[str]:
    return ["CartPole-v1:ppo", "-q", *more, *(f"{key}={value}" for key, value in {**TINY, **changes}.items())]


def ends(*more: str, **changes: object) -> int:
    """The exit code of such a training."""
    return train.command(words(*more, **changes))


def test_the_same_command_begins_then_reports_again(capsys):
    assert ends("--group", "g") == 0
    first = capsys.readouterr().out
    assert ends("--group", "g") == 0
    assert capsys.readouterr().out == first and first.startswith("result=") and len(list_runs()) == 1
    assert RunDir.find("@last").facts()["group"] == "g"
    assert ends("--group", "g", seed=2) == 0 == ends("--group", "h")
    assert len(list_runs()) == 3, "another seed, and another group, are other runs"


def test_a_run_that_was_deleted_is_made_again_under_its_name():
    run = tiny_run("CartPole-v1:ppo", "--group", "g")
    before = comparable(run)
    shutil.rmtree(run.path)
    again = tiny_run("CartPole-v1:ppo", "--group", "g")
    assert again.id == run.id and comparable(again) == before


def test_a_goal_that_nothing_can_answer_and_a_name_that_no_folder_may_have_are_refused(tmp_path, capsys):
    (tmp_path / "Own.yaml").write_text("env_id: plain_world:Plain-v0\nppo: {max_timesteps: 1e6}\n")
    line = refusal(capsys, train.command, "--config", str(tmp_path / "Own.yaml"), "--require-goal")
    assert "plain_world:Plain-v0 has no goal" in line and not list_runs()
    for name in ("../up", "a b", ".hidden", "x" * 65, "a/b"):
        assert refusal(capsys, train.command, *words("--group", name)) and not list_runs()
    assert ends("--group", "") == 0, "no group"


def test_a_required_goal_is_for_every_run_of_a_group_and_one_that_was_missed_is_code_3_each_time():
    tiny_run("CartPole-v1:ppo", "--group", "g", "--require-goal", **{"spec.goal": 5})
    assert train.command(["--resume", "group:g", "--require-goal"]) == 0
    assert ends("--group", "g", "--require-goal") == 3 == ends("--group", "g", "--require-goal")
    assert train.command(["--resume", "group:g", "--require-goal"]) == 3
    assert train.command(["--resume", "group:g"]) == 0 == ends("--group", "g") and len(list_runs()) == 2


def test_one_in_training_is_waited_for_and_that_is_said_once(capsys, monkeypatch):
    run = tiny_run("CartPole-v1:ppo", "--group", "g")
    write_json(run.config_json, {**run.facts(), "status": "running"})
    looks, really = [], time.sleep

    def sleep(seconds: float) -> None:
        if seconds != train.POLL_SECONDS:  # other threads sleep, too
            return really(seconds)
        looks.append(seconds)
        if len(looks) == 3:
            holder.__exit__(None, None, None)

    holder = locked(run.path)
    holder.__enter__()
    monkeypatch.setattr(train.time, "sleep", sleep)
    assert ends("--group", "g") == 0
    line = f"waiting: {run.id} is being trained by process {os.getpid()}\n"
    assert capsys.readouterr().err.count(line) == 1 and len(looks) == 3
    assert read_json(run.config_json)["status"] == "finished"


def test_of_twenty_that_start_at_one_instant_one_trains_and_all_end_well(tmp_path):
    children = [start((*WORDS, "--group", "race"), tmp_path / "raced") for _ in range(20)]
    ends = [child.wait() for child in children]
    assert [end.code for end in ends] == [0] * 20, [end.said for end in ends]
    [run] = [path for path in (tmp_path / "raced").iterdir() if path.name[0].isdigit()]
    assert len(list((tmp_path / "raced/groups/race/claims").iterdir())) == 1
    assert finish(WORDS, tmp_path / "straight").code == 0
    assert comparable(RunDir(run)) == comparable(last_run(tmp_path / "straight"))


def test_a_run_that_ends_between_the_look_and_the_lock_is_reported(monkeypatch, capsys):
    assert ends("--group", "g") == 0
    looks = iter((False,))
    is_done = train.is_done
    monkeypatch.setattr(train, "is_done", lambda *words: next(looks, None) is not False and is_done(*words))
    first = capsys.readouterr().out
    assert ends("--group", "g") == 0 and capsys.readouterr().out == first
    assert not [*looks]


def test_a_claim_is_made_once_and_names_a_run():
    config = {"seed": 1, "n_envs": 2}
    assert seed_group.claim("g", config, "first") == "first" == seed_group.claim("g", config, "second")
    [claim] = (root_of_groups() / "g" / "claims").iterdir()  # nothing half-written stays
    assert claim.name == seed_group.key_of({"n_envs": 2, "seed": 1}) != seed_group.key_of({"n_envs": 1, "seed": 2})
    claim.write_text("../elsewhere")
    with pytest.raises(UserError, match="is not a run id"):
        seed_group.claimed("g", config)


def test_a_fork_in_a_group_is_begun_once_and_goes_on(capsys):
    parent = tiny_run("CartPole-v1:ppo", "--pause-at", "16")
    fork = ["--resume", parent.id, "--fork", "--group", "g", "--seed", "7", "policy_lr=0.01", "-q"]
    assert train.command([*fork, "--pause-at", "32"]) == 0 == train.command([*fork, "--pause-at", "32"])
    assert train.command(["--resume", parent.id, "-q"]) == 0, "its budget is spent now"
    assert train.command(fork) == 0 == train.command(fork)
    [facts] = [run.facts() for run in list_runs() if run != parent]
    assert (facts["group"], facts["seed"], facts["status"]) == ("g", 7, "finished")
    assert facts["parent"]["run"] == parent.id and facts["parent"]["env_steps"] == 16
    assert "leave out --resume, or add --fork" in refusal(capsys, train.command, "--resume", parent.id, "--group", "g")


class Killed(BaseException):
    """No error that anything on the way answers to."""


@pytest.mark.parametrize("where", ["adopt", "fit"])
def test_a_fork_that_was_killed_before_it_saved_begins_again_from_its_parent(where, monkeypatch):
    parent = tiny_run("CartPole-v1:ppo", "--pause-at", "16")
    fork = ["--resume", parent.id, "--fork", "--seed", "7", "policy_lr=0.01", "-q", "--group"]

    def die(*given, **more):
        if where == "adopt":
            really(*given)
        raise Killed

    really = train_folder.adopt
    with monkeypatch.context() as patch:
        patch.setattr({"adopt": train_folder, "fit": train}[where], where, die)
        with suppress(Killed):
            assert train.command([*fork, "g"]) == 1
    assert len(list_runs()) == (2 if where == "fit" else 1), "it is whole, or not there"
    assert train.command([*fork, "g"]) == 0 == train.command([*fork, "straight"])
    killed, straight = (run for name in ("g", "straight") for run, _ in members(name))
    assert killed.facts()["parent"] == straight.facts()["parent"]
    assert comparable(killed) == comparable(straight)


def test_a_run_that_was_stopped_where_it_was_to_pause_pauses_there(capsys):
    assert ends("--group", "g", "--pause-at", "30") == 0
    [run] = list_runs()
    for status in ("interrupted", "running"):  # by a signal; killed
        facts = run.facts()
        assert facts["status"] == "paused" and facts["outcome"]["env_steps"] == 32 and len(list_runs()) == 1
        assert facts["config"]["max_timesteps"] == 64 and "result=paused test_mean=none" in capsys.readouterr().out
        rest = {key: value for key, value in facts.items() if status != "running" or key != "outcome"}
        write_json(run.config_json, {**rest, "status": status})
        assert ends("--group", "g", "--pause-at", "30") == 0
    assert [row.get("train/clock/env_steps") for row in read_csv(run.metrics_csv)][-1] == 32
    line = refusal(capsys, train.command, "--resume", run.id, "--pause-at", "30")
    assert f"--pause-at 30 is too low: {run.id} has already done 32 env steps" in line
    for where, line in (("65", "is above the budget of 64 env steps"), ("soon", "for example 20000 or 2e4")):
        assert line in refusal(capsys, train.command, *words("--pause-at", where)) and list_runs() == [run]


def test_a_fork_goes_on_from_the_last_checkpoint_with_a_seed_of_its_own(capsys):
    assert ends("--pause-at", "24") == 0
    [parent] = list_runs()
    before = {path.name: path.read_bytes() for path in parent.checkpoints.iterdir()}
    for seed in (1, 2):
        assert train.command(["--resume", parent.id, "--fork", "-q", f"seed={seed}"]) == 0
    forks = {run.facts()["seed"]: run for run in list_runs() if run != parent}
    assert {run.facts()["parent"]["run"] for run in forks.values()} == {parent.id}
    states = {seed: comparable(run)["state"] for seed, run in forks.items()}
    assert states[1] != states[2], "another seed draws other numbers"
    straight = comparable(tiny_run("CartPole-v1:ppo"))["state"]
    assert straight == states[1], "with the seed of its parent it is what that would have become"
    assert {path.name: path.read_bytes() for path in parent.checkpoints.iterdir()} == before
    line = refusal(capsys, train.command, "--resume", parent.id, "--fork", "--checkpoint", "step=7", "-q")
    assert f"{parent.id} has no checkpoint step=7; it has" in line
    assert refusal(capsys, train.command, "--resume", parent.id, "--fork", "n_envs=4")
    assert "give both" in refusal(capsys, train.command, *words("--fork"))


# ---- several trainings of one command


VALUES = {
    "a=1,2 b=x,y": ["a=1 b=x", "a=1 b=y", "a=2 b=x", "a=2 b=y"], "net=[64,64],[128]": ["net=[64,64]", "net=[128]"],
    "n=range(1,4)": ["n=1", "n=2", "n=3"], "lr=lin_0.001,1e-4": ["lr=lin_0.001", "lr=0.0001"],
    "--a=choice(1,2)": ["a=1", "a=2"], "": [""],
}  # fmt: skip


def test_values_are_multiplied_for_every_environment():
    for given, result in VALUES.items():
        assert combinations(given.split()) == [tuple(part.split()) for part in result]
    given = parse_arguments(["A-v0:x", "B-v0:y", "-m", "a=1,2", "--seed", "1-3"])
    trainings = [(part.config_id, part.overrides) for part in given.trainings()]
    assert trainings == [(name, (word,)) for name in ("A-v0:x", "B-v0:y") for word in ("a=1", "a=2")]
    assert given.many and given.seeds == (1, 2, 3) and given.typed == ("A-v0:x", "B-v0:y", "-m", "a=1,2")
    one = parse_arguments(["A-v0:x", "-m", "a=1"])
    assert not one.many and one.trainings() == [one] and one.overrides == ("a=1",)
    assert parse_arguments(["A-v0:x", "b=1,2"]).overrides == ("b=1,2",), "without -m a value is what it is"


def test_parts_are_named_by_what_they_have_apart_and_a_plan_grows_by_what_is_new():
    parts = [(("A:x", "n=1", "m=2"), (1,)), (("A:x", "n=1", "m=3"), (1,)), (("B:x", "n=1"), (1,))]
    assert GroupPlan(tuple(SeedPart(*part) for part in parts)).labels == ["A:x m=2", "A:x m=3", "B:x"]
    assert GroupPlan((SeedPart(("A:x", "n=1"), (1, 2)),)).labels == [""]
    old, new = SeedPart(("A:x",), (1, 2), ("k1", "k2")), SeedPart(("A:x", "n=1"), (1,), ("k4",))
    plan = GroupPlan((old,), ("A:x",))
    more = GroupPlan((SeedPart(("A:x",), (2, 3), ("k2", "k3")), new), ("A:x", "-m"))
    assert plan.joined(more).parts == (SeedPart(("A:x",), (1, 2, 3), ("k1", "k2", "k3")), new)
    assert plan.joined(plan).parts == plan.parts


@pytest.mark.slow
def test_a_grid_is_one_group_and_the_same_command_again_does_what_is_missing(capsys):
    grid = [*words("-m", "gamma=0.9,0.99", "--group", "night"), "--seed"]
    assert train.command([*grid, "1,2", "--pause-at", "32"]) == 0
    assert {run.facts()["status"] for run in list_runs()} == {"paused"}
    assert train.command([*grid, "1,2"]) == 0
    out = capsys.readouterr().out
    assert "gamma=0.9   1  result=" in out
    assert out.strip().splitlines()[-1].startswith("group night: 4 runs of 2 variants")
    first = {run.id for run in list_runs()}
    plan = json.loads((folder_of("night") / "plan.json").read_text())
    assert len(first) == 4 and sorted(plan["parts"][0]["seeds"]) == [1, 2]

    assert train.command([*grid, "1,2", "--require-goal"]) == 3, "by every seed; nothing is missing"
    assert {run.id for run in list_runs()} == first
    unfinished = list_runs()[0]
    write_json(unfinished.config_json, {**unfinished.facts(), "status": "interrupted"})
    assert train.command([*grid, "1-3"]) == 0
    assert len(list_runs()) == 6 and {run.id for run in list_runs()} > first
    assert {run.facts()["status"] for run in list_runs()} == {"finished"}

    rows = list(csv.DictReader((folder_of("night") / "runs.csv").open()))
    assert [(row["part"], row["seed"]) for row in rows] == [(f"gamma={g}", s) for g in (0.9, 0.99) for s in "123"]
    trained = {run.id: run.facts()["config"] for run in list_runs()}
    assert {(row["run"], row["part"]) for row in rows} == {(run, f"gamma={c['gamma']}") for run, c in trained.items()}
    report = (folder_of("night") / "report.md").read_text()
    assert "## Variants" in report and "| gamma=0.99 | 3 |" in report and "-m gamma=0.9,0.99" in report
    capsys.readouterr()
    assert run_play.command(["--run-id", "group:night"]) == 0
    assert "differ in gamma: 0.9 | 0.99" in capsys.readouterr().out


@pytest.mark.slow
def test_what_a_process_trains_has_the_key_that_was_planned():
    assert ends("Acrobot-v1:ppo") == 0
    (group,) = {run.facts()["group"] for run in list_runs()}
    rows = standings(group)
    assert [row.label for row in rows] == ["CartPole-v1:ppo", "Acrobot-v1:ppo"]
    for row in rows:
        assert row.run and seed_group.key_of(row.run.facts()["config"]) == row.key
        assert seed_group.run_of(group, row.key) == row.run.id
    assert [part.title for part in read_group(group).parts] == ["CartPole-v1:ppo", "Acrobot-v1:ppo"]


def test_runs_that_nobody_planned_are_shown_each():
    for gamma in (0.9, 0.99):
        tiny_run("CartPole-v1:ppo", "--group", "array", gamma=gamma)
    assert len(read_group("array").seeds) == 2 and read_plan("array") == GroupPlan()
