"""metrics.csv: growth, resume, torn ends, and what survives a round trip."""

import math
from pathlib import Path

from stride.report.metrics_sinks import MetricsCsv
from stride.runstore.metrics_table import format_number, read_csv

STEPS = "train/clock/env_steps"
REWARD = "train/roll/ep_rew/mean"
VAL = "val/roll/ep_rew/mean"
ORDER = (REWARD, VAL, STEPS)  # the clock is declared last and still comes first


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


def test_clock_comes_first_and_absent_values_are_empty(tmp_path: Path) -> None:
    text = write(tmp_path / "metrics.csv", [{REWARD: 1.5, STEPS: 10}, {STEPS: 20}])
    assert text == f"{STEPS},{REWARD}\n10,1.5\n20,\n"


def test_header_grows_in_declared_order_and_keeps_the_rows(tmp_path: Path) -> None:
    text = write(tmp_path / "metrics.csv", [{STEPS: 10, VAL: 2.5}, {STEPS: 20, REWARD: 1, "x/b/c": 3, "x/a/c": 4}])
    assert text == f"{STEPS},{REWARD},{VAL},x/a/c,x/b/c\n10,,2.5,,\n20,1,,4,3\n"
    assert [path.name for path in tmp_path.iterdir()] == ["metrics.csv"]


def test_a_row_is_in_the_file_before_close(tmp_path: Path) -> None:
    log = MetricsCsv(tmp_path / "metrics.csv", order=ORDER)
    log.row({STEPS: 10})
    assert read_csv(tmp_path / "metrics.csv") == [{STEPS: 10}]
    log.end(None)
    log.end(None)


def test_equal_rows_give_equal_files(tmp_path: Path) -> None:
    assert write(tmp_path / "a" / "metrics.csv", rows(1, 9)) == write(tmp_path / "b" / "metrics.csv", rows(1, 9))


def test_resumed_file_equals_the_uninterrupted_one(tmp_path: Path) -> None:
    whole = write(tmp_path / "a" / "metrics.csv", rows(1, 12))
    for cut in (1, 4, 7):  # the resumed process starts behind `cut`; the first one got further and was torn
        path = tmp_path / f"{cut}" / "metrics.csv"
        write(path, rows(1, 10))
        with open(path, "a") as file:
            file.write("100,1.4")
        assert write(path, rows(cut + 1, 12), resume_at=10 * cut) == whole


def test_a_row_without_clock_goes_with_the_row_above_it(tmp_path: Path) -> None:
    more = {"train/loss/policy": 9.0}
    path = tmp_path / "metrics.csv"
    write(path, [{STEPS: 10}, more, {STEPS: 20}, more])
    write(path, [], resume_at=10)
    assert read_csv(path) == [{STEPS: 10}, more]


def test_the_test_that_ended_a_run_is_dropped_when_it_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    write(path, [{STEPS: 10}, {STEPS: 10, "test/roll/ep_rew/mean": 9.0}])
    write(path, [{STEPS: 20}], resume_at=10)
    assert read_csv(path) == [{STEPS: 10}, {STEPS: 20}]


def test_resume_without_a_file_or_with_half_a_header_starts_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    assert write(path, [{STEPS: 30}], resume_at=20) == f"{STEPS}\n30\n"
    path.write_text("train/clock/env")
    assert write(path, [{STEPS: 30}], resume_at=20) == f"{STEPS}\n30\n"


def test_reader_skips_torn_short_and_overwritten_lines(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    path.write_bytes(f"{STEPS},{REWARD}\n10,1\n20\n\0\0,\0\n30,nan\n40,4".encode())
    first, second = read_csv(path)
    assert first == {STEPS: 10, REWARD: 1}
    assert second[STEPS] == 30 and math.isnan(second[REWARD])
    path.write_text("")
    assert read_csv(path) == []


def test_columns_of_a_real_run_are_declared(tmp_path: Path) -> None:
    log = MetricsCsv(tmp_path / "metrics.csv")
    log.row({VAL: 2.0, REWARD: 1.0, STEPS: 10})
    log.end(None)
    assert (tmp_path / "metrics.csv").read_text().splitlines()[0].startswith(STEPS)
