"""Every command into a pipe whose reader leaves after one line, as `| head -1` does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_runs import TINY, tiny_run

from utils.run_dir import RunDir, read_json

ROOT = Path(__file__).resolve().parents[2]
ENDLESS = "import sys; sys.path.insert(0, sys.argv[1]); from utils.closed_pipe import outlive_readers\n"
ENDLESS += "outlive_readers()\nfor n in range(100_000): print(n)\nprint('x', file=sys.stderr); sys.exit(7)"


@pytest.fixture(scope="module", autouse=True)
def root(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRIDE_RUNS", str(tmp_path_factory.mktemp("runs")))
        for name in ("DISPLAY", "WAYLAND_DISPLAY"):
            patch.delenv(name, raising=False)
        tiny_run()
        yield


def read_one_line(*words):
    """What was read before the pipe was closed, what stood on stderr, and the exit code."""
    process = subprocess.Popen([sys.executable, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    line = process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    return line.decode(), errors.decode(), process.wait()


def test_what_nobody_reads_is_dropped():
    assert read_one_line("-c", ENDLESS, str(ROOT)) == ("0\n", "x\n", 7)


def test_playing_goes_on_quietly():
    line, errors, code = read_one_line("run_play.py", "--headless", "--episodes", "3")
    assert line.startswith("CartPole-v1:ppo") and errors == "" and code == 0


def test_a_dry_run_writes_its_whole_folder(tmp_path):
    pytest.importorskip("huggingface_hub", reason="needs pip install 'stride-rl[hub]'")
    line, errors, code = read_one_line("run_publish.py", "--dry-run", str(tmp_path / "out"))
    assert line.startswith("publishing") and errors == "" and code == 0
    assert (tmp_path / "out" / "README.md").is_file()


def test_a_training_is_not_lost():
    settings = [f"{key}={value}" for key, value in {**TINY, "max_timesteps": 640}.items()]
    _, errors, code = read_one_line("train.py", "CartPole-v1:ppo", *settings)
    assert errors == "" and code == 0 and read_json(RunDir.find("@last").config_json)["status"] == "finished"


def test_both_streams_may_be_closed():
    reader, writer = os.pipe()
    os.close(reader)
    words = [sys.executable, "run_play.py", "--headless", "--checkpoint", "nothing"]
    assert subprocess.run(words, cwd=ROOT, stdout=writer, stderr=writer).returncode == 2
    os.close(writer)
