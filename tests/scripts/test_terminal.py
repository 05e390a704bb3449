"""A training in the background: what it says, that it is found, outlives who began it, and is stopped as it says.

The monitor in a real terminal: tmux types its keys and reads its screen, at three sizes, while runs come and go.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

from stride.commands import train_detached as detached
from stride.commands.train_arguments import parse_arguments
from stride.commands.train_detached import train_in_background
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
        return train_in_background([*words, "--detach"], parse_arguments(["CartPole-v1:ppo", "--detach"]))

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


def test_one_that_ends_before_it_has_a_run_says_why_and_no_other_run_is_taken_for_it(begin, capsys):
    assert begin("no-number") == 1
    assert "ValueError" in capsys.readouterr().err
    other = RunDir.create("CartPole-v1", "ppo", 3, facts(3))
    with locked(other.path):
        assert begin("1", program=("-c", "import time; time.sleep(0.3)")) == 0
    assert capsys.readouterr().out.strip() == "starting in the background ..."


def test_who_reads_along_does_not_detach_and_a_monitor_wants_a_terminal():
    for flag in ("--json", "--debug"):
        with pytest.raises(UserError, match="give one of them"):
            parse_arguments(["CartPole-v1:ppo", "--detach", flag])
    with pytest.raises(UserError, match="needs a terminal"):
        train_in_background(["--monitor"], parse_arguments(["CartPole-v1:ppo", "--monitor"]))


# ---- the monitor in a real terminal

READY = "ready> "  # what the shell says
LONG = 120.0  # seconds for what comes at once on a quiet machine
STILL = 2.5  # seconds in which a display that is not frozen moves: runs write a row each 0.5 s


class Terminal:
    """A pane of a tmux server of its own."""

    def __init__(self, name):
        self._name = name
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", f"env PS1='{READY}' sh")

    def tmux(self, *words):
        env = {name: value for name, value in os.environ.items() if name != "TMUX"} | {"LC_ALL": "C.UTF-8"}
        line = ["tmux", "-u", "-L", self._name, *words]
        return subprocess.run(line, env=env, capture_output=True, text=True, timeout=60, check=True).stdout

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def monitor(self, words=""):
        self.keys(f"cd {PROJECT} && clear && echo before; {sys.executable} -m stride.commands.monitor {words}", "Enter")

    def screen(self):
        return self.tmux("capture-pane", "-p")

    def until(self, *words, gone="no such text"):
        """The screen, once it shows all of them."""
        end, text = time.monotonic() + LONG, ""
        while gone in (text := self.screen()) or not all(word in text for word in words):
            assert time.monotonic() < end, f"not seen in {LONG:g} s: {words}, or still there: {gone!r}\n{text}"
            time.sleep(0.1)
        return text

    def is_still(self):
        before = self.screen()
        time.sleep(STILL)
        return self.screen() == before

    def fits(self, width, height):
        """Nothing of another size is left, and the last line holds the keys."""
        lines = self.screen().split("\n")[:height]
        text = "\n".join(lines)
        fits = len(lines) == height and all(len(line) < width for line in lines)
        return fits and text.count("q quit") == text.count(" steps ") == 1 and lines[-1].lstrip().startswith("q quit")


@pytest.fixture
def terminal(root):
    made = Terminal(f"stride-{os.getpid()}-{time.monotonic_ns()}")
    yield made
    made.tmux("kill-server")


@pytest.fixture
def training(root, monkeypatch):
    """Begins runs that train nothing; what is left of them ends with the test."""
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    children = []

    def begin(seed):
        command = [sys.executable, "-m", "tests.pretended_run", seed, "", "0.5"]
        children.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return children[-1], RunDir(root / children[-1].stdout.readline().strip())

    yield begin
    for child in children:
        child.kill()
        child.wait()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux (apt-get install tmux)")
def test_a_live_run_at_every_size_with_its_keys_to_its_end_and_one_that_is_killed(training, terminal):
    first, run = training("1")
    child, second = training("2")
    terminal.monitor(run.id)
    terminal.until("live", run.id, "Entropy", "of 2 live")
    for width, height in ((60, 20), (200, 50), (80, 24)):
        terminal.tmux("resize-window", "-x", str(width), "-y", str(height))
        until(lambda size=(width, height): terminal.fits(*size), LONG)
    terminal.keys("Right")
    terminal.until(second.id, gone=run.id)
    terminal.keys("Left")
    terminal.until(run.id, gone=second.id)
    terminal.keys("p")
    terminal.until("frozen")
    until(terminal.is_still, LONG)
    terminal.keys("p")
    terminal.until("live", gone="frozen")
    first.send_signal(signal.SIGSTOP)
    terminal.until("halted", run.id)
    first.send_signal(signal.SIGCONT)
    terminal.until("live", run.id)
    first.send_signal(signal.SIGINT)
    terminal.until("interrupted", "python train.py --resume")
    terminal.keys("q")
    assert run.id not in terminal.until("before", READY.strip(), gone="steps"), "the screen of before comes back"
    terminal.monitor("--latest")
    terminal.until("live", second.id)
    child.kill()
    child.wait()
    terminal.until("dead", "its process ended without a message", second.id)
    terminal.keys("C-c")
    terminal.until(READY.strip(), gone="ended without")
