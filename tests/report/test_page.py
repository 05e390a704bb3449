"""report.md and its curve of a small real run folder; and a notebook's display, its front end played by a list."""

import math
import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from snapshots import shown

from stride.config.loader import load_config
from stride.config.schedule import Schedule
from stride.config.schema import PPOConfig
from stride.report.console import in_notebook, standard_output
from stride.report.notebook import Notebook
from stride.report.page import write_report
from stride.report.sinks import sinks_of
from stride.runstore.history import RATE, STEPS, TRAIN, VAL, Alert, Event
from stride.runstore.metrics_table import points
from stride.runstore.outcome import Header, Outcome
from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import write_json
from stride.utils.curve import POINTS, Point, curve_svg, ticks
from stride.utils.streams import Events

KL = Alert("train/policy/approx_kl", "KL", "above 0.1", 8_250, 99_000, 100, 10, 0.2, "0.200", "It strays.", "Rest.")
SOME = Outcome(False, "budget spent", 475.0, 317.25, 301.5, 40.0, 100, 150_000, 31.0, "runs/r", alerts=(KL,))
NONE = Outcome(False, "interrupted", None, None, None, None, 0, 0, 0.0, "runs/r")
CONFIG = PPOConfig(env_id="CartPole-v1", variant="ppo", algo_id="ppo", max_timesteps=150_000, policy_lr=0.00123)
CONFIG = replace(CONFIG, clip_range=Schedule.parse("lin_0.2"), hidden_dims=(32, 32))
ROWS: list[dict[str, float]] = [
    {STEPS: 1000.0 * n, TRAIN: 3.0 * n} | ({VAL: 317.25 - (n - 60) ** 2} if n % 20 == 0 else {}) for n in range(1, 101)
]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize(("rows", "outcome"), [(ROWS, SOME), ([], NONE)], ids=["whole", "ended at once"])
def test_report_and_its_curve(rows: list[dict[str, float]], outcome: Outcome, tmp_path: Path, snapshot) -> None:
    """It begins with the outcome; settings are those somebody decided, as they are typed."""
    run = RunDir(tmp_path / "r")
    run.path.mkdir()
    facts = {"command": "python train.py CartPole-v1:ppo policy_lr=0.00123", "git_hash": "4f2a9c1"}
    write_json(run.config_json, facts | {"versions": {"torch": "2.13.0"}, "host": {"cpus": 2}})
    write_report(run, CONFIG, rows, outcome)
    assert shown(run.report.read_text()) == snapshot
    root = ElementTree.parse(run.logs / "curve.svg").getroot()
    curves = {line.get("class"): (line.get("points") or "").split() for line in root.iter(f"{SVG}polyline")}
    assert {name: len(curve) for name, curve in curves.items()} == ({"train": 100, "val": 5} if rows else {})
    goals = [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "goaltext"]
    assert goals == (["goal 475"] if rows else [])
    height = float((root.get("viewBox") or "").split()[3])
    assert all(0 < float(point.split(",")[1]) < height for curve in curves.values() for point in curve)


def test_curve_stays_small_and_ignores_what_is_not_a_number() -> None:
    many = [Point(float(n), math.nan if n == 7 else float(n)) for n in range(1, 100_000)]
    root = ElementTree.fromstring(curve_svg("a < b & c", many, [], None))
    (line,) = root.iter(f"{SVG}polyline")
    assert POINTS / 2 < len(line.get("points").split()) <= POINTS and "nan" not in line.get("points")
    assert root.find(f"{SVG}title").text == "a < b & c"


@pytest.mark.parametrize(("low", "high"), [(0.0, 475.0), (-1500.0, -250.0), (0.0, 0.0), (3.0, 3.0), (-0.001, 0.002)])
def test_ticks_are_round_and_span_the_range(low: float, high: float) -> None:
    marks = ticks(low, high)
    assert marks[0] <= low and marks[-1] >= high and 3 <= len(marks) <= 8
    assert all(abs(float(f"{tick:.2g}") - tick) < 1e-9 * max(1.0, abs(tick)) for tick in marks)


def test_row_without_clock_stands_where_the_last_one_stood() -> None:
    assert points([{STEPS: 5.0, TRAIN: 1.0}, {"test/x": 2.0}], "test/x") == [Point(5.0, 2.0)]


# ---- a notebook


SHIPPED = load_config("CartPole-v1", "ppo")
HEADER = Header("CartPole-v1:ppo", "ppo", "eager", "", "fast", "", "cpu", 8, 3, 9155, 475.0, 150_000, "runs/20260101-x")
OUTCOME = Outcome(True, "goal reached", 475.0, 492.1, 489.34, 21.04, 100, 61_440, 13.6, "runs/20260101-x")
ALERT = Alert("train/policy/approx_kl", "KL", "above 0.1", 1, 2, 3, 1, 0.3, "0.3", "It strays.", "Lower policy_lr.")


class Tags:
    """A page whose every tag is closed: its tags, the text between them, its images."""

    def __init__(self, page):
        page = re.sub(r"<(img|br)([^>]*)>", r"<\1\2/>", page.replace("&nbsp;", "&#160;"))
        tree = ElementTree.fromstring(page)
        self.names = {tag.tag for tag in tree.iter()}
        self.text = " ".join(tree.itertext())
        self.images = [image.get("src") for image in tree.iter("img")]


class Display(Notebook):
    """A notebook whose front end is a list, and whose clock is set by a test."""

    def __init__(self, run=None, first_step=0):
        self.now, self.drawn = 0.0, []
        super().__init__(run, first_step, self.drawn.append, lambda: self.now)

    def tell(self, count, seconds, start=0, **more):
        for number in range(start + 1, start + count + 1):
            self.now += seconds
            self.row({STEPS: 750.0 * number, TRAIN: 2.0 * number, RATE: 4812.0, **more})

    def last(self):
        return Tags(self.drawn[-1]["text/html"])


@pytest.fixture
def display():
    made = Display()
    made.begin(HEADER, SHIPPED)
    return made


def test_it_is_drawn_at_once_then_twice_a_second_and_at_the_end(display):
    assert len(display.drawn) == 1 and "0 / 150,000" in display.last().text
    display.tell(100, 0.05)
    assert 9 <= len(display.drawn) - 1 <= 11
    display.now += 1.0
    display.beat({"env_steps": 76_000}, "evaluating 2 of 10 episodes")  # the clock goes on without rows
    assert "76,000 / 150,000" in display.last().text and "evaluating 2 of 10 episodes" in display.last().text
    display.end(OUTCOME)
    text = display.last().text
    assert "solved : goal reached" in text and "489.3 ± 21.0 over 100 episodes" in text
    assert 'stride.load("20260101-x")' in text
    assert display.drawn[-1]["text/plain"].startswith("CartPole-v1:ppo: Solved (goal reached), test 489.3")


def test_numbers_bars_and_curve_say_what_was_told(display, snapshot):
    display.tell(8, 1.0)
    display.alert(Event(True, ALERT, 6000, "0.3"))
    display.tell(1, 1.0, 8, **{VAL: 237.5, ALERT.name: 0.25})
    page = display.last()
    assert " ".join(page.text.split()) == snapshot
    assert len(page.images) == 1 and page.images[0].startswith("data:image/svg+xml;base64,")
    widths = re.findall(r"width:([\d.]+)%", display.drawn[-1]["text/html"])
    assert widths == ["4.5", "50.0"]  # of the budget, and of the goal


def test_a_page_around_it_keeps_its_own_style_and_runs_no_word_of_a_config(display):
    display.begin(
        replace(HEADER, config_id="<script>alert(1)</script>:ppo", run_path='runs/"><img onerror=x>'), SHIPPED
    )
    display.end(OUTCOME)
    assert display.last().names <= {"div", "b", "br", "span", "table", "tr", "td", "img", "details", "summary", "code"}
    assert "<script>alert(1)</script>:ppo" in display.last().text


def test_an_error_leaves_what_was_reached(display):
    display.tell(3, 1.0)
    display.end(None)
    assert "failed" in display.last().text and "2,250 / 150,000" in display.last().text
    assert display.drawn[-1]["text/plain"] == "CartPole-v1:ppo: failed"
    silent = Display()
    silent.end(None)  # before there was anything
    assert silent.drawn == []


def test_a_run_that_goes_on_is_drawn_from_its_beginning(tmp_path):
    rows = "".join(f"{step},{step / 100}\n" for step in range(1000, 6000, 1000))
    (tmp_path / "metrics.csv").write_text(f"{STEPS},{TRAIN}\n{rows}")
    display = Display(RunDir(tmp_path), 4000)
    display.begin(HEADER, SHIPPED)
    assert len(display.last().images) == 1
    assert [point.x for point in display._train] == [1000, 2000, 3000, 4000]
    for step in (4400.0, 4700.0, 5000.0):
        display.now += 1.0
        display.row({STEPS: step, TRAIN: step / 100})
    assert "left 7:15" in display.last().text and display._train[-1] == (5000, 50)  # 3 s for each 1,000 steps


def test_programs_and_kernels_have_displays_of_their_own(tmp_path, monkeypatch, capsys):
    """What a cell calls by an exclamation mark is no terminal."""
    (tmp_path / "logs").mkdir()
    assert not in_notebook()
    assert not [sink for sink in sinks_of(RunDir(tmp_path)) if isinstance(sink, Notebook)]
    assert type(sinks_of(RunDir(tmp_path), events=Events(None))[-1]).__name__ == "JsonEvents"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    for kernel, is_terminal in (("", True), ("7", False)):
        monkeypatch.setenv("JPY_PARENT_PID", kernel) if kernel else monkeypatch.delenv("JPY_PARENT_PID", raising=False)
        assert standard_output().is_terminal == is_terminal


@pytest.mark.parametrize(("goal", "mark"), [(475.0, 500.0), (-110.0, -100.0), (405.0, 400.0)])
def test_a_flat_curve_is_above_the_axis_and_the_goals_label_touches_no_marks(goal: float, mark: float) -> None:
    lowest = mark - 100
    tree = ElementTree.fromstring(curve_svg("x", [Point(0, lowest), Point(9, lowest)], [Point(9, mark)], goal))
    axis = max(float(line.get("y1", 0)) for line in tree.iter(f"{SVG}line") if line.get("class") == "axis")
    flat = next(line for line in tree.iter(f"{SVG}polyline") if line.get("class") == "train")
    assert all(float(point.split(",")[1]) < axis - 5 for point in flat.get("points", "").split())
    texts = {text.text: float(text.get("y", 0)) + float(text.get("dy", 0)) for text in tree.iter(f"{SVG}text")}
    assert abs(texts[f"goal {goal:g}"] - texts[f"{mark:g}"]) > 12
