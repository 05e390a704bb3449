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
from lab.gpu import parts
from lab.gpu.parts import PARTS, ApartError, Found, Machine, apart
from stride.utils.user_error import UserError

CPU = Machine(device="cpu", small=True)
FACTS = {"right", "wrong", "error", "seconds", "figures"}


def right(machine, seconds):
    yield Found("half of it", {"so far": 1}, [])
    yield Found("all of it", {"device": machine.device}, [])


def measured(machine, seconds):
    yield Found("fast", {"rate": 1.0})


def wrong(machine, seconds):
    yield Found("1 of 2 differ", {}, ["the second is not the first"])


def raising(machine, seconds):
    yield Found("half of it", {"so far": 1}, [])
    raise RuntimeError("the sky\nfell")


def crashing(machine, seconds):
    yield Found("half of it", {"so far": 1}, [])
    os.kill(os.getpid(), signal.SIGKILL)


def slow(machine, seconds):
    yield Found("half of it", {"so far": 1})
    time.sleep(60)


def run(tmp_path, capsys, checks, *words):
    """The exit code, the file and what was said."""
    path = tmp_path / "gpu.json"
    asked = gpu_check.arguments(["--json", str(path), *words])
    names = list(PARTS["hashes"])
    there = dict(zip(names, checks, strict=False))
    asked.only = [*there] if "--only" not in words else asked.only
    code = gpu_check.measure(asked, CPU, there.__getitem__)
    return code, json.loads(path.read_text()), capsys.readouterr().out


def test_what_was_not_run_is_null_and_what_was_says_how_it_went(tmp_path, capsys):
    code, file, said = run(tmp_path, capsys, [measured, right])
    names = list(PARTS["hashes"])
    assert code == 0 and file["right"] is True
    assert [*file["checks"]] == names and {file["checks"][name] for name in names[2:]} == {None}
    first, second = (file["checks"][name] for name in names[:2])
    assert {*first} == {*second} == FACTS
    assert first["right"] is None and first["figures"] == {"rate": 1.0}
    assert second["right"] is True and second["figures"] == {"device": "cpu"}
    assert f"whatever was run is right; not run: {names[2]}, " in said


@pytest.mark.parametrize(
    ("part", "error"),
    [
        (raising, "RuntimeError: the sky fell"),
        (crashing, "its process died by SIGKILL"),
        (wrong, None),
    ],
)
def test_a_part_that_fails_is_recorded_and_the_next_goes_on(tmp_path, capsys, part, error):
    code, file, said = run(tmp_path, capsys, [part, right])
    first, second, *_ = file["checks"].values()
    assert code == 1 and file["right"] is False and "NOT right" in said
    assert first["error"] == error and second["right"] is True
    assert first["right"] is (False if part is wrong else None)
    if part is wrong:
        assert first["wrong"] == ["the second is not the first"] and first["wrong"][0] in said
    else:
        assert first["figures"] == {"so far": 1}, "what it had said is kept"


def test_a_part_whose_packages_are_missing_is_recorded_and_the_next_goes_on(tmp_path, capsys):
    def load(name):
        if name == "facts":
            raise ModuleNotFoundError("No module named 'numba'")
        return right

    asked = gpu_check.arguments(["--json", str(tmp_path / "gpu.json"), "--only", "facts", "hashes"])
    assert gpu_check.measure(asked, CPU, load) == 1
    first, second, *_ = json.loads((tmp_path / "gpu.json").read_text())["checks"].values()
    assert first["error"] == "ModuleNotFoundError: No module named 'numba'" and second["right"] is True


def test_a_part_out_of_time_is_stopped_with_what_it_has_said_and_all_end_in_time(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(parts, "LEAST", 0.5)
    began = time.monotonic()
    code, file, said = run(tmp_path, capsys, [right, slow, right], "--seconds", "2")
    first, second, third, *_ = file["checks"].values()
    assert time.monotonic() - began < 10 and code == 1
    assert first["right"] is True
    assert second["error"].startswith("stopped: not done within its ") and second["figures"] == {"so far": 1}
    assert third is None and "not run: no time is left" in said


def test_a_part_is_asked_for_by_name_and_its_checks_too(tmp_path, capsys, monkeypatch):
    assert gpu_check.arguments([]).only == [*PARTS["hashes"]]
    assert gpu_check.arguments(["--part", "speed"]).only == ["facts", "speed", "kernels"]
    assert gpu_check.arguments(["--part", "learn", "--only", "solving"]).only == ["solving"]
    with pytest.raises(UserError, match="--part speed has no check hashes; it has facts, speed, kernels"):
        gpu_check.arguments(["--part", "speed", "--only", "hashes"])
    monkeypatch.setattr(gpu_check, "RESULTS", tmp_path)
    assert gpu_check.measure(gpu_check.arguments(["--part", "learn", "--only", "facts"]), CPU, lambda name: right) == 0
    (path,) = tmp_path.iterdir()
    file = json.loads(path.read_text())
    assert path.name.endswith("-learn.json") and file["part"] == "learn" and [*file["checks"]] == [*PARTS["learn"]]


def test_only_figures_are_no_proof(tmp_path, capsys):
    code, file, said = run(tmp_path, capsys, [measured])
    assert code == 1 and file["right"] is None and "nothing was checked" in said


def test_work_apart_leaves_no_process_behind():
    def work():
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(0)
        yield Found("", {"pid": child})
        time.sleep(60)

    found = apart(work, 1.0)
    pid = next(found).figures["pid"]
    with pytest.raises(ApartError, match="within its 1 s"):
        next(found)
    for _ in range(100):  # whoever adopts it has to notice
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().split()[2] == "Z":
            break
        time.sleep(0.05)
    else:
        raise AssertionError(f"{pid} lives")


def test_it_is_found_as_a_file_too():
    done = subprocess.run([sys.executable, gpu_check.__file__, "--help"], cwd="/", capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("usage: python -m lab.gpu_check [-h]"), done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_is_one_line_and_no_file(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(gpu_check, "RESULTS", tmp_path)
    code = gpu_check.entry.ended(gpu_check.main, [])
    assert code == 2 and not [*tmp_path.iterdir()]
    assert capsys.readouterr().err.startswith("error: device: cuda:0: torch finds no CUDA device (torch ")
