"""The monitor in a real terminal: tmux types its keys and reads its screen, at three sizes, while runs come and go."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from stride.runstore.run_dir import RunDir
from stride.utils.places import PROJECT
from tests.runstore.processes import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux (apt-get install tmux)"),
]
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


def test_a_live_run_at_every_size_with_its_keys_to_its_end(training, terminal):
    first, run = training("1")
    _, second = training("2")
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
    terminal.until(READY.strip(), gone="interrupted")


def test_quitting_leaves_the_training_and_one_that_is_killed_is_seen_to_die(training, terminal):
    child, run = training("3")
    terminal.monitor()
    terminal.until("live", run.id)
    terminal.keys("q")
    assert run.id not in terminal.until("before", READY.strip(), gone="steps"), "the screen of before comes back"
    terminal.monitor("--latest")
    terminal.until("live", run.id)
    child.kill()
    child.wait()
    terminal.until("dead", "its process ended without a message", run.id)
    terminal.keys("C-c")
    terminal.until(READY.strip(), gone="ended without")
