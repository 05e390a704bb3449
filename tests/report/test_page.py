"""report.md and its curve, written for a small real run folder."""

import math
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from stride.config.metrics import load_metrics
from stride.config.schedule import Schedule
from stride.config.schema import PPOConfig
from stride.report.page import write_report
from stride.runstore.history import STEPS, TRAIN, VAL
from stride.runstore.metrics_table import points
from stride.runstore.outcome import Outcome
from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import write_json
from stride.utils.curve import POINTS, Point, curve_svg, seeds_svg, ticks

OUTCOME = Outcome(False, "budget spent", 475.0, 317.25, 301.5, 40.0, 100, 150_000, 31.0, "runs/r")
CONFIG = PPOConfig(env_id="CartPole-v1", variant="ppo", algo_id="ppo", max_timesteps=150_000, policy_lr=0.00123)
ROWS: list[dict[str, float]] = [
    {STEPS: 1000.0 * n, TRAIN: 3.0 * n} | ({VAL: 317.25 - (n - 60) ** 2} if n % 20 == 0 else {}) for n in range(1, 101)
]
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    facts = {"command": "python train.py CartPole-v1:ppo policy_lr=0.00123", "git_hash": "4f2a9c1"}
    write_json(tmp_path / "config.json", facts | {"versions": {"torch": "2.13.0"}, "host": {"cpus": 2}})
    return RunDir(tmp_path)


def test_report_begins_with_the_outcome_and_holds_the_numbers(run: RunDir) -> None:
    write_report(run, CONFIG, ROWS, OUTCOME)
    text = run.report.read_text()
    assert text.splitlines()[0] == f"**{OUTCOME.sentence()}**"
    assert "Not solved (budget spent), test 301.5" in text
    val = load_metrics()[VAL]
    (line,) = [line for line in text.splitlines() if f"`{VAL}`" in line]
    assert "317.2" in line and "-1,282" in line and val.meaning in line
    for fact in (
        "policy_lr=0.00123",
        "git checkout 4f2a9c1",
        "2.13.0",
        f"--resume {run.id} --max-timesteps 300000",
        f"--run-id {run.id}",
    ):
        assert fact in text


def test_settings_are_those_somebody_decided_as_they_are_typed(run: RunDir) -> None:
    config = replace(CONFIG, clip_range=Schedule.parse("lin_0.2"), hidden_dims=(32, 32))
    write_report(run, config, ROWS, OUTCOME)
    text = run.report.read_text()
    changed = text[text.index("Different from") : text.index("## Where")]
    for line in ("| `policy_lr` | `0.00123` |", "| `clip_range` | `lin_0.2` |", "| `hidden_dims` | `[32,32]` |"):
        assert line in changed
    assert "gae_lambda" not in changed


def test_report_of_a_run_that_ended_at_once(run: RunDir) -> None:
    write_report(run, CONFIG, [], Outcome(False, "interrupted", None, None, None, None, 0, 0, 0.0, "runs/r"))
    assert "No metric was recorded." in run.report.read_text()
    ElementTree.parse(run.logs / "curve.svg")


def test_curve_is_xml_with_both_curves_and_the_goal(run: RunDir) -> None:
    write_report(run, CONFIG, ROWS, OUTCOME)
    root = ElementTree.parse(run.logs / "curve.svg").getroot()
    curves = {line.get("class"): (line.get("points") or "").split() for line in root.iter(f"{SVG}polyline")}
    assert {name: len(found) for name, found in curves.items()} == {"train": 100, "val": 5}
    assert [text.text for text in root.iter(f"{SVG}text") if text.get("class") == "goaltext"] == ["goal 475"]
    height = float((root.get("viewBox") or "").split()[3])
    assert all(0 < float(point.split(",")[1]) < height for found in curves.values() for point in found)


def test_curve_stays_small_and_ignores_what_is_not_a_number() -> None:
    many = [Point(float(n), math.nan if n == 7 else float(n)) for n in range(1, 100_000)]
    root = ElementTree.fromstring(curve_svg("a < b & c", many, [], None))
    (line,) = root.iter(f"{SVG}polyline")
    found = (line.get("points") or "").split()
    assert POINTS / 2 < len(found) <= POINTS and "nan" not in line.get("points", "")
    title = root.find(f"{SVG}title")
    assert title is not None and title.text == "a < b & c"


@pytest.mark.parametrize(("low", "high"), [(0.0, 475.0), (-1500.0, -250.0), (0.0, 0.0), (3.0, 3.0), (-0.001, 0.002)])
def test_ticks_are_round_and_span_the_range(low: float, high: float) -> None:
    found = ticks(low, high)
    assert found[0] <= low and found[-1] >= high and 3 <= len(found) <= 8
    assert all(abs(float(f"{tick:.2g}") - tick) < 1e-9 * max(1.0, abs(tick)) for tick in found)


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
