"""A group of seeds as people meet it: live and plain lines, its folder of report, curve and table, comparisons."""

import csv
import io
import json
import os
import re
from xml.etree import ElementTree

import pytest
from rich.console import Console

from stride.commands import run_play, train
from stride.commands.run_arguments import parse_play
from stride.commands.train_arguments import parse_arguments
from stride.commands.train_opening import checked
from stride.report.comparison import comparison_data, comparison_lines
from stride.report.group import band_of, curve_of, read_group, together
from stride.report.group_console import GroupConsole
from stride.report.group_page import GroupPage, write_group
from stride.report.metrics_sinks import MetricsCsv
from stride.runstore.run_dir import RunDir, list_runs
from stride.runstore.run_files import write_json
from stride.runstore.seed_group import Ending, GroupPlan, SeedJob, SeedPart, folder_of, read_plan, write_plan
from stride.utils.user_error import UserError
from tests.tiny_runs import tiny_run

NAME, OTHER = "20200101-000000-abcd", "20200102-000000-abcd"
GOAL = 475.0


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    return tmp_path


def made(seed, mean=None, status="finished", group=NAME, points=(100.0, 200.0), **facts):
    """A run of a group as its own training would have left it."""
    facts = {"env_id": "CartPole-v1", "variant": "ppo", "seed": seed, "group": group, "goal": GOAL, "status": status,
             "git_hash": "c0ffee+changes", "config": {"max_timesteps": 1000, "description": "d"}, **facts}  # fmt: skip
    if status in ("finished", "interrupted"):
        ended = {"goal": GOAL, "env_steps": 500, "seconds": 2.0, "val_best": 210.0, "reason": "budget spent"}
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
    write_plan(NAME, plan_of([3, 1, 2, 5, 4], "CartPole-v1:ppo"))
    made(2, status="failed", failure="EnvError: the sky fell (sky.py:3)")
    made(1, 480.0)
    made(3, 100.0)
    made(5, status="interrupted")
    found = read_group("group:@last")
    told_ = [(each.seed, each.verdict) for each in found.seeds]
    assert told_ == [(3, "not solved"), (1, "solved"), (2, "failed"), (5, "stopped"), (4, "not begun")]
    assert "sky.py:3" in found.seeds[2].why and found.tested == [100.0, 480.0]
    assert found.seeds[2].env_steps == 500, "of one that failed the rows tell"
    assert found.command == "python train.py CartPole-v1:ppo --seed 3,1,2,5,4"


def test_what_a_run_says_of_itself_commands_no_terminal():
    made(1, status="failed", failure="gone", config={"lr": {"start_value": "x", "kind": "\x1b[1m"}})
    found = read_group(NAME)
    write_group(found)
    shown = "\n".join(
        (
            *comparison_lines([found, found], "x", 80),
            *comparison_lines([found], "x", 80),
            (found.folder / "report.md").read_text(),
        )
    )
    assert "gone" in shown and "\x1b" not in shown


def test_only_what_was_tested_is_solved_or_not():
    write_plan(NAME, plan_of([1, 2]))
    made(1, None)
    made(2, 12.0, goal=None)
    json_of = RunDir(next(run.path for run in list_runs() if "-s2-" in run.id))
    facts = json_of.facts()
    write_json(json_of.config_json, {**facts, "outcome": {**facts["outcome"], "goal": None}})
    assert [each.verdict for each in read_group("@last-group").seeds] == ["not tested", "trained"]


@pytest.mark.parametrize(("count", "sure"), [(4, False), (5, True)])
def test_an_interval_wants_five_seeds(count, sure):
    found = a_group([480.0, 490.0, 100.0, 485.0, 470.0][:count])
    assert ("95 %" in together(found)) == sure
    write_group(found)
    report = (found.folder / "report.md").read_text()
    assert ("95 % " in report.split("## Next")[0].replace("its 95 % interval", "")) == sure
    assert (f"o interval: {count} seeds" in report) == (not sure)


def test_the_folder_of_a_group_holds_what_a_person_a_program_and_a_browser_read():
    found = a_group([480.0, 100.0, 490.0])
    made(4, status="failed", failure="EnvError: a | pipe")
    write_plan(NAME, plan_of([1, 2, 3, 4], "CartPole-v1:ppo", "max_timesteps=1000"))
    GroupPage().end(NAME, Ending(1, 4, ""))
    assert sorted(os.listdir(found.folder)) == ["curve.svg", "plan.json", "report.md", "runs.csv"]
    report = (found.folder / "report.md").read_text()
    assert f"python train.py --resume group:{NAME}" in report and "--seed 1-4" in report and "--group" not in report
    assert "2 of 4 seeds solved" in report and "EnvError: a \\| pipe" in report
    for each in read_group(NAME).seeds:
        link = os.path.relpath(each.run.report, found.folder.resolve())
        assert f"]({link})" in report and (found.folder / link).parent.is_dir()
    rows = list(csv.DictReader(io.StringIO((found.folder / "runs.csv").read_text())))
    assert [row["seed"] for row in rows] == ["1", "2", "3", "4"] and rows[3]["why"] == "EnvError: a | pipe"
    assert [row["test_mean"] for row in rows] == ["480.0", "100.0", "490.0", ""]
    svg = ElementTree.parse(found.folder / "curve.svg")
    lines = [each.get("class") for each in svg.iter("{http://www.w3.org/2000/svg}polyline")]
    assert lines.count("thin") == 4 and lines.count("mean") == 1


def test_runs_csv_loads_in_pandas():
    pandas = pytest.importorskip("pandas")
    found = a_group([480.0, None])
    write_group(found)
    table = pandas.read_csv(found.folder / "runs.csv")
    assert table.test_mean.dtype == float and table.groupby("verdict").size().to_dict() == {
        "not tested": 1,
        "solved": 1,
    }


def test_a_seed_that_ended_stays_in_the_band_at_its_last_value():
    made(1, points=(0.0, 100.0))
    made(2, points=(0.0, 0.0, 0.0, 0.0))
    band = band_of([curve_of(each) for each in read_group(NAME).seeds])
    assert band.mean[-1] == (1000.0, 50.0) and (band.low[-1].y, band.high[-1].y) == (25.0, 75.0)


def test_runs_and_groups_do_not_disturb_one_another(root):
    write_group(a_group([480.0, 100.0]))
    assert len(list_runs()) == 2 and all("groups" not in run.id for run in list_runs())
    (root / "runs/groups" / f"{OTHER}.json").write_text('{"words": ["x:y"], "seeds": [7]}')  # before groups had folders
    assert read_plan(OTHER) == plan_of([7], "x:y")


def test_a_link_in_the_place_of_a_report_is_not_written_through(root, capsys):
    found = a_group([480.0])
    (root / "elsewhere").write_text("mine")
    (found.folder / "report.md").symlink_to(root / "elsewhere")
    GroupPage().end(NAME, Ending(0, 1, ""))
    assert (root / "elsewhere").read_text() == "mine" and "a link" in capsys.readouterr().err


def test_one_run_is_wanted_where_a_group_is_named(capsys):
    a_group([480.0])
    for selector in (f"group:{NAME}", NAME, "@last-group"):
        with pytest.raises(UserError, match=rf"a group of runs.*--run-id group:({NAME}|@last)"):
            RunDir.find(selector)


@pytest.mark.parametrize("selector", [f"group:{NAME}", "group:@last", "@last-group"])
def test_train_goes_on_with_a_group_by_each_of_its_names(selector, capsys):
    """The check before the imports took it for a run's id and refused every group."""
    a_group([480.0])
    assert checked(parse_arguments(["--resume", selector])) is None
    assert train.command(["--resume", selector]) == 0
    assert "every run is finished" in capsys.readouterr().out
    assert train.command(["--resume", selector, "policy_lr=1"]) == 2  # nothing it could change


# ---- live and plain lines


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def screen(width, height):
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None)


def drawn(terminal):
    """The last drawing, line by line."""
    return re.split(r"\x1b\[[0-9]*[AKH]", terminal.file.getvalue())[-1].replace("\x1b[?25l", "").split("\n")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_every_seed_has_a_line_that_fits(width):
    terminal, clock = screen(width, 24), Clock()
    console = GroupConsole(False, terminal, clock)
    jobs = [SeedJob(seed, ()) for seed in (1, 2, 3)]
    console.begin(NAME, jobs, 2)
    console.began(0)
    console.began(1)
    made(1, status="running", points=(100.0, 243.1))
    made(2, status="failed", failure="EnvError: " + "x" * 300)
    clock.now = 1.0
    console.look()
    console.ended(1, 1, "error: the sky fell")
    lines = drawn(terminal)
    assert all(len(line) < width for line in lines)
    first = next(line for line in lines if " 1  training" in line)
    assert "50%" in first and "243.1" in first
    assert any(" 2  failed" in line and "EnvError" in line for line in lines)
    assert any(" 3  waiting" in line for line in lines)
    assert any(line.startswith("  mean  243.1 over 1 seed") for line in lines), "one that failed is not in the band"


def test_more_seeds_than_rows_are_counted_and_those_that_train_stay_in_sight():
    terminal, clock = screen(80, 12), Clock()
    console = GroupConsole(False, terminal, clock)
    console.begin(NAME, [SeedJob(seed, ()) for seed in range(1, 41)], 2)
    for seed in (30, 31):
        console.began(seed - 1)
        made(seed, status="running")
    clock.now = 1.0
    console.look()
    lines = drawn(terminal)
    assert (
        len(lines) <= 12
        and any("30  training" in line for line in lines)
        and any("31  training" in line for line in lines)
    )
    shown = sum("waiting" in line and "and " not in line for line in lines)
    assert any(f"and {38 - shown} waiting" in line for line in lines)


def test_a_terminal_that_changes_its_size_is_drawn_on_anew():
    terminal, clock = screen(100, 24), Clock()
    console = GroupConsole(False, terminal, clock)
    console.begin(NAME, [SeedJob(1, ())], 1)
    terminal.width = 60
    clock.now = 1.0
    console.look()
    assert "\x1b[2J\x1b[H" in terminal.file.getvalue() and any(NAME in line for line in drawn(terminal))


def test_at_the_end_every_seed_is_told_and_the_cursor_is_back():
    write_plan(NAME, plan_of([1, 2], "CartPole-v1:ppo"))
    terminal = screen(80, 24)
    console = GroupConsole(False, terminal, Clock())
    console.begin(NAME, [SeedJob(1, ()), SeedJob(2, ())], 1)
    console.began(0)
    made(1, 480.0)
    console.ended(0, 0, "solved")
    console.end(NAME, Ending(1, 2, "Ctrl-C"))
    after = terminal.file.getvalue().rpartition("\x1b[?25h")[2]
    assert "1  solved" in after and "2  not begun" in after
    assert after.strip().splitlines()[-2:] == [
        "  stopped by Ctrl-C, 1 of 2 unfinished",
        f"  continue: python train.py --resume group:{NAME}",
    ]


@pytest.mark.parametrize("quiet", [False, True])
def test_results_come_in_the_order_of_seeds(quiet):
    file = io.StringIO()
    console = GroupConsole(quiet, Console(file=file, force_terminal=False, width=80), Clock())
    a_group([480.0, 100.0, 490.0])
    console.begin(NAME, [SeedJob(seed, ()) for seed in (1, 2, 3)], 3)
    for index in (0, 1, 2):
        console.began(index)
    for index in (2, 0, 1):
        console.ended(index, 0, f"result {index}")
    console.end(NAME, Ending(0, 3, ""))
    lines = file.getvalue().strip().splitlines()
    told_ = [line for line in lines if "result" in line]
    assert [line.split()[-1] for line in told_] == ["0", "1", "2"]
    if quiet:
        assert len(lines) == 4 and lines[3].startswith(f"group {NAME}: 3 runs: mean 356.67")


def test_a_pipe_hears_how_far_the_seeds_are():
    file, clock = io.StringIO(), Clock()
    console = GroupConsole(False, Console(file=file, force_terminal=False, width=80), clock)
    console.begin(NAME, [SeedJob(1, ()), SeedJob(2, ())], 1)
    console.began(0)
    made(1, status="running", points=(100.0, 243.1))
    for clock.now in (1.0, 29.0, 31.0, 32.0):
        console.look()
    lines = [line for line in file.getvalue().splitlines() if "done" in line]
    assert lines == ["  0:31  0 of 2 done; seed 1 at 50 %, val 243.1; left -:--"]


# ---- comparisons


def test_groups_are_compared_side_by_side():
    mine, theirs = a_group([480.0] * 5), a_group([100.0] * 6, OTHER, config={"max_timesteps": 2000, "gamma": 0.9})
    lines = "\n".join(comparison_lines([mine, theirs], "of the closing tests", 120))
    assert "apart in gamma: null | 0.9" in lines and "apart in max_timesteps: 1000 | 2000" in lines
    assert "B - A: IQM -380.00 [95 % -380.00 .. -380.00], a run of B beats one of A with probability 0.00" in lines
    found = json.loads(json.dumps(comparison_data([mine, theirs], "x")))
    assert [len(each["runs"]) for each in found["groups"]] == [5, 6]
    assert found["groups"][0]["interval"] == [480.0, 480.0] and found["against_first"][0]["iqm_difference"] == -380.0


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_table_leaves_out_columns_rather_than_to_break(width):
    mine = a_group([480.0, 100.0])
    lines = comparison_lines([mine], "x", width)
    table = lines[lines.index("") + 1 : lines.index("", lines.index("") + 1)]
    assert len(table) == 3 and max(map(len, table)) <= width and table[1].split()[:2] == ["1", "solved"]
    assert (mine.seeds[0].run.id in lines[4]) == (width >= 80)


@pytest.mark.parametrize("words", [["--user"], ["--step-by-step"], ["--fps", "5"]])
def test_a_group_is_not_watched(words):
    with pytest.raises(UserError, match="compared, not watched"):
        parse_play(["--run-id", "group:@last", *words])


def test_whoever_says_how_to_play_wants_it_played():
    assert not parse_play(["--run-id", "group:@last"]).headless
    assert parse_play(["--run-id", "group:@last", "--episodes=5"]).headless
    assert not parse_play(["--episodes=5"]).headless


def test_real_runs_of_a_group_are_compared_and_played_and_say_what_a_user_may_type(capsys):
    runs = [tiny_run("CartPole-v1:ppo", "--group", NAME, "--seed", str(seed)) for seed in (1, 2)]
    for run in runs:
        assert "--group" not in run.report.read_text() and "--group" not in run.facts()["command"]
    capsys.readouterr()
    assert run_play.command(["--run-id", "group:@last"]) == 0
    out = capsys.readouterr().out
    assert all(run.id in out for run in runs) and "of the closing tests" in out
    assert run_play.command(["--run-id", f"group:{NAME}", "--headless", "--episodes", "3", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["groups"][0]
    assert [(each["seed"], each["episodes"]) for each in found["runs"]] == [(1, 3), (2, 3)]
    assert run_play.command(["--run-id", f"group:{NAME},{OTHER}"]) == 2
    assert os.listdir(folder_of(NAME)) == ["claims"], "to look at a group writes nothing"
