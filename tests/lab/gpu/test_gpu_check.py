"""The check of a GPU, where there is none: what it writes, what it does with parts that fail, and what is wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from lab import gpu_check
from lab.faults.rig import wait_until
from lab.gpu import parts
from lab.gpu.parts import PARTS, ApartError, Found, Machine, apart
from stride.utils.user_error import UserError

CPU = Machine(device="cpu", small=True)
FACTS = {"right", "wrong", "error", "seconds", "figures"}
NAMES = list(PARTS["hashes"])


def right(machine, seconds):
    yield Found("half of it", {"so far": 1}, [])
    yield Found("all of it", {"device": machine.device}, [])


def measured(machine, seconds):
    yield Found("fast", {"rate": 1.0})


def wrong(machine, seconds):
    yield Found("1 of 2 differ", {"so far": 1}, ["the second is not the first"])


def raising(machine, seconds):
    yield Found("half of it", {"so far": 1}, [])
    raise RuntimeError("the sky\nfell")


def crashing(machine, seconds):
    yield Found("half of it", {"so far": 1}, [])
    os.kill(os.getpid(), signal.SIGKILL)


def slow(machine, seconds):
    yield Found("half of it", {"so far": 1})
    time.sleep(600)


def run(tmp_path, checks, *words):
    """The exit code, the file and its checks; one that is a text cannot be imported, for want of that module."""
    path = tmp_path / "gpu.json"
    given = dict(zip(NAMES, checks, strict=False))

    def load(name):
        if isinstance(given[name], str):
            raise ModuleNotFoundError(f"No module named {given[name]!r}")
        return given[name]

    asked = gpu_check.arguments(["--json", str(path), *words, "--only", *given])
    code = gpu_check.measure(asked, CPU, load)
    file = json.loads(path.read_text())
    return code, file, list(file["checks"].values())


def test_what_was_not_run_is_null_and_what_was_says_how_it_went(tmp_path, capsys):
    code, file, (first, second, *others) = run(tmp_path, [measured, right])
    assert code == 0 and file["right"] is True
    assert [*file["checks"]] == NAMES and {*others} == {None}
    assert {*first} == {*second} == FACTS
    assert first["right"] is None and first["figures"] == {"rate": 1.0}
    assert second["right"] is True and second["figures"] == {"device": "cpu"}
    assert f"not run: {NAMES[2]}, " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("part", "error"),
    [
        (raising, "RuntimeError: the sky fell"),
        (crashing, "its process died by SIGKILL"),
        ("numba", "ModuleNotFoundError: No module named 'numba'"),
        (wrong, None),
    ],
)
def test_a_part_that_fails_is_recorded_and_the_next_goes_on(tmp_path, capsys, part, error):
    code, file, (first, second, *_) = run(tmp_path, [part, right])
    assert code == 1 and file["right"] is False and "NOT right" in capsys.readouterr().out
    assert first["error"] == error and second["right"] is True
    assert (first["right"], len(first["wrong"])) == ((False, 1) if part is wrong else (None, 0))
    assert part == "numba" or first["figures"] == {"so far": 1}, "what it had said is kept"


def test_a_part_out_of_time_is_stopped_with_what_it_has_said_and_all_end(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(parts, "LEAST", 2.0)
    code, _, (first, second, third, *_) = run(tmp_path, [right, slow, right], "--seconds", "4")
    assert code == 1 and first["right"] is True and third is None
    assert second["error"].startswith("stopped: not done within its ") and second["figures"] == {"so far": 1}


def test_a_part_is_asked_for_by_name_and_its_checks_too(tmp_path, monkeypatch):
    assert gpu_check.arguments([]).only == NAMES
    assert gpu_check.arguments(["--part", "speed"]).only == ["facts", "speed", "kernels"]
    assert gpu_check.arguments(["--part", "learn", "--only", "solving"]).only == ["solving"]
    with pytest.raises(UserError, match="--part speed has no check hashes; it has facts, speed, kernels"):
        gpu_check.arguments(["--part", "speed", "--only", "hashes"])
    monkeypatch.setattr(gpu_check, "RESULTS", tmp_path)
    assert gpu_check.measure(gpu_check.arguments(["--part", "learn", "--only", "facts"]), CPU, lambda name: right) == 0
    (path,) = tmp_path.iterdir()
    file = json.loads(path.read_text())
    assert path.name.endswith("-learn.json") and file["part"] == "learn" and [*file["checks"]] == [*PARTS["learn"]]


def test_only_figures_are_no_proof(tmp_path):
    code, file, _ = run(tmp_path, [measured])
    assert code == 1 and file["right"] is None


def test_work_apart_leaves_no_process_behind():
    def work():
        child = os.fork()
        if not child:
            time.sleep(600)
            os._exit(0)
        yield Found("", {"pid": child})
        time.sleep(600)

    work_apart = apart(work, 3.0)
    stat = Path(f"/proc/{next(work_apart).figures['pid']}/stat")
    with pytest.raises(ApartError, match="within its 3 s"):
        next(work_apart)
    wait_until(lambda: not stat.exists() or stat.read_text().split()[2] == "Z")  # whoever adopts it has to notice


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_is_one_line_and_no_file(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu_check, "RESULTS", tmp_path)
    code = gpu_check.entry.ended(gpu_check.main, [])
    assert code == 2 and not [*tmp_path.iterdir()]
    assert capsys.readouterr().err.startswith("error: device: cuda:0: torch finds no CUDA device (torch ")


def test_it_is_a_file_to_start_too():
    done = subprocess.run([sys.executable, gpu_check.__file__, "--help"], cwd="/", capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("usage: python -m lab.gpu_check [-h]"), done.stderr
