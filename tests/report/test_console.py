"""The console, really rendered: table in place on a terminal, plain lines in a pipe, one line when quiet."""

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import pytest
from rich.console import Console as Terminal
from snapshots import shown

from stride.config.loader import load_config
from stride.config.metrics import Metric, area_of, arranged, console_metrics, load_metrics, metric_of
from stride.report.console import Console, live_page
from stride.report.run_view import live_view
from stride.report.terminal import Page, metric_table
from stride.runstore.history import RATE, STEPS, TAIL, TRAIN, VAL, VAL_BEST, Alert, Event, History, Score
from stride.runstore.outcome import Header, Outcome
from stride.utils.typography import bar, duration, number, score, sparkline

METRICS = load_metrics()
CONFIG = load_config("CartPole-v1", "ppo")
WHY = "the [bold] one", "it is there"
HEADER = Header("CartPole-v1:ppo", "ppo", "eager", WHY[0], "fast", WHY[1], "cpu", 8, 3, 9155, 475.0, 150_000, "runs/x")
OUTCOME = Outcome(True, "goal reached", 475.0, 492.1, 489.34, 21.04, 100, 61_440, 13.6, "runs/x")
BARE = Outcome(False, "budget spent", None, None, None, None, 0, 10, 1.0, "my runs/x")


class Screen:
    """A console with a run under way, its terminal and its clock."""

    def __init__(self, width: int = 100, tty: bool = False, quiet: bool = False, height: int = 50) -> None:
        file = io.StringIO()
        look = {"width": width, "height": height, "force_terminal": tty, "color_system": None}
        self.terminal = Terminal(file=file, **look, _environ={})
        self.now = 0.0
        self.view = Console(quiet, terminal=self.terminal, clock=lambda: self.now)
        self.view.begin(HEADER, CONFIG)
        self.header = self.written()
        file.truncate(0)
        file.seek(0)

    def written(self) -> str:
        return self.terminal.file.getvalue()

    def feed(self, rows: Sequence[dict[str, float]], seconds: float) -> None:
        for row in rows:
            self.now += seconds
            self.view.row(row)

    def beat(self, env_steps: float, doing: str = "", seconds: float = 0.0, more: int = 0) -> None:
        self.now += seconds
        clock = {"env_steps": int(env_steps), "iterations": 0, "updates": 0, "more_seconds": more}
        self.view.beat(clock, doing)


def row(steps: int, reward: float, **more: float) -> dict[str, float]:
    return {STEPS: steps, TRAIN: reward, RATE: 4812.3} | ({VAL: more["val"]} if "val" in more else {})


def test_pipe_gets_one_ascii_line_per_evaluation_and_one_in_five_seconds(snapshot) -> None:
    """However narrow it is said to be, no line is folded."""
    screen = Screen(width=40)
    screen.feed([row(1000 * n, 10.0 * n, **({"val": 243.1} if n == 4 else {})) for n in range(1, 13)], seconds=1.0)
    screen.view.end(None)
    assert screen.written() == snapshot
    assert screen.written().isascii()


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_table_fits_the_terminal(width: int, snapshot) -> None:
    screen = Screen(width, tty=True)
    screen.feed([row(1000 * n, 10.0 * n, val=9.0 * n) for n in range(1, 30)], seconds=0.3)
    screen.view.end(None)
    last_drawing = re.split(r"\x1b\[[0-9]*[AK]", screen.written())[-1].replace("\x1b[?25h", "")
    assert max(map(len, last_drawing.splitlines())) <= width
    assert last_drawing == snapshot


def test_a_terminal_of_another_size_is_drawn_on_anew() -> None:
    screen = Screen(width=120, tty=True)
    screen.feed([row(1000, 10.0), row(2000, 20.0)], seconds=1.0)
    assert "\x1b[2J" not in screen.written()
    screen.terminal.width = 60
    screen.feed([row(3000, 30.0), row(4000, 40.0)], seconds=1.0)
    assert screen.written().count("\x1b[2J") == 1
    after = screen.written().partition("\x1b[2J")[2]
    assert after.count("475 within 150,000 env steps") == 1 and "3,000 / 150,000" in after


def test_the_header_stays_in_sight_of_a_small_terminal() -> None:
    screen = Screen(width=80, tty=True, height=24)
    screen.feed([dict.fromkeys(METRICS, 1.0) | row(1000, 10.0, val=9.0)], seconds=1.0)
    drawing = screen.written().rpartition("\x1b[?25l")[2]
    assert screen.header.count("\n") + drawing.count("\n") < 24


def test_terminal_is_drawn_at_most_four_times_a_second_and_shows_the_last_row() -> None:
    screen = Screen(tty=True)
    screen.feed([row(n, float(n)) for n in range(1, 1001)], seconds=0.001)
    assert screen.written().count("/ 150,000") == 4
    screen.view.end(None)
    assert "1,000 / 150,000" in screen.written()
    assert screen.written().endswith("\x1b[?25h")  # the cursor is back


@pytest.mark.parametrize("tty", [True, False])
def test_the_row_of_the_closing_test_draws_nothing(tty: bool) -> None:
    screen = Screen(tty=tty)
    screen.feed([row(1000, 10.0)], seconds=1.0)
    before = screen.written()
    screen.feed([{STEPS: 1000.0, "test/roll/ep_rew/mean": 77.0, "test/roll/episodes": 100}], seconds=60.0)
    assert screen.written() == before
    screen.view.end(None)
    assert "77.0" not in screen.written() and (tty or screen.written() == before)


def test_quiet_prints_one_line_with_the_same_keys_however_it_ended(snapshot) -> None:
    lines = []
    for outcome in (OUTCOME, replace(OUTCOME, run_path="my\n runs/x\x1b"), BARE, None):
        screen = Screen(tty=True, quiet=True)
        screen.feed([row(1000, 10.0, val=3.0)], seconds=2.0)
        screen.beat(5000, seconds=1e4 if outcome else 0)
        assert screen.header == screen.written() == ""
        screen.view.end(outcome)
        lines.append(screen.written())
    assert lines == snapshot
    changes = {"goal": 5.0}, {"goal": 5.0, "test_mean": 4.0}, {"reason": "interrupted"}, {"reason": "failed"}
    results = [replace(BARE, **changed).result for changed in changes]
    assert results == ["not_tested", "not_solved", "interrupted", "failed"]


def test_beginning_and_end_name_the_facts(snapshot) -> None:
    """What a header says in brackets is text, not markup."""
    screen = Screen()
    screen.view.end(replace(OUTCOME, phases={"learn": 0.7, "collect": 0.3}))
    assert shown(screen.header + screen.written()) == snapshot


def test_outcome_words(snapshot) -> None:
    interrupted, untested = replace(BARE, reason="interrupted"), replace(BARE, goal=5.0)
    changes = {}, {"solved": False}, {"solved": False, "test_mean": None}, {"solved": False, "goal": None}
    outcomes = [replace(OUTCOME, **changed) for changed in (*changes, {"tests": 3}, {"test_episodes": 5})]
    outcomes += [BARE, untested, replace(untested, test_episodes=9, test_wanted=100)]
    outcomes += [interrupted, replace(interrupted, goal=5.0)]
    assert [f"{outcome.verdict} | {outcome.verdict_words} | {outcome.sentence()}" for outcome in outcomes] == snapshot


def metric(name: str, better: Literal["up", "down"] | None = None) -> Metric:
    return replace(METRICS[TRAIN], name=name, title=name, better=better, precision=2)


def cells(
    values: Sequence[float], declared: Metric, ascii_only: bool = False, event: Event | None = None
) -> list[tuple[str, str]]:
    """(text, style) of the pieces of the one line of the table."""
    history = History([declared.name])
    if event:
        history.note(event)
    for value in values:
        history.add({declared.name: value})
        view = live_view("", history, 1, None, 0.0, [declared])
    (line,) = metric_table(view.rows, Page(80, 10, ascii_only))
    return [(line.plain[span.start : span.end].strip(), str(span.style)) for span in line.spans]


def test_change_is_coloured_by_what_is_better_and_a_violated_bound_named() -> None:
    assert ("▲ 2.00", "green") in cells([1.0, 3.0], metric("train/loss/a", "up"))
    assert ("▲ 2.00", "red") in cells([1.0, 3.0], metric("train/loss/a", "down"))
    assert ("▼ 2.00", "dim") in cells([3.0, 1.0], metric("train/loss/a"))
    assert ("- 2.00", "red") in cells([3.0, 1.0], metric("train/loss/a", "up"), ascii_only=True)
    kl = metric("train/policy/kl")
    alert = Alert(kl.name, "KL", "above 0.05", 10, 20, 2, 1, 0.2, "0.20", "It is large.", "Try to rest.")
    over = cells([0.01, 0.2], kl, event=Event(True, alert, 20, "0.20"))
    assert ("! 0.20", "bold yellow") in over and ("above 0.05", "yellow") in over
    assert ("0.20", "bold") in cells([0.01, 0.2], kl, event=Event(False, alert, 30, "0.20"))
    assert ("! nan", "bold yellow") in cells([float("nan")], kl)
    assert ("nan", "bold") in cells([float("nan")], replace(kl, nan=True))


def test_table_groups_by_area_and_says_what_did_not_fit() -> None:
    names = ["test/roll/x", "val/roll/x", "train/time/x", "train/loss/x", "train/roll/x", "train/other/x"]
    names.append("train/loss/y")
    metrics = arranged([STEPS, "train/time/seconds", *names])  # the clock stands above the table
    assert not {metric.name for metric in console_metrics()} & {STEPS, "train/time/seconds"}
    assert (metric_of("train/my/loss").title, area_of("train/my/loss")) == ("my/loss", "my") and area_of("loss") == ""
    order = ["val/roll", "test/roll", "train/roll", "train/loss", "train/loss/y", "train/time", "train/other"]
    assert [metric.name.removesuffix("/x") for metric in metrics] == order
    history = History(names)
    history.add(dict.fromkeys(names, 1.0))
    lines = live_page(live_view("", history, 100, None, 0.0, metrics), Page(80, 4))
    assert [line.plain.split()[:1] for line in lines[-4:-1]] == [["val/roll/x"], ["test/roll/x"], ["roll"]]
    assert "4 more in metrics.csv" in lines[-1].plain


def test_a_metric_of_ones_own_is_in_the_table_from_its_first_row_on() -> None:
    screen = Screen(tty=True)
    screen.feed([row(256, 20.0), row(512, 30.0) | {"train/mine/surprise": 0.125, "train/loss/policy": 0.5}], 1.0)
    before, after = screen.written().split("mine/surprise")[:2]
    assert "Return" in before and "0.125" in after and "Policy loss" in after
    pipe = Screen()
    pipe.feed([row(256, 20.0, val=30.0) | {"train/mine/surprise": 0.125}], 6.0)
    assert "surprise" not in pipe.written()


def test_history_keeps_a_tail_and_the_best_also_of_before() -> None:
    history = History([TRAIN], first_step=1000)
    for n in range(1, 50):
        history.add(row(1000 + n, float(n), val=-float(n)))
    assert list(history.series[TRAIN]) == [float(n) for n in range(50 - TAIL, 50)]
    assert (history.val.best, history.val.best_at, history.train.best) == (-1.0, 1001, 49.0)
    assert history.seconds_left(1000 + 98, elapsed=7.0) == 7.0  # counted from the step it was resumed at
    resumed = History([], first_step=1000)
    for n, (best, at) in enumerate([(9.0, 0), (11.0, 3000)], 2):
        resumed.add(row(1000 * n, 5.0, val=4.0 * n - 1) | {VAL_BEST: best})
        assert (resumed.val.best, resumed.val.best_at, resumed.train.best) == (best, at, 5.0)
    score = Score()
    for step, (value, fraction) in enumerate([(-1500.0, 0.0), (-875.0, 0.5), (-200.0, 1.0)], 1):
        score.add(value, step)
        assert score.toward(-250.0) == fraction  # the way to a negative goal


def test_typography() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([9.0, 5.0, 5.0, 5.0], 3) == "▄▄▄"
    assert sparkline([0.0, float("nan"), 7.0], 8) == "▁ █"
    assert [duration(s) for s in (27, 3723, 183845)] == ["0:27", "1:02:03", "2d 03:04:05"]
    assert [number(x, 2) for x in (1234.567, 0.0003, -0.0, 5e9)] == ["1,234.57", "3.0e-04", "0.00", "5e+09"]
    assert [len("".join(bar(f, 10))) for f in (-1.0, 0.0, 0.55, 1.0, 2.0)] == [10] * 5
    assert [score(x) for x in (243.14, 0.74, -250)] == ["243.1", "0.74", "-250.0"]
    assert bar(0.55, 10) == ("━━━━━╸", "────")


@pytest.mark.parametrize("tty", [True, False])
def test_between_two_rows_the_clock_moves_and_what_is_done_is_named(tty: bool) -> None:
    screen = Screen(tty=tty)
    for beat in range(1, 81):
        screen.beat(50 * beat, seconds=0.5)
    text = screen.written()
    if tty:
        assert "1,000 / 150,000" in text and text.count("/ 150,000") == 40 and "100 steps/s" in text
    else:
        assert [line.split()[0] for line in text.splitlines()] == ["1,000", "2,000", "3,000", "4,000"]
    screen.feed([row(5000, 10.0)], seconds=10.0)
    screen.beat(5000, "learning 3 of 16 epochs", seconds=30)
    assert screen.written().count("learning 3 of 16 epochs") == 1
    screen.feed([row(6000, 10.0)], seconds=10.0)
    assert screen.written().count("learning 3 of 16 epochs") == 1


def test_the_time_left_waits_until_there_is_a_pace_and_counts_what_comes_behind_the_last_step() -> None:
    screen = Screen(tty=False)
    screen.feed([row(1000, 10.0), row(2000, 10.0)], seconds=8.0)
    assert "2,000 steps" in screen.written() and "left" not in screen.written(), "two rows in 16 seconds"
    screen.feed([row(3000, 10.0)], seconds=8.0)
    assert "left 19:36" in screen.written().splitlines()[-1], "147,000 steps at 125 a second"
    screen.beat(150_000, "testing 25 of 100 episodes", seconds=100.0, more=75)
    assert screen.written().splitlines()[-1].endswith("left 1:15  testing 25 of 100 episodes")
    screen.beat(150_000, seconds=100.0)
    assert "left" not in screen.written().splitlines()[-1]


def test_beats_are_fewer_the_longer_it_goes_on() -> None:
    screen = Screen()
    for hour in range(10):
        for _ in range(360):
            screen.beat(screen.now, seconds=10)
        assert screen.written().count("\n") < 150 + 60 * hour


@pytest.mark.parametrize("tty", [True, False])
def test_why_there_is_no_return_yet_is_said_until_there_is_one(tty: bool) -> None:
    screen = Screen(tty=tty)
    for new in ({STEPS: 4096, RATE: 120.0, "train/roll/episodes": 0}, row(8192, -21.0) | {"train/roll/episodes": 1}):
        screen.feed([new], seconds=10.0)
        assert screen.written().count("no episode has ended yet") == 1


def test_alerts_in_a_pipe_are_wrapped_and_complete() -> None:
    means, tip = "It is " + "very " * 40 + "large.", "Try " + "rest, " * 40 + "or sleep."
    alert = Alert(TRAIN, "KL", "above 0.05", 10, 20, 2, 1, 0.2, "0.20", means, tip)
    screen = Screen()
    screen.view.alert(Event(True, replace(alert, times=1), 20, "0.20"))
    lines = screen.written().splitlines()
    assert max(map(len, lines)) <= 100 and " ".join(" ".join(lines).split()).endswith(f"{means} {tip}")
