"""Several trainings of one command: words, combinations, one group of them, and the same command again."""

import csv
import json

import pytest
from tiny_runs import TINY

from stride.commands import run_play, train
from stride.commands.train_arguments import parse_arguments
from stride.commands.train_values import combinations
from stride.report.group import read_group
from stride.report.group_rows import SeedRow, table
from stride.report.terminal import Page
from stride.runstore import seed_group
from stride.runstore.run_dir import list_runs
from stride.runstore.run_files import write_json
from stride.runstore.seed_group import GroupPlan, SeedPart, folder_of, read_plan, standings


@pytest.fixture(autouse=True)
def runs_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))


def words(*more):
    return [*more, "-q", *(f"{key}={value}" for key, value in TINY.items())]


@pytest.mark.parametrize(
    ("given", "result"),
    [
        (("a=1,2", "b=x,y"), [("a=1", "b=x"), ("a=1", "b=y"), ("a=2", "b=x"), ("a=2", "b=y")]),
        (("net=[64,64],[128]",), [("net=[64,64]",), ("net=[128]",)]),
        (("n=range(1,4)",), [("n=1",), ("n=2",), ("n=3",)]),
        (("lr=lin_0.001,1e-4",), [("lr=lin_0.001",), ("lr=0.0001",)]),
        (("--a=choice(1,2)",), [("a=1",), ("a=2",)]),
        ((), [()]),
    ],
)
def test_values_are_multiplied(given, result):
    assert combinations(given) == result


def test_every_environment_has_every_combination():
    given = parse_arguments(["A-v0:x", "B-v0:y", "-m", "a=1,2", "--seed", "1-3"])
    trainings = [(part.config_id, part.overrides) for part in given.each()]
    assert trainings == [(name, (word,)) for name in ("A-v0:x", "B-v0:y") for word in ("a=1", "a=2")]
    assert given.many and given.seeds == (1, 2, 3) and given.typed == ("A-v0:x", "B-v0:y", "-m", "a=1,2")
    one = parse_arguments(["A-v0:x", "-m", "a=1"])
    assert not one.many and one.each() == [one] and one.overrides == ("a=1",)
    assert parse_arguments(["A-v0:x", "b=1,2"]).overrides == ("b=1,2",), "without -m a value is what it is"


def test_parts_are_named_by_what_they_have_apart():
    parts = [(("A:x", "n=1", "m=2"), (1,)), (("A:x", "n=1", "m=3"), (1,)), (("B:x", "n=1"), (1,))]
    assert GroupPlan(tuple(SeedPart(*part) for part in parts)).labels == ["A:x m=2", "A:x m=3", "B:x"]
    assert GroupPlan((SeedPart(("A:x", "n=1"), (1, 2)),)).labels == [""]


def test_a_plan_grows_by_what_is_new():
    old, new = SeedPart(("A:x",), (1, 2), ("k1", "k2")), SeedPart(("A:x", "n=1"), (1,), ("k4",))
    plan = GroupPlan((old,), ("A:x",))
    more = GroupPlan((SeedPart(("A:x",), (2, 3), ("k2", "k3")), new), ("A:x", "-m"))
    assert plan.joined(more).parts == (SeedPart(("A:x",), (1, 2, 3), ("k1", "k2", "k3")), new)
    assert plan.joined(plan).parts == plan.parts


@pytest.mark.slow
def test_a_grid_is_one_group_and_the_same_command_again_does_what_is_missing(capsys):
    grid = [*words("CartPole-v1:ppo", "-m", "gamma=0.9,0.99", "--group", "night"), "--seed"]
    assert train.command([*grid, "1,2"]) == 0
    out = capsys.readouterr().out
    assert "gamma=0.9   1  result=" in out
    assert out.strip().splitlines()[-1].startswith("group night: 4 runs of 2 variants")
    first = {run.id for run in list_runs()}
    plan = json.loads((folder_of("night") / "plan.json").read_text())
    assert len(first) == 4 and sorted(plan["parts"][0]["seeds"]) == [1, 2]
    runs = {(run.facts()["config"]["gamma"], run.facts()["seed"]) for run in list_runs()}
    assert runs == {(0.9, 1), (0.9, 2), (0.99, 1), (0.99, 2)}

    assert train.command([*grid, "1,2"]) == 0  # nothing is missing
    assert {run.id for run in list_runs()} == first
    unfinished = list_runs()[0]
    write_json(unfinished.config_json, {**unfinished.facts(), "status": "interrupted"})
    capsys.readouterr()
    assert train.command([*grid, "1-3"]) == 0
    assert len(list_runs()) == 6 and {run.id for run in list_runs()} > first
    assert unfinished.facts()["status"] == "finished" and len(capsys.readouterr().out.splitlines()) >= 3

    rows = list(csv.DictReader((folder_of("night") / "runs.csv").open()))
    assert [(row["part"], row["seed"]) for row in rows] == [(f"gamma={g}", s) for g in (0.9, 0.99) for s in "123"]
    assert {row["run"] for row in rows} == {run.id for run in list_runs()}
    report = (folder_of("night") / "report.md").read_text()
    assert "## Variants" in report and "| gamma=0.99 | 3 |" in report and "-m gamma=0.9,0.99" in report
    assert run_play.command(["--run-id", "group:night"]) == 0
    assert "apart in gamma: 0.9 | 0.99" in capsys.readouterr().out


@pytest.mark.slow
def test_what_a_process_trains_has_the_key_that_was_planned():
    assert train.command(words("CartPole-v1:ppo", "Acrobot-v1:ppo")) == 0
    (group,) = {run.facts()["group"] for run in list_runs()}
    rows = standings(group)
    assert [row.label for row in rows] == ["CartPole-v1:ppo", "Acrobot-v1:ppo"]
    for row in rows:
        assert row.run and seed_group.key_of(row.run.facts()["config"]) == row.key
        assert seed_group.run_of(group, row.key) == row.run.id
    assert [part.title for part in read_group(group).parts] == ["CartPole-v1:ppo", "Acrobot-v1:ppo"]


def test_runs_that_nobody_planned_are_shown_each():
    for gamma in (0.9, 0.99):
        assert train.command(words("CartPole-v1:ppo", f"gamma={gamma}", "--group", "array")) == 0
    assert len(read_group("array").seeds) == 2 and read_plan("array") == GroupPlan()


def test_a_long_name_keeps_its_seed_and_its_line_fits():
    rows = [SeedRow(seed, "CartPole-v1:ppo policy_lr=0.001 gamma=0.98 n_envs=8") for seed in (3, 12)]
    for width in (60, 80, 120):
        lines = [line.plain for line in table(rows, Page(width - 1, 24))]
        assert all(len(line) < width for line in lines) and " 12  waiting" in lines[2] and "run" in lines[0]


@pytest.mark.slow
def test_a_paused_grid_goes_on():
    grid = words("CartPole-v1:ppo", "--group", "g", "--seed", "1,2")
    assert train.command([*grid, "--pause-at", "32"]) == 0
    assert {run.facts()["status"] for run in list_runs()} == {"paused"}
    train.command(grid)
    assert {run.facts()["status"] for run in list_runs()} == {"finished"} and len(list_runs()) == 2
