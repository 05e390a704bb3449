"""What pages name is there; what docs/architecture.md draws is what there is: storeys, a profiled tick, decisions."""

import re
import sys
from pathlib import Path

import pytest
from driven import advance, agent_for
from tutorial_pages import FILE

from lab.house_rules import STOREYS

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(path for folder in (".", "docs/**", "lab") for path in ROOT.glob(f"{folder}/*.md"))
PLAN = (ROOT / "docs" / "architecture.md").read_text()
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
FOLDERS = {line.partition("/")[0] for storey in STOREYS for line in storey if "/" in line} | {"docs", "tests"}
PATH = re.compile(rf"`((?:{'|'.join(sorted(FOLDERS))})/[\w/.-]*)`")
NOT_THERE = {"config/schema.json", "config/environments/MyEnv-v0.yaml"}  # made by `make`; an example's


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_names_is_there(page):
    text = page.read_text()
    links = [page.parent / link for link in LINK.findall(text) if "://" not in link]
    typed = {path for path, *_ in FILE.findall(text)}  # by the reader of a tutorial
    paths = {*PATH.findall(text)} - typed - NOT_THERE if page.name != "CHANGELOG.md" else ()
    assert [str(path) for path in (*links, *(ROOT / path for path in paths)) if not path.exists()] == []


def test_every_decision_is_listed_once_and_in_order():
    listed = re.findall(r"^\| (\d+) \| \[(.*)\]\(decisions/(.*)\): .+\|$", PLAN, re.MULTILINE)
    files = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    titles = [(path.read_text().partition("\n")[0], path.name) for path in files]
    assert [(f"# {number}. {title}", name) for number, title, name in listed] == titles
    numbers = [*range(1, len(files) + 1)]
    assert [int(number) for number, *_ in listed] == [int(path.name[:2]) for path in files] == numbers


def block(name):
    """The lines of the plan's fenced block of this name."""
    return re.search(rf"```{name}\n(.*?)```", PLAN, re.DOTALL)[1].splitlines()


def test_the_storeys_drawn_are_the_storeys_held():
    drawn = [re.match(r"(\S+, )*\S+", line)[0].split(", ") for line in block("storeys")]
    assert drawn == [list(storey) for storey in STOREYS]


def test_a_profiled_tick_enters_the_files_drawn():
    agent = advance(agent_for("CartPole-v1:ppo", "engine=eager"), 2)  # what is made once has been made
    entered = {}  # file -> the file that called it first

    def note(frame, event, _):
        here = ours(frame)
        if event == "call" and here and here not in entered and frame.f_back:  # Numba's have nobody above them
            entered[here] = next((file for file in map(ours, callers(frame)) if file not in ("", here)), "")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        agent.training_step(iter([2]))
    finally:
        sys.setprofile(before)
    agent.collector.envs.close()
    trail, drawn = [], {}
    for line in block("tick"):
        path, depth = line.split()[0], (len(line) - len(line.lstrip())) // 4
        trail[depth:] = [path]
        drawn.setdefault(path, trail[depth - 1] if depth else "")
    assert entered == drawn


def ours(frame):
    """The product file that runs in a frame, "" where it is somebody else's."""
    file = Path(frame.f_code.co_filename)
    path = file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else ""
    return "" if path.startswith(("tests/", ".")) else path


def callers(frame):
    """The frames that led to this one, the nearest first."""
    while frame := frame.f_back:
        yield frame
