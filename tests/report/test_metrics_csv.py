"""metrics.csv: growth, resume, torn ends, and what survives a round trip."""

import math
from pathlib import Path

import pytest

from stride.report.metrics_sinks import MetricsCsv
from stride.runstore.metrics_table import format_number, read_csv

STEPS = "train/clock/env_steps"
REWARD = "train/roll/ep_rew/mean"
VAL = "val/roll/ep_rew/mean"
ORDER = (REWARD, VAL, STEPS)  # the clock is declared last and still comes first


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.csv"


def write(path: Path, rows: list[dict[str, float]], resume_at: int | None = None) -> str:
    path.parent.mkdir(exist_ok=True)
    log = MetricsCsv(path, resume_at, ORDER)
    for row in rows:
        log.row(row)
    log.end(None)
    return path.read_text()


def rows(first: int, last: int) -> list[dict[str, float]]:
    """Every third row carries an evaluation."""
    return [{STEPS: 10 * n, REWARD: n / 7} | ({VAL: n / 3} if n % 3 == 0 else {}) for n in range(first, last)]


def test_numbers_keep_seven_digits_and_integers_all_of_them() -> None:
    assert [format_number(x) for x in (1 / 3, 12345678.0, -2, 1e300)] == ["0.3333333", "12345678", "-2", "1e+300"]
    assert [format_number(x) for x in (math.nan, math.inf, -0.0)] == ["nan", "inf", "0"]


def test_header_grows_in_declared_order_the_clock_first_and_keeps_the_rows(path: Path) -> None:
    text = write(path, [{VAL: 2.5, STEPS: 10}, {STEPS: 20, REWARD: 1, "x/b/c": 3, "x/a/c": 4}])
    assert text == f"{STEPS},{REWARD},{VAL},x/a/c,x/b/c\n10,,2.5,,\n20,1,,4,3\n"
    assert [file.name for file in path.parent.iterdir()] == ["metrics.csv"]


def test_a_row_is_in_the_file_before_close(path: Path) -> None:
    log = MetricsCsv(path)  # the declared columns
    log.row({VAL: 2.0, STEPS: 10})
    assert read_csv(path) == [{STEPS: 10, VAL: 2.0}] and path.read_text().startswith(STEPS)
    log.end(None)
    log.end(None)


@pytest.mark.parametrize("cut", [1, 4, 7])
def test_resumed_file_equals_the_uninterrupted_one(path: Path, tmp_path: Path, cut: int) -> None:
    """The resumed process starts behind `cut`; the first one got further and was torn."""
    straight = write(tmp_path / "straight" / "metrics.csv", rows(1, 12))
    write(path, rows(1, 10))
    with open(path, "a") as file:
        file.write("100,1.4")
    assert write(path, rows(cut + 1, 12), resume_at=10 * cut) == straight


LOSS, TEST = {"train/loss/policy": 9.0}, {STEPS: 10, "test/roll/ep_rew/mean": 9.0}


@pytest.mark.parametrize(
    ("before", "after", "remaining"),
    [
        (
            [{STEPS: 10}, LOSS, {STEPS: 20}, LOSS],
            [],
            [{STEPS: 10}, LOSS],
        ),  # a row without clock goes with that above it
        ([{STEPS: 10}, TEST], [{STEPS: 20}], [{STEPS: 10}, {STEPS: 20}]),  # the test that ended it was of the end
        (None, [{STEPS: 30}], [{STEPS: 30}]),
        ("train/clock/env", [{STEPS: 30}], [{STEPS: 30}]),  # half a header
    ],
)
def test_a_resumed_file_keeps_the_rows_up_to_there(path: Path, before, after, remaining) -> None:
    if isinstance(before, str):
        path.write_text(before)
    elif before:
        write(path, before)
    write(path, after, resume_at=10)
    assert read_csv(path) == remaining
