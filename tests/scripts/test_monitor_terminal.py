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

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux (apt-get install tmux)"),
]
READY = "ready> "  # what the shell says
LONG = 120.0  # seconds for what comes at once on a quiet machine
STILL = 2.5  # seconds in which a display that is not frozen moves: runs write a row each 0.5 s


class Terminal:
    """A pane of a tmux server of its own."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", f"env PS1='{READY}' sh")

    def tmux(self, *words: str) -> str:
        env = {name: value for name, value in os.environ.items() if name != "TMUX"} | {"LC_ALL": "C.UTF-8"}
        line = ["tmux", "-u", "-L", self._name, *words]
        return subprocess.run(line, env=env, capture_output=True, text=True, timeout=60, check=True).stdout

    def keys(self, *keys: str) -> None:
        self.tmux("send-keys", *keys)

    def monitor(self, words: str = "") -> None:
        self.keys(f"cd {PROJECT} && clear && echo before; {sys.executable} -m stride.commands.monitor {words}", "Enter")

    def screen(self) -> str:
        return self.tmux("capture-pane", "-p")

    def until(self, *words: str, gone: str = "") -> str:
        """The screen, once it shows all of them."""
        end, text = time.monotonic() + LONG, ""
        while time.monotonic() < end:
            text = self.screen()
            if all(word in text for word in words) and (not gone or gone not in text):
                return text
            time.sleep(0.1)
        raise AssertionError(f"not seen in {LONG:g} s: {words}, or still there: {gone!r}\n{text}")

    def still(self) -> None:
        """Wait until nothing moves."""
        end, before = time.monotonic() + LONG, ""
        while (text := self.screen()) != before:
            assert time.monotonic() < end, f"it moves:\n{text}"
            before = text
            time.sleep(STILL)

    def fits(self, width: int, height: int) -> bool:
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

    def begin(seed: str) -> tuple[subprocess.Popen[str], RunDir]:
        command = [sys.executable, "-m", "tests.pretended_run", seed, "", "0.5"]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        children.append(child)
        return child, RunDir(root / child.stdout.readline().strip())

    yield begin
    for child in children:
        child.kill()
        child.wait()


def test_a_live_run_at_every_size_with_every_key_to_its_end(training, terminal):
    first, run = training("1")
    _, second = training("2")
    terminal.monitor(run.id)
    terminal.until("live", run.id, "Entropy", "of 2 live")
    for width, height in ((60, 20), (200, 50), (80, 24)):
        terminal.tmux("resize-window", "-x", str(width), "-y", str(height))
        end = time.monotonic() + LONG
        while not terminal.fits(width, height):
            assert time.monotonic() < end, terminal.screen()
            time.sleep(0.2)
        terminal.until("live", run.id, "q quit")
    terminal.keys("Right")
    terminal.until(second.id, gone=run.id)
    terminal.keys("Left")
    terminal.until(run.id, gone=second.id)
    terminal.keys("p")
    terminal.until("frozen")
    terminal.still()
    terminal.keys("p")
    terminal.until("live", gone="frozen")
    terminal.keys("s")
    terminal.until("s sort by name")
    terminal.keys("m")
    terminal.until("what", "done", "\n   live ", " 1 ", " 2 ", gone=" KL ")
    terminal.keys("m")
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
    terminal.until("dead", "its process ended without a word", run.id)
    terminal.keys("C-c")
    terminal.until(READY.strip(), gone="ended without")
