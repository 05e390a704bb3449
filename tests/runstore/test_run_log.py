"""run.log: what reaches the file and stdout, and that nothing of it stays in the process."""

import logging
import re
import sys
import threading
import warnings
from pathlib import Path

import pytest

from stride.runstore.run_log import open_run_log


def test_file_is_timestamped_without_colours_and_stdout_is_plain(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_run_log(tmp_path / "run.log") as log:
        log.info("\x1b[32mgreen\x1b[0m \x1b]8;;http://x\x1b\\link")
    line = (tmp_path / "run.log").read_text()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO    green link\n", line)
    assert capsys.readouterr().out == "\x1b[32mgreen\x1b[0m \x1b]8;;http://x\x1b\\link\n"


def test_quiet_writes_the_file_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_run_log(tmp_path / "run.log", quiet=True) as log:
        log.info("hello")
    assert "hello" in (tmp_path / "run.log").read_text()
    assert capsys.readouterr() == ("", "")


def test_opening_twice_prints_once_and_leaves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("stride")
    before = (logger.handlers[:], logger.level, logger.propagate, warnings.showwarning, threading.excepthook)
    hook = sys.excepthook
    for name in ("a.log", "b.log"):
        (tmp_path / name).mkdir()
        with open_run_log(tmp_path / name / "run.log") as log:
            log.info(name)
    assert capsys.readouterr().out == "a.log\nb.log\n"
    assert (tmp_path / "a.log" / "run.log").read_text().count("\n") == 1
    after = (logger.handlers[:], logger.level, logger.propagate, warnings.showwarning, threading.excepthook)
    assert after == before and sys.excepthook is hook


def test_inner_log_takes_over_and_gives_back(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    with open_run_log(tmp_path / "run.log", quiet=True) as log:
        with open_run_log(tmp_path / "inner" / "run.log", quiet=True):
            log.info("inside")
        log.info("outside")
    assert "inside" not in (tmp_path / "run.log").read_text()
    assert "outside" in (tmp_path / "run.log").read_text()


def test_uncaught_exception_leaves_its_traceback_in_the_file_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ZeroDivisionError), open_run_log(tmp_path / "run.log"):
        _ = 1 / 0
    text = (tmp_path / "run.log").read_text()
    assert "CRITICAL uncaught exception" in text and "ZeroDivisionError: division by zero" in text
    assert capsys.readouterr().out == ""


def test_interrupt_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), open_run_log(tmp_path / "run.log"):
        raise KeyboardInterrupt
    assert (tmp_path / "run.log").read_text().endswith("stopped by KeyboardInterrupt\n")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_dying_thread_is_recorded(tmp_path: Path) -> None:
    with open_run_log(tmp_path / "run.log", quiet=True):
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
    assert "uncaught exception in a thread" in (tmp_path / "run.log").read_text()


@pytest.mark.parametrize("quiet", [True, False])
def test_warnings_reach_the_file_and_unless_quiet_their_old_place(tmp_path: Path, quiet: bool) -> None:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with open_run_log(tmp_path / "run.log", quiet):
            warnings.warn("too small", stacklevel=1)
    assert "UserWarning: too small" in (tmp_path / "run.log").read_text()
    assert len(seen) == (0 if quiet else 1)


def test_no_file_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STRIDE_NO_RUN_LOG", "1")
    with open_run_log(tmp_path / "run.log") as log:
        log.info("hello")
    assert not (tmp_path / "run.log").exists()
    assert capsys.readouterr().out == "hello\n"


def test_a_full_file_is_begun_anew_and_the_oldest_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stride.runstore.run_log.MOST", 200)
    with open_run_log(tmp_path / "run.log", quiet=True) as log:
        for number in range(60):
            log.info(f"line {number}")
    names = ["run.log.3", "run.log.2", "run.log.1", "run.log"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    lines = [line for name in names for line in (tmp_path / name).read_text().splitlines()]
    numbers = [int(line.split()[-1]) for line in lines]
    assert numbers == list(range(numbers[0], 60)) and numbers[0] > 0, "nothing between them is lost"
    assert all((tmp_path / name).stat().st_size < 250 for name in names)


def test_where_no_name_can_be_given_the_file_grows_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stride.runstore.run_log.MOST", 100)
    (tmp_path / "run.log.1").symlink_to(tmp_path / "elsewhere")  # somebody else's: it is neither followed nor replaced
    with open_run_log(tmp_path / "run.log", quiet=True) as log:
        for number in range(9):
            log.info(f"line {number}")
    assert (tmp_path / "run.log").read_text().count("\n") == 9 and not (tmp_path / "elsewhere").exists()


def test_secrets_reach_stdout_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MY_API_KEY", "unspeakable")
    with pytest.raises(ValueError, match="unspeakable"), open_run_log(tmp_path / "run.log") as log:
        log.info("train.py env_kwargs.password=hunter22")
        raise ValueError("unspeakable")
    text = (tmp_path / "run.log").read_text()
    assert "hunter22" not in text and "unspeakable" not in text and "ValueError: [hidden: $MY_API_KEY]" in text
    assert "hunter22" in capsys.readouterr().out
