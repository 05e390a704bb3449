"""Trainings forked by a server that has imported what they need: their arguments, and how they and the server end."""

import os
import signal
import subprocess
import sys
import time
from multiprocessing import forkserver
from pathlib import Path

import pytest

from lab.faults.rig import TINY, amounts_to, state_of
from stride.commands.plain_tree import fingerprint
from stride.runstore.many import process_pool
from stride.runstore.many.process_pool import LOST, run_all
from stride.runstore.run_dir import list_runs

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks what has loaded torch")
SERVED = """
import os, subprocess, sys, time
from stride.runstore.many.process_pool import check_server
with open({folder!r} + "/imported", "a") as file:
    print(os.getpid(), file=file)
{more}
check_server()

def command(arguments):
    exec(arguments[0])
    return 0
"""
PROGRAM = "import sys; from served import command; sys.exit(command(sys.argv[1:]))"


@pytest.fixture(autouse=True)
def no_server():
    """Each test has a server of its own."""
    yield
    forkserver._forkserver._stop()


@pytest.fixture
def served(tmp_path, monkeypatch):
    """Writes the module that the server imports, with more lines, and a program that runs its command."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(ROOT))))
    monkeypatch.setattr(process_pool, "SERVED", "served")
    monkeypatch.setattr(process_pool, "TRAIN", [sys.executable, str(tmp_path / "program.py")])
    (tmp_path / "program.py").write_text(PROGRAM)

    def write(more=""):
        (tmp_path / "served.py").write_text(SERVED.format(folder=str(tmp_path), more=more))

    write()
    return write


def imports(folder):
    return len((folder / "imported").read_text().split())


def pooled(codes, workers=2, **more):
    done = run_all([[*process_pool.TRAIN, code, "x"] for code in codes], workers, {"WORD": "hello"}, **more)
    return {finished.index: finished for finished in done}


def test_each_has_its_arguments_its_output_and_its_code_after_one_import(served, tmp_path, monkeypatch):
    monkeypatch.setenv("GONE", "x")
    process_pool.start_server(os.environ)
    monkeypatch.delenv("GONE")
    codes = [
        "print(sys.argv[1:], os.environ['WORD'], os.environ.get('GONE'), os.getcwd())",
        "sys.stderr.write('oops'); sys.exit(3)",
        "os.kill(os.getpid(), 9)",
        "print('in' in sys.stdin.read(), os.getpid() == os.getsid(0))",
    ]
    done = pooled(codes)
    assert [done[index].returncode for index in range(4)] == [0, 3, -9, 0]
    assert done[0].output_tail == f"{[codes[0], 'x']} hello None {os.getcwd()}\n"
    assert done[1].output_tail == "oops" and done[3].output_tail == "False True\n"
    assert imports(tmp_path) == 1


def test_a_single_command_is_a_process_of_its_own(served):
    assert pooled(["print(os.getppid())"])[0].output_tail == f"{os.getpid()}\n"


@pytest.mark.parametrize(
    "more",
    [
        "if process_pool.server_id: sys.exit(5)",
        "if process_pool.server_id: os.abort()",
        "if process_pool.server_id: import threading; threading.Timer(9, print).start()",
    ],
)
def test_where_no_server_can_be_made_each_command_is_a_process_of_its_own(served, more):
    served(f"from stride.runstore.many import process_pool\n{more}")
    done = pooled(["print(1)", "print(2)", "print(3)"])
    assert [done[index].output_tail for index in range(3)] == ["1\n", "2\n", "3\n"]


def test_when_the_server_is_killed_its_forks_are_asked_to_end_and_the_others_are_run_by_another(served, tmp_path):
    waiting = "import signal; signal.signal(15, lambda *_: (open({0!r}, 'w').close(), sys.exit(143))); time.sleep(60)"
    code = waiting.format(str(tmp_path / "asked"))
    killing = "os.kill(os.getppid(), 9); time.sleep(60)"
    done = pooled([code, f"time.sleep(0.3); {killing}", "print('run')"])
    assert [done[0].returncode, done[1].returncode, done[2].returncode] == [LOST, LOST, 0]
    assert done[2].output_tail == "run\n" and imports(tmp_path) == 2
    until((tmp_path / "asked").exists)


def test_what_stops_the_pool_ends_forks_and_what_they_started(served, tmp_path):
    code = f"""
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
open({str(tmp_path / "pids")!r}, "w").write(f"{{os.getpid()}} {{child.pid}} ")
time.sleep(60)"""
    done = pooled([code, "pass", "print('never')"], 1, stop=lambda: len(pids(tmp_path)) == 2)
    assert done.keys() == {0} and done[0].returncode == -signal.SIGTERM
    until(lambda: not any(map(alive, pids(tmp_path))))


def test_a_killed_parent_leaves_neither_server_nor_forks(served, tmp_path):
    code = f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{os.getpid()}} {{os.getppid()}} '); time.sleep(60)"
    program = process_pool.TRAIN
    lines = "from stride.runstore.many import process_pool as p\n"
    lines += f"p.SERVED, p.TRAIN = 'served', {program!r}\n"
    lines += f"list(p.run_all([{[*program, code]!r}, {[*program, 'pass']!r}], 1))"
    leader = subprocess.Popen([sys.executable, "-c", lines], cwd=ROOT)
    until(lambda: len(pids(tmp_path)) == 2)
    leader.kill()
    leader.wait()
    until(lambda: not any(map(alive, pids(tmp_path))))


@pytest.mark.slow
def test_a_forked_training_has_the_bits_of_a_fresh_process(tmp_path, monkeypatch):
    train = [sys.executable, str(ROOT / "train.py")]
    ends = []
    for name, commands in (("fresh", [["--seed", "1"], ["--seed", "2"]]), ("forked", [["--seed", "1,2"]])):
        monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / name))
        for more in commands:
            subprocess.run([*train, *TINY, *more], check=True, capture_output=True)
        runs = sorted(list_runs(), key=lambda run: run.facts()["seed"])
        keys = ("rows", "increasing", "links", "report")
        ends.append([(fingerprint(state_of(run)), {key: amounts_to(run)[key] for key in keys}) for run in runs])
    assert len(ends[0]) == 2 and ends[0] == ends[1] and ends[0][0] != ends[0][1]


def pids(folder):
    path = folder / "pids"
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(holds, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)
