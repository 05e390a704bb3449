"""The display of a notebook, its front end played by a list: when it is drawn, what stands in it, and where."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from stride.config.loader import load_config
from stride.report.console import in_notebook, standard_output
from stride.report.notebook import Notebook
from stride.report.sinks import sinks_of
from stride.runstore.history import RATE, STEPS, TRAIN, VAL, Alert, Event
from stride.runstore.outcome import Header, Outcome
from stride.runstore.run_dir import RunDir
from stride.utils.streams import Events

CONFIG = load_config("CartPole-v1", "ppo")
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
    made.begin(HEADER, CONFIG)
    return made


def test_it_is_drawn_at_once_then_twice_a_second_and_at_the_end(display):
    assert len(display.drawn) == 1 and "0 / 150,000" in display.last().text
    display.tell(100, 0.05)
    assert 9 <= len(display.drawn) - 1 <= 11
    display.now += 1.0
    display.beat({"env_steps": 76_000}, "evaluation")  # the clock goes on without rows
    assert "76,000 / 150,000" in display.last().text and "evaluation under way" in display.last().text
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
    display.begin(replace(HEADER, config_id="<script>alert(1)</script>:ppo", run_path='runs/"><img onerror=x>'), CONFIG)
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
    display.begin(HEADER, CONFIG)
    assert len(display.last().images) == 1
    assert [point.x for point in display._train] == [1000, 2000, 3000, 4000]
    display.now += 2.0
    display.row({STEPS: 5000.0, TRAIN: 50.0})
    assert "left 4:50" in display.last().text and display._train[-1] == (5000, 50)  # 2 s for each 1,000 steps


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
