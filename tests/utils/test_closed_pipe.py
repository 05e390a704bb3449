"""Every command into a pipe whose reader leaves after one line, as `| head -1` does, and into what takes nothing."""

import errno
import os
import threading
from pathlib import Path

import pytest
from commands import start_command
from tiny_runs import TINY, tiny_run

from stride.runstore.run_dir import RunDir
from stride.runstore.run_files import read_json
from stride.utils import streams
from stride.utils.streams import Outlet

ROOT = Path(__file__).resolve().parents[2]
ENDLESS = "import sys; sys.path.insert(0, sys.argv[1]); from stride.utils.streams import outlive_readers\n"
ENDLESS += "outlive_readers()\nfor n in range(100_000): print(n)\nprint('x', file=sys.stderr); sys.exit(7)"


@pytest.fixture(scope="module", autouse=True)
def root(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRIDE_RUNS", str(tmp_path_factory.mktemp("runs")))
        for name in ("DISPLAY", "WAYLAND_DISPLAY"):
            patch.delenv(name, raising=False)
        yield tiny_run()


def ended(words, out, errors, **environment):
    """The exit code, what stood on stderr, and the one line that was read of a pipe."""
    child, line = start_command(words, out, errors, env={**os.environ, **environment}), ""
    if out.is_fifo() and out.name == "pipe":
        with open(out) as file:
            line = file.readline()
    child.join()
    return child.exitcode, errors.read_text() if errors.is_file() else "", line


@pytest.fixture
def pipe_of(tmp_path):
    """`pipe_of(words)`: into a pipe whose reader leaves after a line."""
    os.mkfifo(tmp_path / "pipe")
    return lambda *words: ended(words, tmp_path / "pipe", tmp_path / "errors")


def test_what_nobody_reads_is_dropped(tmp_path, pipe_of):
    (tmp_path / "endless.py").write_text(ENDLESS)
    assert pipe_of(tmp_path / "endless.py", str(ROOT)) == (7, "x\n", "0\n")


def test_playing_goes_on_quietly(root, pipe_of):
    *end, line = pipe_of("run_play.py", "--run-id", root.id, "--headless", "--episodes", "3")
    assert line.startswith("CartPole-v1:ppo") and end == [0, ""]


def test_a_dry_run_writes_its_whole_folder(root, tmp_path, pipe_of):
    pytest.importorskip("huggingface_hub", reason="needs pip install 'stride-rl[hub]'")
    *end, line = pipe_of("run_publish.py", "--run-id", root.id, "--dry-run", str(tmp_path / "out"))
    assert line.startswith("to send") and end == [0, ""] and (tmp_path / "out" / "README.md").is_file()


SETTINGS = [f"{key}={value}" for key, value in {**TINY, "max_timesteps": 640}.items()]
UNREAD = "stdout: it would block; output that cannot be printed there is dropped"
UNHEARD = "error: stdout: No space left on device; output that cannot be printed there is dropped\n"


def finished_and_logged(line):
    run = RunDir.find("@last")
    return read_json(run.config_json)["status"] == "finished" and run.run_log.read_text().count(line) == 1


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_training_is_not_lost(pipe_of, words):
    assert pipe_of("train.py", "CartPole-v1:ppo", *words, *SETTINGS)[:2] == (0, "")
    assert finished_and_logged("WARNING stdout: Broken pipe; ")


FULL = {
    "a training": (["train.py", "CartPole-v1:ppo", *SETTINGS], 0, ""),
    "its events": (["train.py", "CartPole-v1:ppo", "--json", *SETTINGS], 1, UNHEARD),
    "a list of variants": (["train.py", "--list-envs"], 1, UNHEARD),
    "a list of runs": (["-m", "stride.commands.runs", "list"], 1, UNHEARD),
    "the command stride": (["-m", "stride", "--help"], 1, UNHEARD),
}


DISK = Path("/dev/full")


@pytest.mark.parametrize("case", FULL)
def test_a_full_disk_behind_stdout(tmp_path, case):
    """A run is what it is; a command whose work is what it prints has failed."""
    words, *end = FULL[case]
    assert ended(words, DISK, tmp_path / "errors") == (*end, "")
    assert words[1] != "CartPole-v1:ppo" or finished_and_logged("WARNING stdout: No space left on device; ")


@pytest.mark.parametrize(("what", "said"), [("close 1", ""), ("close stdout", "result=trained")])
def test_a_world_that_closes_it(tmp_path, what, said):
    """`sys.stdout.close()` closes nothing; a closed descriptor is never another file's that was opened since."""
    settings = [*SETTINGS, "workers=0", "engine=eager", "test_episodes=0", f"env_kwargs={{what: {what}, at: 20}}"]
    words = ["train.py", "faulty_world:Faulty-v0:ppo", "-q", *settings]
    tests = str(Path(__file__).resolve().parents[1])
    assert ended(words, tmp_path / "out", tmp_path / "errors", PYTHONPATH=tests) == (0, "", "")
    out = (tmp_path / "out").read_text()
    assert out.startswith(said) and bool(said) == bool(out)
    assert read_json(RunDir.find("@last").config_json)["status"] == "finished"


@pytest.fixture
def pipe(monkeypatch):
    """A full one that does not wait: its ends, and what is lost on the way."""
    monkeypatch.setattr(streams, "losses", {})
    monkeypatch.setattr(streams, "PATIENCE", 0.2)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(writer, b"." * 512)
    yield reader, writer, streams.losses
    os.close(reader)
    os.close(writer)


def test_a_pipe_that_would_block_is_waited_for(pipe):
    reader, writer, losses = pipe
    drained = threading.Timer(0.02, os.read, (reader, 1 << 20))
    drained.start()
    assert Outlet(writer, "stdout").write(b"x" * 9000) == 9000 and not losses
    drained.join()
    assert os.read(reader, 1 << 20) == b"x" * 9000


def test_a_pipe_that_nobody_reads_is_given_up(pipe):
    reader, writer, losses = pipe
    outlet, lines = Outlet(writer, "stdout"), []
    streams.listeners.append(lines.append)
    try:
        assert outlet.write(b"x") == 1 and losses["stdout"].errno == errno.EAGAIN
        assert outlet.write(b"y") == 1 and lines == [
            "stdout: it would block; output that cannot be printed there is dropped"
        ]
    finally:
        streams.listeners.remove(lines.append)
    os.read(reader, 1 << 20)
    assert outlet.write(b"z") == 1 and os.read(reader, 1 << 20) == b"z"


def test_a_number_that_was_given_to_another_file(tmp_path, monkeypatch):
    monkeypatch.setattr(streams, "losses", {})
    number = os.dup(1)
    os.set_inheritable(number, True)
    outlet = Outlet(number, "stdout")
    os.close(number)
    with open(tmp_path / "checkpoint", "w") as file:
        assert file.fileno() == number and outlet.write(b"words") == 5
    assert (tmp_path / "checkpoint").read_text() == "" and streams.losses["stdout"].errno == errno.EBADF


def test_both_streams_may_be_closed_or_full():
    reader, writer = os.pipe()
    os.close(reader)
    broken = Path(f"/proc/{os.getpid()}/fd/{writer}")
    assert ended(["run_play.py", "--headless", "--checkpoint", "nothing"], broken, broken)[0] == 2
    os.close(writer)
    assert ended(["train.py", "CartPole-v1:ppo", "engine=nothing"], DISK, DISK)[0] == 2
