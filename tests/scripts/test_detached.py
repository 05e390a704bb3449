"""A training in the background: what it says, that it is found, outlives who began it, and is stopped as told."""

import os
import re
import signal
import sys

import pytest

from stride.commands import train_detached as detached
from stride.commands.train_arguments import parse_arguments
from stride.commands.train_detached import train_apart
from stride.runstore.run_dir import RunDir
from stride.runstore.run_lock import locked
from stride.runstore.run_state import state_of
from stride.utils.places import PROJECT
from stride.utils.user_error import UserError
from tests.pretended_run import facts
from tests.runstore.processes import until


@pytest.fixture
def begin(monkeypatch):
    """Begin what stands for train.py: it holds runs as a training does."""
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    monkeypatch.delenv("TMUX", raising=False)

    def begin(*words, program=("-m", "tests.pretended_run")):
        monkeypatch.setattr(detached, "program", lambda name: [sys.executable, *program])
        return train_apart([*words, "--detach"], parse_arguments(["CartPole-v1:ppo", "--detach"]))

    return begin


def test_a_detached_training_is_found_looked_at_and_stopped_by_what_is_told(begin, capsys):
    assert begin("7") == 0
    out = capsys.readouterr().out
    run = RunDir.find("@last")
    assert f"stride monitor {run.id}" in out and f"python train.py --resume {run.id}" in out
    pid = int(re.search(r"kill (\d+)", out)[1])
    assert os.getsid(pid) == pid != os.getsid(0), "the end of this terminal does not reach it"
    assert state_of(run.path, run.facts()) == "live"
    os.kill(pid, signal.SIGTERM)
    until(lambda: state_of(run.path, run.facts()) != "live")
    assert run.facts()["status"] == "interrupted"


def test_one_that_ends_before_it_has_a_run_says_why(begin, capsys):
    assert begin("no-number") == 1
    assert "ValueError" in capsys.readouterr().err


def test_another_run_is_not_taken_for_the_one_that_was_begun(begin, capsys):
    other = RunDir.create("CartPole-v1", "ppo", 3, facts(3))
    with locked(other.path):
        assert begin("1", program=("-c", "import time; time.sleep(0.3)")) == 0
    assert capsys.readouterr().out.strip() == "starting in the background ..."


def test_who_reads_along_does_not_detach_and_a_monitor_wants_a_terminal():
    for flag in ("--json", "--debug"):
        with pytest.raises(UserError, match="give one of them"):
            parse_arguments(["CartPole-v1:ppo", "--detach", flag])
    with pytest.raises(UserError, match="needs a terminal"):
        train_apart(["--monitor"], parse_arguments(["CartPole-v1:ppo", "--monitor"]))
