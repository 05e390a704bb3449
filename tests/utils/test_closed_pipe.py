"""Every command into a pipe whose reader leaves after one line, as `| head -1` does."""

import os
from pathlib import Path

import pytest
from commands import start_command
from tiny_runs import TINY, tiny_run

from utils.run_dir import RunDir
from utils.run_files import read_json

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


def read_one_line(folder, *words):
    """What was read before the pipe was closed, what stood on stderr, and the exit code."""
    pipe, errors = folder / "pipe", folder / "errors"
    os.mkfifo(pipe)
    child = start_command(words, pipe, errors)
    with open(pipe) as file:
        line = file.readline()
    child.join()
    return line, errors.read_text(), child.exitcode


def test_what_nobody_reads_is_dropped(tmp_path):
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    assert read_one_line(tmp_path, script, str(ROOT)) == ("0\n", "x\n", 7)


def test_playing_goes_on_quietly(tmp_path):
    line, errors, code = read_one_line(tmp_path, "run_play.py", "--headless", "--episodes", "3")
    assert line.startswith("CartPole-v1:ppo") and errors == "" and code == 0


def test_a_dry_run_writes_its_whole_folder(tmp_path):
    pytest.importorskip("huggingface_hub", reason="needs pip install 'stride-rl[hub]'")
    line, errors, code = read_one_line(tmp_path, "run_publish.py", "--dry-run", str(tmp_path / "out"))
    assert line.startswith("goes out") and errors == "" and code == 0
    assert (tmp_path / "out" / "README.md").is_file()


def test_a_training_is_not_lost(tmp_path):
    settings = [f"{key}={value}" for key, value in {**TINY, "max_timesteps": 640}.items()]
    _, errors, code = read_one_line(tmp_path, "train.py", "CartPole-v1:ppo", *settings)
    assert errors == "" and code == 0 and read_json(RunDir.find("@last").config_json)["status"] == "finished"


def test_both_streams_may_be_closed():
    reader, writer = os.pipe()
    os.close(reader)
    broken = Path(f"/proc/{os.getpid()}/fd/{writer}")
    child = start_command(["run_play.py", "--headless", "--checkpoint", "nothing"], broken, broken)
    child.join()
    os.close(writer)
    assert child.exitcode == 2
