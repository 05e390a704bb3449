"""A group of seeds as people meet it: live and plain lines, its folder of report, curve and table, comparisons."""

import csv
import io
import json
import os
import re
from xml.etree import ElementTree

import pytest
from gallery import gallery_copies
from rich.console import Console
from snapshots import shown

from stride.commands import run_play, train
from stride.commands.run_arguments import parse_play
from stride.commands.train_arguments import parse_arguments
from stride.commands.train_opening import checked
from stride.report.comparison import comparison_data, comparison_lines
from stride.report.group import band_of, curve_of, read_group
from stride.report.group_console import GroupConsole
from stride.report.group_page import GroupPage, write_group
from stride.report.metrics_sinks import MetricsCsv
from stride.runstore.run_dir import RunDir, list_runs
from stride.runstore.seed_group import Ending, GroupPlan, SeedJob, SeedPart, folder_of, read_plan, write_plan
from stride.utils.user_error import UserError

NAME, OTHER = "20200101-000000-abcd", "20200102-000000-abcd"
GOAL = 475.0


def made(seed, mean=None, status="finished", group=NAME, points=(100.0, 200.0), goal=GOAL, **facts):
    """A run of a group as its own training would have left it."""
    facts = {"env_id": "CartPole-v1", "variant": "ppo", "seed": seed, "group": group, "goal": goal, "status": status,
             "git_hash": "c0ffee+changes", "config": {"max_timesteps": 1000, "description": "d"}, **facts}  # fmt: skip
    if status in ("finished", "interrupted"):
        ended = {"goal": goal, "env_steps": 500, "seconds": 2.0, "val_best": 210.0, "reason": "budget spent"}
        tested = {"test_mean": mean, "test_std": 1.0, "test_episodes": 100, "solved": (mean or 0) >= GOAL}
        facts["outcome"] = {**ended, **tested}
    run = RunDir.create("CartPole-v1", "ppo", seed, facts)
    rows = MetricsCsv(run.metrics_csv)
    for step, value in enumerate(points, 1):
        rows.row({"train/clock/env_steps": 250 * step, "val/roll/ep_rew/mean": value})
    rows.end(None)
    return run


def plan_of(seeds, *words):
    return GroupPlan((SeedPart(words, tuple(seeds)),))


def a_group(means, group=NAME, **facts):
    write_plan(group, plan_of(range(1, 1 + len(means)), "CartPole-v1:ppo", "max_timesteps=1000"))
    for seed, mean in [*enumerate(means, 1)][::-1]:  # the last ended first
        made(seed, mean, group=group, **facts)
    return read_group(f"group:{group}")


def test_seeds_stand_in_the_order_asked_for_each_with_its_fate():
    write_plan(NAME, plan_of([3, 1, 2, 5, 4, 7, 6], "CartPole-v1:ppo"))
    made(2, status="failed", failure="EnvError: the sky fell (sky.py:3)")
    made(1, 480.0)
    made(3, 100.0)
    made(5, status="interrupted")
    made(6, 12.0, goal=None)
    made(7, None)
    group = read_group("group:@last")
    assert [(seed.seed, seed.verdict) for seed in group.seeds] == [
        (3, "not solved"), (1, "solved"), (2, "failed"), (5, "stopped"), (4, "not begun"), (7, "not tested"),
        (6, "trained"),
    ]  # fmt: skip
    assert "sky.py:3" in group.seeds[2].why and group.tested == [100.0, 480.0, 12.0]
    assert group.seeds[2].env_steps == 500, "of one that failed the rows tell"
    assert shown(group.command) == "stride train CartPole-v1:ppo --seed 3,1,2,5,4,7,6"


def test_what_a_run_says_of_itself_commands_no_terminal():
    made(1, status="failed", failure="gone", config={"lr": {"start_value": "x", "kind": "\x1b[1m"}})
    group = read_group(NAME)
    write_group(group)
    lines = [*comparison_lines([group, group], "x", 80), *comparison_lines([group], "x", 80)]
    text = "\n".join([*lines, (group.folder / "report.md").read_text()])
    assert "gone" in text and "\x1b" not in text


@pytest.mark.parametrize("count", [4, 5])
def test_the_report_of_a_group_has_an_interval_from_five_seeds_on(count, snapshot):
    group = a_group([480.0, 490.0, 100.0, 485.0, 470.0][:count])
    write_group(group)
    assert shown((group.folder / "report.md").read_text()) == snapshot


def test_the_folder_of_a_group_holds_what_a_person_a_program_and_a_browser_read(root):
    group = a_group([480.0, 100.0, 490.0])
    made(4, status="failed", failure="EnvError: a | pipe")
    write_plan(NAME, plan_of([1, 2, 3, 4], "CartPole-v1:ppo", "max_timesteps=1000"))
    GroupPage().end(NAME, Ending(1, 4, ""))
    assert sorted(os.listdir(group.folder)) == ["curve.svg", "plan.json", "report.md", "runs.csv"]
    report = (group.folder / "report.md").read_text()
    assert f"train.py --resume group:{NAME}" in report and "EnvError: a \\| pipe" in report
    for seed in read_group(NAME).seeds:
        link = os.path.relpath(seed.run.report, group.folder.resolve())
        assert f"]({link})" in report and (group.folder / link).parent.is_dir()
    assert len(list_runs()) == 4 and all("groups" not in run.id for run in list_runs())
    (root / "groups" / f"{OTHER}.json").write_text('{"words": ["x:y"], "seeds": [7]}')  # before groups had folders
    assert read_plan(OTHER) == plan_of([7], "x:y")
    rows = list(csv.DictReader(io.StringIO((group.folder / "runs.csv").read_text())))
    assert [row["seed"] for row in rows] == ["1", "2", "3", "4"] and rows[3]["why"] == "EnvError: a | pipe"
    assert [row["test_mean"] for row in rows] == ["480.0", "100.0", "490.0", ""]
    svg = ElementTree.parse(group.folder / "curve.svg")
    lines = [line.get("class") for line in svg.iter("{http://www.w3.org/2000/svg}polyline")]
    assert lines.count("several") == 4 and lines.count("mean") == 1
    assert {f"seed {number}" for number in (1, 2, 3, 4)} <= {*svg.getroot().itertext()}


def test_a_seed_that_ended_stays_in_the_band_at_its_last_value():
    made(1, points=(0.0, 100.0))
    made(2, points=(0.0, 0.0, 0.0, 0.0))
    band = band_of([curve_of(seed) for seed in read_group(NAME).seeds])
    assert band.mean[-1] == (1000.0, 50.0) and (band.low[-1].y, band.high[-1].y) == (25.0, 75.0)


def test_a_link_in_the_place_of_a_report_is_not_written_through(tmp_path, capsys):
    group = a_group([480.0])
    (tmp_path / "elsewhere").write_text("mine")
    (group.folder / "report.md").symlink_to(tmp_path / "elsewhere")
    GroupPage().end(NAME, Ending(0, 1, ""))
    assert (tmp_path / "elsewhere").read_text() == "mine" and "a link" in capsys.readouterr().err


@pytest.mark.parametrize("selector", [f"group:{NAME}", NAME, "group:@last", "@last-group"])
def test_train_goes_on_with_a_group_by_each_of_its_names_where_others_want_a_run(selector, capsys):
    """The check before the imports took it for a run's id and refused every group."""
    a_group([480.0])
    with pytest.raises(UserError, match=rf"a group of runs.*--run-id group:({NAME}|@last)"):
        RunDir.find(selector)
    if selector != NAME:
        assert checked(parse_arguments(["--resume", selector])) is None
        assert train.command(["--resume", selector]) == 0
        assert "every run is finished" in capsys.readouterr().out
        assert train.command(["--resume", selector, "policy_lr=1"]) == 2  # nothing it could change


# ---- live and plain lines


class Screen:
    """A group's console, its terminal and its clock."""

    def __init__(self, width=80, height=24, tty=True, quiet=False):
        self.now = 0.0
        self.terminal = Console(
            file=io.StringIO(), force_terminal=tty, width=width, height=height, color_system=None, _environ={}
        )
        self.console = GroupConsole(quiet, self.terminal, lambda: self.now)

    def begin(self, seeds, workers, begun=0):
        self.console.begin(NAME, [SeedJob(seed, ()) for seed in seeds], workers)
        for index in range(begun):
            self.console.began(index)

    def written(self):
        return self.terminal.file.getvalue()

    def drawn(self):
        """The last drawing, line by line."""
        return re.split(r"\x1b\[[0-9]*[AKH]", self.written())[-1].replace("\x1b[?25l", "").split("\n")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_seed_has_a_line_that_fits(width, snapshot):
    """One that failed is not in the mean."""
    screen = Screen(width)
    screen.begin([1, 2, 3], 2, begun=2)
    made(1, status="running", points=(100.0, 243.1))
    made(2, status="failed", failure="EnvError: " + "x" * 300)
    screen.now = 1.0
    screen.console.look()
    screen.console.ended(1, 1, "error: the sky fell")
    assert all(len(line) < width for line in screen.drawn())
    assert "\n".join(screen.drawn()) == snapshot


def test_more_seeds_than_rows_are_counted_and_those_that_train_stay_in_sight():
    screen = Screen(height=12)
    screen.begin(range(1, 41), 2)
    for seed in (30, 31):
        screen.console.began(seed - 1)
        made(seed, status="running")
    screen.now = 1.0
    screen.console.look()
    lines = screen.drawn()
    training = [line.split()[0] for line in lines if "training" in line]
    assert len(lines) <= 12 and training == ["30", "31"]
    waiting = sum("waiting" in line and "and " not in line for line in lines)
    assert any(f"and {38 - waiting} waiting" in line for line in lines)


def test_at_the_end_every_seed_is_told_and_the_cursor_is_back(snapshot):
    write_plan(NAME, plan_of([1, 2], "CartPole-v1:ppo"))
    screen = Screen()
    screen.begin([1, 2], 1, begun=1)
    made(1, 480.0)
    screen.console.ended(0, 0, "solved")
    screen.console.end(NAME, Ending(1, 2, "Ctrl-C"))
    assert shown(screen.written().rpartition("\x1b[?25h")[2]) == snapshot


@pytest.mark.parametrize("quiet", [False, True])
def test_results_come_in_the_order_of_seeds(quiet, snapshot):
    screen = Screen(tty=False, quiet=quiet)
    a_group([480.0, 100.0, 490.0])
    screen.begin([1, 2, 3], 3, begun=3)
    for index in (2, 0, 1):
        screen.console.ended(index, 0, f"result {index}")
    screen.console.end(NAME, Ending(0, 3, ""))
    assert shown(screen.written()) == snapshot


def test_a_pipe_hears_how_far_the_seeds_are():
    screen = Screen(tty=False)
    screen.begin([1, 2], 1, begun=1)
    made(1, status="running", points=(100.0, 243.1))
    for screen.now in (1.0, 29.0, 31.0, 32.0):
        screen.console.look()
    lines = [line for line in screen.written().splitlines() if "done" in line]
    assert lines == ["  0:31  0 of 2 done; seed 1 at 50 %, evaluation 243.1; left -:--"]


# ---- comparisons


def test_groups_are_compared_side_by_side(snapshot):
    mine, other = a_group([480.0] * 5), a_group([100.0] * 6, OTHER, config={"max_timesteps": 2000, "gamma": 0.9})
    assert shown("\n".join(comparison_lines([mine, other], "of the closing tests", 120))) == snapshot
    data = json.loads(json.dumps(comparison_data([mine, other], "x")))
    assert [len(group["runs"]) for group in data["groups"]] == [5, 6]
    assert data["groups"][0]["interval"] == [480.0, 480.0] and data["against_first"][0]["iqm_difference"] == -380.0


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_table_leaves_out_columns_rather_than_to_break(width, root, monkeypatch, snapshot):
    group = a_group([480.0, 100.0])
    monkeypatch.chdir(root)
    lines = comparison_lines([group], "x", width)
    start = lines.index("") + 1
    table = lines[start : lines.index("", start)]
    assert max(map(len, table)) <= width
    assert shown("\n".join(lines)) == snapshot


def test_a_group_is_not_watched_and_played_where_somebody_says_how():
    for words in (["--user"], ["--step-by-step"], ["--fps", "5"]):
        with pytest.raises(UserError, match="is several runs, and these flags need one"):
            parse_play(["--run-id", "group:@last", *words])
    assert not parse_play(["--run-id", "group:@last"]).headless
    assert parse_play(["--run-id", "group:@last", "--episodes=5"]).headless
    assert not parse_play(["--episodes=5"]).headless


def test_real_runs_of_a_group_are_compared_and_played_and_say_what_a_user_may_type(root, capsys):
    runs = gallery_copies("seeds", root)
    for run in runs:
        assert "--group" not in run.report.read_text() and "--group" not in run.facts()["command"]
    assert run_play.command(["--run-id", "group:@last"]) == 0
    out = capsys.readouterr().out
    assert all(run.id in out for run in runs) and "of the closing tests" in out
    assert run_play.command(["--run-id", "group:seeds", "--headless", "--episodes", "3", "--json"]) == 0
    group = json.loads(capsys.readouterr().out)["groups"][0]
    assert [(run["seed"], run["episodes"]) for run in group["runs"]] == [(1, 3), (2, 3)]
    assert run_play.command(["--run-id", f"group:seeds,{OTHER}"]) == 2
    assert os.listdir(folder_of("seeds")) == ["claims"], "to look at a group writes nothing"
