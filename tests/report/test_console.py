"""The console, really rendered: table in place on a terminal, plain lines in a pipe, one line when quiet."""

import io
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import pytest
from rich.console import Console as Terminal

from stride.config.loader import load_config
from stride.config.metrics import Metric, area_of, arranged, console_metrics, load_metrics, metric_of
from stride.report.console import Console, live_head, live_page
from stride.report.run_view import live_view
from stride.report.terminal import Page, metric_table
from stride.runstore.history import RATE, STEPS, TAIL, TRAIN, VAL, VAL_BEST, Alert, Event, History, Score
from stride.runstore.outcome import Header, Outcome
from stride.utils.places import spelled
from stride.utils.typography import bar, duration, number, score, sparkline

METRICS = load_metrics()
CONFIG = load_config("CartPole-v1", "ppo")
HEADER = Header(
    "CartPole-v1:ppo",
    "ppo",
    "eager",
    "the only one",
    "fast",
    "it is there",
    "cpu",
    8,
    3,
    9155,
    475.0,
    150_000,
    "runs/x",
)
OUTCOME = Outcome(True, "goal reached", 475.0, 492.1, 489.34, 21.04, 100, 61_440, 13.6, "runs/x")


class Watch:
    """A clock that goes when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def begun(**kinds: Any) -> tuple[Console, Terminal, Watch]:
    """As `console`, with a run under way and the screen empty again."""
    view, terminal, watch = console(**kinds)
    view.begin(HEADER, CONFIG)
    assert isinstance(terminal.file, io.StringIO)
    terminal.file.truncate(0)
    terminal.file.seek(0)
    return view, terminal, watch


def console(
    width: int = 100, tty: bool = False, quiet: bool = False, **kinds: float
) -> tuple[Console, Terminal, Watch]:
    terminal = Terminal(file=io.StringIO(), width=width, height=50, force_terminal=tty, color_system=None, _environ={})
    watch = Watch()
    return Console(quiet, terminal=terminal, clock=watch), terminal, watch


def written(terminal: Terminal) -> str:
    assert isinstance(terminal.file, io.StringIO)
    return terminal.file.getvalue()


def row(steps: int, reward: float, **more: float) -> dict[str, float]:
    return {STEPS: steps, TRAIN: reward, RATE: 4812.3} | ({VAL: more["val"]} if "val" in more else {})


def feed(view: Console, watch: Watch, rows: Sequence[dict[str, float]], seconds: float) -> None:
    for one in rows:
        watch.now += seconds
        view.row(one)


def test_pipe_gets_one_ascii_line_per_evaluation_and_one_in_five_seconds() -> None:
    view, terminal, watch = begun()
    rows = [row(1000 * n, 10.0 * n, **({"val": 243.1} if n == 4 else {})) for n in range(1, 13)]
    feed(view, watch, rows, seconds=1.0)
    view.end(None)
    lines = written(terminal).splitlines()
    assert [line.split()[0] for line in lines] == ["1,000", "4,000", "9,000", "12,000"]
    expected = "    4,000 steps    3%  ep_rew 40.0 (best 40.0)  val 243.1 / goal 475  4,812 steps/s  left 2:26"
    assert lines[1] == expected
    assert written(terminal).isascii()


def test_long_plain_lines_are_not_folded() -> None:
    view, terminal, watch = begun(width=40)
    feed(view, watch, [row(1000, 10.0, val=3.0)], seconds=1.0)
    assert written(terminal).count("\n") == 1


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_table_fits_the_terminal(width: int) -> None:
    view, terminal, watch = begun(width=width, tty=True)
    feed(view, watch, [row(1000 * n, 10.0 * n, val=9.0 * n) for n in range(1, 30)], seconds=0.3)
    view.end(None)
    lines = re.split(r"\x1b\[[0-9]*[AK]", written(terminal))[-1].splitlines()  # what the last drawing left
    assert max(map(len, lines)) <= width
    assert any(METRICS[TRAIN].title[:10] in line and "290.0" in line for line in lines)
    assert any("val 261.0 / 475" in line for line in lines)
    if width >= 60:
        assert any("best 261.0 at 29,000" in line for line in lines)
    evaluation, training = (
        next(n for n, line in enumerate(lines) if METRICS[name].title in line) for name in (VAL, TRAIN)
    )
    assert evaluation < training, "what decides stands first"


def test_no_word_of_the_clock_is_cut_at_60_columns() -> None:
    history = History([])
    history.add(row(29_000, 500.0, val=500.0) | {VAL_BEST: 500.0})
    for width in range(40, 130):
        steps, goal, *_ = live_head(live_view("", history, 150_000, 475.0, 10.0), Page(width, 20))
        assert max(steps.cell_len, goal.cell_len) <= width
        assert "val 500.0 / 475" in goal.plain


def test_a_terminal_of_another_size_is_drawn_on_anew() -> None:
    view, terminal, watch = begun(width=120, tty=True)
    feed(view, watch, [row(1000, 10.0), row(2000, 20.0)], seconds=1.0)
    assert "\x1b[2J" not in written(terminal)
    terminal.width = 60
    feed(view, watch, [row(3000, 30.0), row(4000, 40.0)], seconds=1.0)
    assert written(terminal).count("\x1b[2J") == 1
    after = written(terminal).partition("\x1b[2J")[2]
    assert after.count("475 within 150,000 env steps") == 1 and "3,000 / 150,000" in after
    view.end(None)


def test_the_header_stays_in_sight_of_a_small_terminal() -> None:
    view, terminal, watch = console(width=80, tty=True)
    terminal.height = 24
    view.begin(HEADER, CONFIG)
    above = written(terminal).count("\n")
    feed(view, watch, [dict.fromkeys(METRICS, 1.0) | row(1000, 10.0, val=9.0)], seconds=1.0)
    shown = re.split(r"\x1b\[\?25l", written(terminal))[-1].count("\n")
    assert above + shown < 24


def test_terminal_is_drawn_at_most_four_times_a_second_and_shows_the_last_row() -> None:
    view, terminal, watch = begun(tty=True)
    feed(view, watch, [row(n, float(n)) for n in range(1, 1001)], seconds=0.001)
    assert written(terminal).count("/ 150,000") == 4
    view.end(None)
    assert "1,000 / 150,000" in written(terminal)
    assert written(terminal).endswith("\x1b[?25h")  # the cursor is back


@pytest.mark.parametrize("tty", [True, False])
def test_the_row_of_the_closing_test_draws_nothing(tty: bool) -> None:
    view, terminal, watch = begun(tty=tty)
    feed(view, watch, [row(1000, 10.0)], seconds=1.0)
    before = written(terminal)
    feed(view, watch, [{STEPS: 1000.0, "test/roll/ep_rew/mean": 77.0, "test/roll/episodes": 100}], seconds=60.0)
    assert written(terminal) == before
    view.end(None)
    assert "77.0" not in written(terminal) and (tty or written(terminal) == before)


@pytest.mark.parametrize(("path", "shown"), [("runs/x", "runs/x"), ("my\n runs/x\x1b", "my\\n runs/x\\x1b")])
def test_quiet_prints_one_line_at_the_end(path: str, shown: str) -> None:
    view, terminal, watch = console(tty=True, quiet=True)
    view.begin(HEADER, CONFIG)
    feed(view, watch, [row(1000, 10.0, val=3.0)], seconds=1.0)
    assert written(terminal) == ""
    view.end(replace(OUTCOME, run_path=path))
    assert written(terminal) == (
        "result=solved test_mean=489.34 test_std=21.04 test_episodes=100 tests=0 goal=475 "
        f"env_steps=61440 seconds=13.60 alerts=0 run={shown}\n"
    )


def test_the_line_for_grep_has_the_same_keys_however_it_ended() -> None:
    bare = Outcome(False, "budget spent", None, None, None, None, 0, 10, 1.0, "my runs/x")
    assert bare.line() == (
        "result=trained test_mean=none test_std=none test_episodes=0 tests=0 goal=none "
        "env_steps=10 seconds=1.00 alerts=0 run=my runs/x"
    )
    told = {replace(bare, **changes).result for changes in (
        {"goal": 5.0}, {"goal": 5.0, "test_mean": 4.0}, {"reason": "interrupted"}, {"reason": "failed"},
    )}  # fmt: skip
    assert told == {"not_tested", "not_solved", "interrupted", "failed"}
    view, terminal, watch = begun(quiet=True)
    feed(view, watch, [row(1000, 10.0)], seconds=2.0)
    view.end(None)
    assert written(terminal) == (
        "result=failed test_mean=none test_std=none test_episodes=0 tests=0 goal=475 "
        "env_steps=1000 seconds=2.00 alerts=0 run=runs/x\n"
    )


def test_beginning_and_end_name_the_facts() -> None:
    view, terminal, _ = console()
    view.begin(HEADER, CONFIG)
    view.end(OUTCOME)
    text = written(terminal)
    for fact in ("CartPole-v1:ppo", "475 within 150,000 env steps", "9,155 parameters", "eager (the only one)", "cpu"):
        assert fact in text
    for fact in ("solved: goal reached", "489.3 +- 21.0 over 100 episodes", "runs/x"):
        assert fact in text
    assert text.index("next") < text.index(f"{spelled('run_play')[-1]} --run-id @last")


def test_outcome_words() -> None:
    unsolved = replace(OUTCOME, solved=False)
    assert OUTCOME.verdict == "solved" and unsolved.verdict == "not solved"
    assert replace(unsolved, test_mean=None).verdict == "not tested"
    assert replace(unsolved, goal=None).verdict == replace(unsolved, goal=None, test_mean=None).verdict == "trained"
    bare = Outcome(False, "interrupted", None, None, None, None, 0, 10, 1.0, "runs/x")
    assert bare.sentence() == "Interrupted; 10 env steps in 0:01."
    assert replace(bare, goal=5.0).verdict == "interrupted"
    untested = replace(bare, reason="budget spent", goal=5.0)
    assert untested.sentence() == "Not tested (budget spent), goal 5; 10 env steps in 0:01."
    ended = (
        "Not tested (budget spent), 9 of 100 test episodes ended within eval_max_steps, goal 5; 10 env steps in 0:01."
    )
    assert replace(untested, test_episodes=9, test_wanted=100).sentence() == ended
    assert "over 100 episodes (test 3 of this run)," in replace(OUTCOME, tests=3).sentence()
    few = replace(OUTCOME, test_episodes=5)
    assert few.verdict_words == "solved (5 episodes)" and few.sentence().startswith(
        "Solved (5 episodes; goal reached), "
    )
    assert few.result == few.verdict == "solved"


def test_brackets_are_text_and_not_markup() -> None:
    view, terminal, _ = console()
    view.begin(replace(HEADER, engine_why="wrappers [bold] kept"), CONFIG)
    assert "wrappers [bold] kept" in written(terminal)


def metric(name: str, better: Literal["up", "down"] | None = None) -> Metric:
    return replace(METRICS[TRAIN], name=name, title=name, better=better, precision=2)


def cells(
    values: Sequence[float], shown: Metric, ascii_only: bool = False, event: Event | None = None
) -> list[tuple[str, str]]:
    """(text, style) of the pieces of the one line of the table."""
    history = History([shown.name])
    if event:
        history.note(event)
    for value in values:
        history.add({shown.name: value})
        view = live_view("", history, 1, None, 0.0, [shown])
    (line,) = metric_table(view.rows, Page(80, 10, ascii_only))
    return [(line.plain[span.start : span.end].strip(), str(span.style)) for span in line.spans]


def test_change_is_coloured_by_what_is_better() -> None:
    assert ("▲ 2.00", "green") in cells([1.0, 3.0], metric("train/loss/a", "up"))
    assert ("▲ 2.00", "red") in cells([1.0, 3.0], metric("train/loss/a", "down"))
    assert ("▼ 2.00", "dim") in cells([3.0, 1.0], metric("train/loss/a"))
    assert ("- 2.00", "red") in cells([3.0, 1.0], metric("train/loss/a", "up"), ascii_only=True)


def test_violated_bound_is_marked_and_named() -> None:
    alert = Alert("train/policy/kl", "KL", "above 0.05", 10, 20, 2, 1, 0.2, "0.20", "It is large.", "Try to rest.")
    found = cells([0.01, 0.2], metric("train/policy/kl"), event=Event(True, alert, 20, "0.20"))
    assert ("! 0.20", "bold yellow") in found and ("above 0.05", "yellow") in found
    over = cells([0.01, 0.2], metric("train/policy/kl"), event=Event(False, alert, 30, "0.20"))
    assert ("0.20", "bold") in over
    assert ("! nan", "bold yellow") in cells([float("nan")], metric("train/policy/kl"))
    assert ("nan", "bold") in cells([float("nan")], replace(metric("train/value/variance"), nan=True))


def test_table_groups_by_area_and_says_what_did_not_fit() -> None:
    names = [
        "test/roll/x",
        "val/roll/x",
        "train/time/x",
        "train/loss/x",
        "train/roll/x",
        "train/other/x",
        "train/loss/y",
    ]
    shown = arranged([STEPS, "train/time/seconds", *names])  # the clock stands above the table
    assert [one.name.removesuffix("/x") for one in shown] == [
        "val/roll", "test/roll", "train/roll", "train/loss", "train/loss/y", "train/time", "train/other"
    ]  # fmt: skip
    history = History(names)
    history.add(dict.fromkeys(names, 1.0))
    lines = live_page(live_view("", history, 100, None, 0.0, shown), Page(80, 4))
    assert [line.plain.split()[:1] for line in lines[-4:-1]] == [["val"], ["test"], ["roll"]]
    assert "4 more in metrics.csv" in lines[-1].plain


def test_what_is_shown_where() -> None:
    shown = {one.name for one in arranged(METRICS)}
    assert shown == {name for name in METRICS if "/clock/" not in name} - {"train/time/seconds"}
    assert {one.name for one in console_metrics()} == {name for name in shown if METRICS[name].table}
    assert (metric_of("train/my/loss").title, area_of("train/my/loss")) == ("my/loss", "my") and area_of("loss") == ""


def test_history_keeps_a_tail_and_the_best() -> None:
    history = History([TRAIN], first_step=1000)
    for n in range(1, 50):
        history.add(row(1000 + n, float(n), val=-float(n)))
    assert list(history.series[TRAIN].values) == [float(n) for n in range(50 - TAIL, 50)]
    assert (history.val.best, history.val.best_at, history.train.best) == (-1.0, 1001, 49.0)
    assert history.seconds_left(1000 + 98, elapsed=7.0) == 7.0  # counted from the step it was resumed at


def test_best_of_a_resumed_run_is_the_runs_own() -> None:
    history = History([], first_step=1000)
    history.add(row(2000, 5.0, val=7.0) | {VAL_BEST: 9.0})
    assert (history.val.best, history.val.best_at, history.train.best) == (9.0, 0, 5.0)
    history.add(row(3000, 5.0, val=11.0) | {VAL_BEST: 11.0})
    assert (history.val.best, history.val.best_at) == (11.0, 3000)


def test_way_to_a_negative_goal() -> None:
    score = Score()
    score.add(-1500.0, 1)
    assert score.toward(-250.0) == 0.0
    score.add(-875.0, 2)
    assert score.toward(-250.0) == 0.5
    score.add(-200.0, 3)
    assert score.toward(-250.0) == 1.0


def test_typography() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == "▁▂▃▄▅▆▇█"
    assert sparkline([9.0, 5.0, 5.0, 5.0], 3) == "▄▄▄"
    assert sparkline([0.0, float("nan"), 7.0], 8) == "▁ █"
    assert [duration(s) for s in (27, 723, 3723, 183845)] == ["0:27", "12:03", "1:02:03", "2d 03:04:05"]
    assert [number(x, 2) for x in (1234.567, 0.0003, -0.0, 5e9)] == ["1,234.57", "3.0e-04", "0.00", "5e+09"]
    assert [len("".join(bar(f, 10))) for f in (-1.0, 0.0, 0.55, 1.0, 2.0)] == [10] * 5
    assert [score(x) for x in (243.14, 0.74, -250)] == ["243.1", "0.74", "-250.0"]
    assert bar(0.55, 10) == ("━━━━━╸", "────")


@pytest.mark.parametrize("tty", [True, False])
def test_between_two_rows_the_clock_moves_and_what_is_done_is_named(tty: bool) -> None:
    view, terminal, watch = begun(tty=tty)
    for _ in range(80):
        watch.now += 0.5
        view.beat({"env_steps": int(100 * watch.now), "iterations": 0, "updates": 0}, "")
    text = written(terminal)
    if tty:
        assert "1,000 / 150,000" in text and text.count("/ 150,000") == 40 and "100 steps/s" in text
    else:
        assert [line.split()[0] for line in text.splitlines()] == ["1,000", "2,000", "3,000", "4,000"]
    feed(view, watch, [row(5000, 10.0)], seconds=10.0)
    watch.now += 30
    view.beat({"env_steps": 5000, "iterations": 0, "updates": 0}, "evaluation")
    assert written(terminal).count("evaluation under way") == 1
    feed(view, watch, [row(6000, 10.0)], seconds=10.0)
    assert written(terminal).count("evaluation under way") == 1


def test_beats_are_fewer_the_longer_it_goes_on_and_none_where_it_is_quiet() -> None:
    view, terminal, watch = begun()
    quiet, silent, _ = begun(quiet=True)
    for hour in range(10):
        for _ in range(360):
            watch.now += 10
            for one in (view, quiet):
                one.beat({"env_steps": int(watch.now), "iterations": 0, "updates": 0}, "")
        assert written(terminal).count("\n") < 150 + 60 * hour
    assert written(silent) == ""


@pytest.mark.parametrize("tty", [True, False])
def test_why_there_is_no_return_yet_is_said_until_there_is_one(tty: bool) -> None:
    view, terminal, watch = begun(tty=tty)
    feed(view, watch, [{STEPS: 4096, RATE: 120.0, "train/roll/episodes": 0}], seconds=10.0)
    assert written(terminal).count("no episode has ended yet") == 1
    feed(view, watch, [row(8192, -21.0) | {"train/roll/episodes": 1}], seconds=10.0)
    assert written(terminal).count("no episode has ended yet") == 1
