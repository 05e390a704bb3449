"""What docs/architecture.md draws is what there is: storeys, paths, a profiled tick, and the decisions it lists."""

import re
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from lab.house_rules import STOREYS
from tests.driven import advance, agent_for

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("*.md"))
PARTS = ["## Context", "## Decision", "## Measured", "## Consequence"]
LINK = re.compile(r"\]\(([^)#]+)\)")
FOLDERS = {line.rpartition("/")[0].partition("/")[0] for storey in STOREYS for line in storey} | {"docs", "tests"}
PATH = re.compile(rf"`((?:{'|'.join(filter(None, sorted(FOLDERS)))})/[\w/.-]*)`")


def block(name):
    """The lines of the page's fenced block of this name."""
    return re.search(rf"```{name}\n(.*?)```", PAGE.read_text(), re.DOTALL)[1].splitlines()


def test_the_storeys_drawn_are_the_storeys_held():
    drawn = [re.match(r"(\S+, )*\S+", line)[0].split(", ") for line in block("storeys")]
    assert drawn == [list(storey) for storey in STOREYS]


def test_a_profiled_tick_enters_the_files_drawn():
    agent = advance(agent_for("CartPole-v1:ppo", "engine=eager"), 2)  # what is made once has been made
    entered = {}

    def note(frame, event, _):
        here = ours(frame)
        if event == "call" and here and here not in entered and frame.f_back:  # Numba's have nobody above them
            entered[here] = next(filter(None, map(ours, callers(frame))), "")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        agent.training_step(iter([2]))
    finally:
        sys.setprofile(before)
    agent.collector.envs.close()
    assert entered == callers_drawn()


def ours(frame):
    """The product file that runs in a frame, "" where it is somebody else's."""
    file = Path(frame.f_code.co_filename)
    path = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else ""
    return "" if path.startswith(("tests/", ".")) else path


def callers(frame):
    """The frames that led to this one, the nearest first, but those of its own file."""
    file = frame.f_code.co_filename
    while frame := frame.f_back:
        if frame.f_code.co_filename != file:
            yield frame


def callers_drawn():
    """{file: the file above it that is one step less indented, where it is drawn first}."""
    trail, drawn = [], {}
    for line in block("tick"):
        path, depth = line.split()[0], (len(line) - len(line.lstrip())) // 4
        trail[depth:] = [path]
        drawn.setdefault(path, trail[depth - 1] if depth else "")
    return drawn


@pytest.mark.parametrize("page", [PAGE, *DECISIONS], ids=lambda page: page.stem)
def test_what_a_page_names_is_there(page):
    text = page.read_text()
    named = [ROOT / path for path in PATH.findall(text)]
    linked = [page.parent / link for link in LINK.findall(text) if "://" not in link]
    assert [str(path) for path in named + linked if not path.exists()] == []


def test_every_decision_is_listed_once():
    listed = re.findall(r"^\| (\d+) \| \[(.*)\]\(decisions/(.*)\): .+\|$", PAGE.read_text(), re.MULTILINE)
    there = [(path.read_text().partition("\n")[0], path.name) for path in DECISIONS]
    assert [(f"# {number}. {title}", name) for number, title, name in listed] == there
    numbers = [int(number) for number, *_ in listed]
    assert numbers[0] == 1
    assert all(after == before + 1 for before, after in pairwise(numbers))
    assert [int(path.name[:2]) for path in DECISIONS] == numbers


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_is_one_screen_of_four_parts(path):
    lines = path.read_text().splitlines()
    assert [line for line in lines if line.startswith("## ")] == PARTS
    assert len(lines) <= 45
    assert max(len(line) for line in lines if not line.startswith("|")) <= 130
