"""The monitor in a real terminal: tmux types its keys and takes its pictures, at three sizes, while runs come and go.

The pictures are kept where STRIDE_SCREENS names a folder.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stride.runstore.run_dir import RunDir
from stride.utils.places import PROJECT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux (apt-get install tmux)"),
]
GROUP = "20260101-000000-abcd"
READY = "ready> "  # what the shell says
LONG = 30.0  # seconds for what comes at once on a quiet machine


class Terminal:
    """A pane of a tmux server of its own."""

    def __init__(self, root: Path, name: str) -> None:
        self._name, self._root = name, root
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", f"env PS1='{READY}' sh")

    def _tmux(self, *words: str) -> str:
        env = {
            **os.environ,
            "STRIDE_RUNS": str(self._root),
            "LC_ALL": "C.UTF-8",
            "PYTHONPATH": str(PROJECT),
        }
        env.pop("TMUX", None)
        done = subprocess.run(
            ["tmux", "-u", "-L", self._name, *words], env=env, capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def keys(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def command(self, words: str) -> None:
        self.keys(f"cd {PROJECT} && clear && {words}", "Enter")

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    def screen(self) -> str:
        return self._tmux("capture-pane", "-p")

    def until(self, *words: str, gone: str = "") -> str:
        """The screen, once it shows all of them."""
        end, text = time.monotonic() + LONG, ""
        while time.monotonic() < end:
            text = self.screen()
            if all(word in text for word in words) and (not gone or gone not in text):
                return text
            time.sleep(0.1)
        raise AssertionError(f"not seen in {LONG:g} s: {words}, or still there: {gone!r}\n{text}")

    def keep(self, name: str, text: str) -> str:
        if folder := os.environ.get("STRIDE_SCREENS"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            Path(folder, f"{name}.txt").write_text(text)
        return text

    def end(self) -> None:
        subprocess.run(["tmux", "-L", self._name, "kill-server"], capture_output=True, timeout=60)


@pytest.fixture
def terminal(tmp_path):
    made = Terminal(tmp_path / "runs", f"stride-{os.getpid()}-{time.monotonic_ns()}")
    yield made
    made.end()


@pytest.fixture
def training(tmp_path, monkeypatch):
    """Begins runs that train nothing; what is left of them ends with the test."""
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("PYTHONPATH", str(PROJECT))
    children = []

    def begin(seed: str, group: str = "") -> tuple[subprocess.Popen[str], RunDir]:
        command = [sys.executable, "-m", "tests.pretended_run", seed, group, "0.5"]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        children.append(child)
        return child, RunDir(tmp_path / "runs" / child.stdout.readline().strip())

    yield begin
    for child in children:
        child.kill()
        child.wait()


def whole(text: str, width: int, height: int) -> None:
    """Nothing of another size is left, and the last line holds the keys."""
    lines = text.split("\n")[:height]
    assert len(lines) == height and all(len(line) < width for line in lines)
    assert text.count("q quit") == text.count(" steps ") == 1 and lines[-1].lstrip().startswith("q quit")


def test_a_live_run_at_every_size_with_every_key_to_its_end(terminal, training):
    first, run = training("1")
    _, second = training("2")
    terminal.command(f"{sys.executable} -m stride.commands.monitor {run.id}")
    terminal.keep("80x24", terminal.until("live", run.id, "Entropy", "of 2 live"))
    for width, height in ((60, 20), (200, 50), (80, 24)):
        terminal.resize(width, height)
        time.sleep(1.5)
        whole(terminal.keep(f"{width}x{height}", terminal.until("live", run.id, "q quit")), width, height)
    terminal.keys("Right")
    terminal.until(second.id, gone=run.id)
    terminal.keys("Left")
    terminal.until(run.id, gone=second.id)
    terminal.keys("p")
    frozen = terminal.until("frozen")
    time.sleep(2.5)
    assert terminal.screen() == frozen, "nothing moves"
    terminal.keys("p")
    terminal.until("live", gone="frozen")
    terminal.keys("s")
    terminal.until("s sort by name")
    terminal.keys("m")
    terminal.keep("runs", terminal.until("what", "done", "\n   live ", " 1 ", " 2 ", gone=" KL "))
    terminal.keys("m")
    first.send_signal(signal.SIGSTOP)
    terminal.until("halted", run.id)
    first.send_signal(signal.SIGCONT)
    terminal.until("live", run.id)
    first.send_signal(signal.SIGINT)
    terminal.until("interrupted", "python train.py --resume")
    terminal.keys("q")
    terminal.until(READY.strip(), gone="interrupted")


def test_quitting_leaves_the_training_and_one_that_is_killed_is_seen_to_die(terminal, training):
    child, run = training("3")
    terminal.command(f"echo before; {sys.executable} -m stride.commands.monitor")
    terminal.until("live", run.id)
    terminal.keys("q")
    assert run.id not in terminal.until("before", READY.strip(), gone="steps"), "the screen of before comes back"
    terminal.command(f"{sys.executable} -m stride.commands.monitor --latest")
    terminal.until("live", run.id)
    child.kill()
    child.wait()
    began = time.monotonic()
    text = terminal.keep("dead", terminal.until("dead", "its process ended without a word"))
    assert time.monotonic() - began < LONG and run.id in text
    terminal.keys("C-c")
    terminal.until(READY.strip(), gone="ended without")


def test_a_group_opens_and_closes(terminal, training):
    runs = [training(str(seed), GROUP)[1] for seed in (1, 2)]
    terminal.resize(120, 24)
    terminal.command(f"{sys.executable} -m stride.commands.monitor")
    terminal.until("live", "of 2 live")
    terminal.keys("m")
    terminal.until(f"group {GROUP}", "2 seeds")
    terminal.keys("Enter")
    terminal.keep("group", terminal.until(*(run.id for run in runs)))
    terminal.keys("Enter")
    terminal.until(GROUP, gone=runs[0].id)
    terminal.keys("Enter", "Down", "Enter")
    terminal.until("seed 1", "steps", runs[0].id)
