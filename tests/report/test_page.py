"""report.md and its curve, written for a small real run folder."""

import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from snapshots import shown

from stride.config.schedule import Schedule
from stride.config.schema import PPOConfig
from stride.report.page import write_report
from stride.runstore.history import STEPS, TRAIN, VAL, Alert
from stride.runstore.metrics_table import points
from stride.runstore.outcome import Outcome
from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import write_json
from stride.utils.curve import POINTS, Point, curve_svg, seeds_svg, ticks

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


def test_the_curve_of_several_seeds() -> None:
    seeds = [[Point(0, 0), Point(100, 10)], [Point(0, 0), Point(50, math.nan), Point(80, 20)]]
    tree = ElementTree.fromstring(seeds_svg("a & b", seeds, [Point(0, 0), Point(100, 15)], 12.0))
    lines = list(tree.iter(f"{SVG}polyline"))
    assert [line.get("class") for line in lines] == ["seed", "seed", "mean"]
    assert len(lines[1].get("points", "").split()) == 2  # what is no number is left out
    widths = [float(line.get("stroke-width", 0)) for line in lines]
    assert widths[2] > widths[0] == widths[1]
    texts = [text.text for text in tree.iter(f"{SVG}text")]
    assert "a & b" in texts and "goal 12" in texts and {"seed", "mean"} <= {*texts}
