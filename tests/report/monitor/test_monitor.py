"""The monitor without a terminal: what each screen shows of runs and groups, what keys do, what programs are told."""

import json
import os
import shutil
import subprocess
import time

import pytest

from stride.commands import monitor as door
from stride.config.bands import Measured
from stride.config.loader import load_config, to_plain
from stride.config.metrics import Metric
from stride.report import notebook_page
from stride.report.metrics_sinks import MetricsCsv
from stride.report.monitor import band, machine, run_page, watched_run
from stride.report.monitor.app import Monitor
from stride.report.monitor.once import as_json, as_text
from stride.report.monitor.run_list import find_target
from stride.report.monitor.watched_run import WatchedRun
from stride.report.run_view import metric_row
from stride.report.terminal import Page, alert_lines, clean, encoded, line_of, metric_table
from stride.runstore.history import Alert
from stride.runstore.metrics_layout import NAME
from stride.runstore.metrics_writer import MetricsWriter
from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import write_json
from stride.runstore.run_lock import locked
from stride.utils.user_error import UserError
from tests.pretended_run import BUDGET, facts, outcome, row

GROUP = "20260101-000000-abcd"


def made(seed=1, rows=60, status="finished", group="", file=False, **more):
    """A run as its training would leave it, and the writer of its metrics.mmap."""
    if status in ("finished", "interrupted"):
        more = {"outcome": outcome(), **more}
    run = RunDir.create("CartPole-v1", "ppo", seed, facts(seed, group, status, **more))
    table = MetricsCsv(run.metrics_csv)
    writer = MetricsWriter(run.path / NAME, run.id, {"config_id": "CartPole-v1:ppo"}) if file else None
    for number in range(1, rows + 1):
        table.row(row(number))
        if writer:
            writer.row(500 * number, row(number))
    table.end(None)
    if writer:
        writer.max_timesteps = BUDGET
        writer.progress(31_250, 62, 620, "evaluating 2 of 10 episodes")
    return run, writer


def aged(run):
    """It was made a minute ago."""
    os.utime(run.config_json, (time.time() - 60,) * 2)


def screen(monitor, width=99, height=60):
    """All that is on the screen."""
    lines = monitor.page(Page(width, height))
    assert len(lines) == height and all(line.cell_len <= width for line in lines)
    return "\n".join(line.plain for line in lines)


def looking(*target):
    monitor = Monitor(*target)
    monitor.look()
    monitor.look()
    return monitor


@pytest.mark.parametrize(("width", "height"), [(59, 20), (79, 24), (199, 50)])
@pytest.mark.parametrize("mode", ["run", "runs"])
def test_every_screen_fits_and_tells_the_state_the_clock_and_the_keys(width, height, mode):
    made(1, group=GROUP)
    run, writer = made(2, status="running", file=True)
    with locked(run.path):
        monitor = looking(run.path)
        if mode == "runs":
            monitor.press("m")
        text = screen(monitor, width, height)
    writer.end("finished", "")
    last = text.splitlines()[-1]
    assert "live" in text and "q quit" in last and last.endswith(monitor.sorts[mode][0])
    if mode == "run":
        assert "31,250 / 100,000" in text and "31%" in text and "evaluating 2 of 10 episodes" in text and " KL " in text
        titles = [line.rpartition("  ")[2].strip() for line in text.splitlines()]
        assert ("evaluation" in titles and "┤" in text) == (width >= run_page.VERY_WIDE)
    else:
        assert "solved" in text and (f"group {GROUP}" in text) == (width > 90)


def test_a_run_tells_the_same_by_its_file_and_by_its_table():
    run, writer = made(1, rows=60, status="running", file=True)
    with locked(run.path):
        both = WatchedRun(run.path).refresh()
        writer.end("finished", "")
        (run.path / NAME).unlink()
        table = WatchedRun(run.path).refresh()
    assert both.values == pytest.approx(table.values, rel=1e-6)
    assert (both.val, both.state) == (table.val, table.state)
    assert (both.env_steps, table.env_steps) == (31_250, 30_000), "between two rows only the file's clock moves"
    phases = {name: share for name, share in table.phases.items() if share}
    assert phases == pytest.approx({"learn": 0.6, "other": 0.4}) and both.phases == table.phases


@pytest.mark.parametrize(
    ("status", "more", "state", "words"),
    [
        ("finished", {}, "finished", "solved (goal reached), 480.0 over 100 fresh episodes, goal 475"),
        ("interrupted", {}, "interrupted", "python train.py --resume"),
        ("failed", {"failure": "EnvError: the sky fell (sky.py:3)"}, "failed", "the sky fell (sky.py:3)"),
        ("running", {}, "dead", "its process ended without a message before its first checkpoint"),
    ],
)
def test_what_ended_says_how_and_what_to_do(status, more, state, words):
    run, _ = made(1, status=status, **more)
    aged(run)
    text = screen(looking(run.path), 139, 40)
    assert text.splitlines()[0].rstrip().endswith(state) and words in text


def test_keys_sort_scroll_freeze_switch_and_quit():
    first, _ = made(1, status="running")
    with locked(first.path):
        monitor = looking(first.path)
        assert screen(monitor).index("Return") < screen(monitor).index("Entropy")
        monitor.press("s")
        assert screen(monitor).index("Entropy") < screen(monitor).index("Return"), "by name"
        monitor.press("down")
        assert "1 more above" in screen(monitor, 79, 14)
        monitor.press("right")
        assert first.id in screen(monitor), "there is no other"
        second, _ = made(2, status="running")
        with locked(second.path):
            monitor._list_time = -10.0
            for run in (second, first):
                monitor.press("right")
                assert run.id in screen(monitor) and "of 2 live" in screen(monitor)
        monitor.press("p")
        MetricsCsv(first.metrics_csv, 10**9).row(row(61))
        monitor.look()
        assert "30,000 /" in screen(monitor) and "frozen" in screen(monitor)
        monitor.press("p")
        monitor.look()
        assert "30,500 /" in screen(monitor) and "frozen" not in screen(monitor)
    assert not monitor.press("q")


def test_a_group_is_one_row_that_opens_and_its_runs_are_gone_into():
    for seed in (2, 1):
        made(seed, group=GROUP)
    made(3, status="failed", group=GROUP, failure="x")
    monitor = looking(*find_target("group:" + GROUP))
    assert screen(monitor).count("CartPole-v1:ppo") == 4, "a group that was asked for stands open"
    assert "2 solved, 1 failed" in screen(monitor) and "3 seeds" in screen(monitor)
    monitor.press("enter")
    assert screen(monitor).count("CartPole-v1:ppo") == 1
    for key in ("enter", "down", "enter"):
        monitor.press(key)
    assert monitor.mode == "run" and "seed 1" in screen(monitor).splitlines()[0], "by their seeds"


def test_alerts_that_are_open_stand_below_the_table(monkeypatch):
    run, _ = made(1, rows=0, config=to_plain(load_config("CartPole-v1", "ppo")))
    table = MetricsCsv(run.metrics_csv)
    for number in range(1, 80):
        table.row(row(number) | {"train/policy/approx_kl": 0.5})
    text = screen(looking(run.path))
    alerts = text.split("\n  ! ")[1]
    assert "! 0.5" in text and "KL above" in alerts and "policy_lr" in alerts
    monkeypatch.setattr(watched_run, "watch_of", lambda view: None)
    assert "!" not in screen(looking(run.path)), "what another version wrote is shown without advice"


def test_the_band_is_told_by_quarters_of_seeds_at_the_same_steps():
    curves = tuple([(0.0, 0.0), (100.0, float(top))] for top in (0, 100, 200, 300, 400))
    measured = Measured({"gamma": 0.9, "seed": 1}, curves, 200.0, 5, 5)
    assert measured.at(50) == [0, 50, 100, 150, 200] and measured.at(500)[-1] == 400, "who ended stays at the last"
    assert [band.ranked(measured, 50, value).split(" of ")[0] for value in (-1, 20, 100, 180, 300)] == [
        "below all 5 shipped seeds at 50 steps", "below the 25th percentile",
        "between the 25th and 75th percentile", "above the 75th percentile", "above all 5 shipped seeds at 50 steps",
    ]  # fmt: skip
    assert band.ranked(measured, -1, 5.0) == "", "before their first evaluation"
    assert band.differing(measured, {"gamma": 0.8, "seed": 2}) == ["gamma"]
    assert band.shipped("Nowhere-v0:ppo") is None and len(band.shipped("CartPole-v1:ppo").curves) >= 5


def test_programs_are_told_one_object_and_pipes_a_screen_without_codes(capsys):
    with pytest.raises(UserError, match="no runs yet"):
        door.main(["--once"])
    run, _ = made(4)
    data = json.loads(as_json(run.path, ""))
    assert (data["state"], data["seed"], data["env_steps"], data["goal"]) == ("finished", 4, 30_000, 475.0)
    assert data["returns"]["val"]["last"] > 400 and data["metrics"]["train/policy/entropy"] == pytest.approx(0.58)
    assert data["seconds"] == 20.0 and "shipped seeds" in data["band"]
    assert door.main(["--latest", "--once"]) == 0
    text = capsys.readouterr().out
    assert run.id in text and "\x1b" not in text and "q quit" not in text and text.count("\n") < 40
    assert as_text(Monitor(run.path)).strip() == text.strip()
    for words, line in (("", "--once"), ("--onec", "unknown argument"), ("--once --json", "one of them")):
        with pytest.raises(UserError, match=line):
            door.main(words.split())
    made(5, group=GROUP)
    runs = json.loads(as_json(None, GROUP))["runs"]
    assert [(run["seed"], run["state"], run["return"]) for run in runs] == [(5, "solved", 480.0)]


def test_the_newest_in_training_is_shown_before_a_newer_one_that_ended():
    live, _ = made(1, status="running")
    ended, _ = made(2)
    with locked(live.path):
        assert find_target("")[0] == live.path and find_target("", latest=True)[0] == ended.path
    aged(live)
    assert find_target("")[0] == ended.path
    write_json(ended.config_json, {"status": 3})
    assert "damaged" in screen(looking(ended.path))


def test_a_loop_of_ones_own_needs_no_run_folder(tmp_path):
    file = MetricsWriter(tmp_path / NAME, "my loop", {}, metrics=4, points=8)
    for step in range(1, 6):
        file.row(step, {"loss": 1 / step, "acc\x1b[2J": 0.5})
    for words in (str(tmp_path), str(tmp_path / NAME)):
        text = screen(looking(*find_target(words)))
        assert "my loop" in text and "0.200" in text and "live" in text and "\x1b" not in text
    file.end("finished", "done")
    assert "finished" in screen(looking(tmp_path)) and "done" in screen(looking(tmp_path))


@pytest.mark.parametrize("width", [30, 79, 120])
def test_no_word_of_a_stranger_commands_a_terminal_or_a_page(width):
    """What is printed is as wide as it is counted."""
    assert clean("a\x1b[2Jb\u202e\u4e2d\u0301c\n") == "a?[2Jb???c?"
    line = line_of().append("a", "bold").append("±▲", "red")
    assert encoded([line], unicode=False, colours=False) == ["a+-?"]
    assert encoded([line], unicode=True, colours=True) == ["\x1b[1ma\x1b[0m\x1b[31m±▲\x1b[0m"]
    evil = "\x1b]0;x\x07\x1b[2J<script>\u4e2d\u202e"
    alert = Alert(evil, evil, evil, 1, 2, 1, 1, None, "x", evil, evil)
    row = metric_row(Metric(evil, evil, evil, evil, 2), 1.0, [0.0, 1.0], [alert])
    lines = [*metric_table([row], Page(width, 10)), *alert_lines([alert], Page(width, 10))]
    text = encoded(lines, unicode=True, colours=False)
    assert len(text) == 2 and all(line.isprintable() and len(line) <= width for line in text)
    assert not any("\u4e2d" in line for line in text)
    assert "<script>" not in notebook_page._metric_row(row)


def test_this_process_takes_memory_and_processor_time():
    look = machine.Machine()
    first = look.look(os.getpid())
    end = time.process_time() + 0.05
    while time.process_time() < end:
        pass
    second = look.look(os.getpid())
    assert first.cpu is None and second.cpu > 1 and second.memory > 10 << 20 and second.available > second.memory
    assert look.look(2**22 + 7) is None


NVML = r"""
static int first, second;
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned place, void **device) { *device = place ? &second : &first; return 0; }
int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates) {
    rates[0] = device == &first ? 45 : 0; rates[1] = 7; return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
    memory[0] = 80ULL << 30; memory[1] = 77ULL << 30; memory[2] = 3ULL << 30; return device == &first ? 0 : 3;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_gpus_are_asked_through_nvidias_library_where_it_is(tmp_path, monkeypatch):
    """Against a stand-in with its functions, whose second device refuses; no GPU has shown this screen yet."""
    assert machine.Machine().gpus() == [] or os.path.exists("/proc/driver/nvidia/version")
    (tmp_path / "nvml.c").write_text(NVML)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "nvml.so", tmp_path / "nvml.c"], check=True)
    monkeypatch.setattr(machine, "NVML", str(tmp_path / "nvml.so"))
    gpus = machine.Machine().gpus()
    assert gpus == [machine.Gpu(45, 3 << 30, 80 << 30)]
    assert run_page.machine_text(None, gpus) == "gpu 45 %, 3.0 of 80.0 GiB"
