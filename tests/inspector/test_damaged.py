"""One damaged run harms nobody else: its row says why, the rooms say a line, all others are shown as before."""

import math
import shutil
from functools import partial

import pytest
from gallery import gallery_copy
from hypothesis import given
from hypothesis import strategies as st

from lab.faults.folder import ROOMS
from lab.faults.foreign import SECRET, VICTIM, Target, cases
from stride.inspector.charts import Line, chart
from stride.inspector.compare import compare
from stride.inspector.rooms import Rooms
from stride.inspector.table import runs_table
from stride.runstore.run_dir import RunDir
from stride.utils.curve import Point
from stride.utils.user_error import UserError

TOLD = {  # a kind of damage, and what its row says
    "config.json: goal 0": "goal is not a finite number",
    "config.json: env_id 0": "env_id is not a text",
    "config.json: a link to itself": "config.json is a link",
    "config.json: a FIFO": "config.json is a FIFO",
    "config.json: nested": "config.json is not valid JSON",
    "config.json: gone": "config.json does not exist",
    "config: gamma 0": "a number in it is too large",
    "metrics.csv: train/clock/env_steps 'inf'": "train/clock/env_steps is inf",
    "metrics.csv: a folder": "metrics.csv is a folder",
    "metrics.csv: a link to a secret": "metrics.csv is a link",
    "metrics.csv: no metric's names": "metrics.csv has no column",
    "metrics.csv: header of a megabyte": "the first line of metrics.csv does not have the names",
    "metrics.csv: wrong number of cells": "none of its rows can be read",
    "best.json: noise": "best.json is not valid JSON",
    "best.json: a huge number": "it has no score",
    "checkpoints/: a link to a folder": "checkpoints is a link",
}
SOUND = ["metrics.csv: empty", "metrics.csv: torn end", "metrics.csv: gone"]
ODD = (0.0, -0.0, 5e-324, 1e-300, 1e300, -1e308, 1.7e308, math.nan, math.inf, 1.0, 1.0 + 2**-52, 1e16, 1e16 + 2)
HEAVY = ("model", "episode")  # these load the network
SOUND_RUN = "20260101-000101-CartPole-v1-ppo-s1-aaaa"
LOOKS = ROOMS | {"compare": lambda rooms, run: compare([rooms.runs.look_into(name) for name in (SOUND_RUN, run)])}


@pytest.fixture(scope="module")
def place(root, tmp_path_factory):
    """(a sound run, what spoils a folder by its name, rooms)."""
    outside = tmp_path_factory.mktemp("elsewhere")
    for name in (SECRET, VICTIM):
        (outside / name).write_text("sesame-4711")
    spoilers = {name: partial(spoiled, spoil, outside) for name, spoil in cases().items()}
    return gallery_copy("ppo", root), spoilers, Rooms(tmp_path_factory.mktemp("lent"))


def spoiled(spoil, outside, folder):
    shutil.rmtree(outside / "folder", ignore_errors=True)
    spoil(Target(RunDir(folder), outside))


@pytest.fixture
def damaged(place):
    sound = place[0].path
    run = RunDir(shutil.copytree(sound, sound.with_name("20990101-000000-damaged"), symlinks=True))
    yield run
    shutil.rmtree(run.path)


def said(room, rooms, run):
    """What a room says; a UserError of one line is an answer, any other exception ends the test."""
    try:
        page = LOOKS[room](rooms, run.id)
    except UserError as error:
        page = str(error)
        assert len(page.splitlines()) == 1 and len(page) < 600
    assert "sesame" not in page and "<script" not in page
    return page


@pytest.mark.parametrize("name", [*TOLD, *SOUND])
def test_a_damaged_run_is_a_row_with_a_reason(place, damaged, name):
    sound, spoilers, rooms = place
    row = runs_table(rooms.runs.page(sound.id)).partition("<tbody>")[2].partition("</tr>")[0]
    spoilers[name](damaged.path)
    table = runs_table(rooms.runs.page())
    assert row in table and f'data-run="{damaged.id}"' in table
    line = next(line for line in rooms.runs.page().lines if line.id == damaged.id)
    assert TOLD.get(name, "") in line.fault and (line.status == "damaged") == (name in TOLD)
    assert str(damaged.path) not in line.fault
    pages = {room: said(room, rooms, damaged) for room in LOOKS if room not in HEAVY}
    assert line.fault.removeprefix("config.json ") in pages["overview"].replace("&#x27;", "'")
    assert all(pages.values()) and "data-chart" in rooms.overview(sound.id)


HEAVIER = ["config.json: goal 0", "config: hidden_dims 0", "best.ckpt: a link to itself", "checkpoints/: gone"]


@pytest.mark.parametrize("name", HEAVIER)
def test_rooms_that_load_the_network_say_a_line(place, damaged, name):
    _, spoilers, rooms = place
    spoilers[name](damaged.path)
    assert all(said(room, rooms, damaged) for room in HEAVY)


@given(st.lists(st.sampled_from(ODD), max_size=3), st.none() | st.sampled_from(ODD).filter(math.isfinite))
def test_any_numbers_can_be_sent(values, goal):
    points = [Point(float(x), value) for x, value in enumerate(values)]
    page = chart("x", [Line("x", points, "c0", values, values)], goal)
    assert "NaN" not in page and "Infinity" not in page
