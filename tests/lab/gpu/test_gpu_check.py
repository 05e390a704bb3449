"""The check of a GPU, where there is none: what it writes, parts that fail, and packages that are carried to it."""

import json
import os
import signal
import subprocess
import time
import zipfile
from pathlib import Path

import pytest
import torch

from lab import gpu_check
from lab.faults.rig import wait_until
from lab.gpu import parts, wheels
from lab.gpu.parts import PARTS, ApartError, Found, Machine, apart
from stride.utils.user_error import UserError

CPU = Machine(device="cpu", small=True)
FACTS = {"right", "wrong", "error", "seconds", "figures"}
NAMES = list(PARTS["hashes"])


def check(*wrong, between=lambda: None):
    """A check of two results, what is wrong with both, and what happens between them."""

    def work(machine, seconds):
        yield Found("half of it", {"so far": 1}, *wrong)
        between()
        yield Found("all of it", {"device": machine.device}, *wrong)

    return work


def fall():
    raise RuntimeError("the sky\nfell")


RIGHT, MEASURED, SLOW = check([]), check(), check([], between=lambda: time.sleep(600))


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


def test_what_was_not_run_is_null_what_was_says_how_it_went_and_only_figures_are_no_proof(tmp_path, capsys):
    code, file, (first, second, *others) = run(tmp_path, [MEASURED, RIGHT])
    assert code == 0 and file["right"] is True
    assert [*file["checks"]] == NAMES and {*others} == {None} and {*first} == {*second} == FACTS
    assert first["right"] is None and second["right"] is True and second["figures"] == {"device": "cpu"}
    assert f"not run: {NAMES[2]}, " in capsys.readouterr().out
    code, file, _ = run(tmp_path, [MEASURED])
    assert code == 1 and file["right"] is None


@pytest.mark.parametrize(("part", "right", "error"), [
    (check([], between=fall), None, "RuntimeError: the sky fell"),
    (check([], between=lambda: os.kill(os.getpid(), signal.SIGKILL)), None, "its process died by SIGKILL"),
    ("numba", None, "ModuleNotFoundError: No module named 'numba'"),
    (check(["the second is not the first"]), False, None),
])  # fmt: skip
def test_a_part_that_fails_is_recorded_and_the_next_goes_on(tmp_path, capsys, part, right, error):
    code, file, (first, second, *_) = run(tmp_path, [part, RIGHT])
    assert code == 1 and file["right"] is False and "NOT right" in capsys.readouterr().out
    assert (first["error"], first["right"], len(first["wrong"])) == (error, right, right is False)
    assert second["right"] is True
    assert part == "numba" or first["figures"] == ({"so far": 1} if error else {"device": "cpu"})


def test_a_part_out_of_time_is_stopped_with_what_it_has_said_and_all_end(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "LEAST", 2.0)
    code, _, (first, second, third, *_) = run(tmp_path, [RIGHT, SLOW, RIGHT], "--seconds", "4")
    assert code == 1 and first["right"] is True and third is None
    assert second["error"].startswith("stopped: not done within its ") and second["figures"] == {"so far": 1}


def test_a_part_is_asked_for_by_name_and_its_checks_too(tmp_path, monkeypatch):
    assert gpu_check.arguments([]).only == NAMES
    assert gpu_check.arguments(["--part", "speed"]).only == ["facts", "speed", "kernels"]
    with pytest.raises(UserError, match="--part speed has no check hashes; it has facts, speed, kernels"):
        gpu_check.arguments(["--part", "speed", "--only", "hashes"])
    monkeypatch.setattr(gpu_check, "RESULTS", tmp_path)
    assert gpu_check.measure(gpu_check.arguments(["--part", "learn", "--only", "facts"]), CPU, lambda name: RIGHT) == 0
    (path,) = tmp_path.iterdir()
    file = json.loads(path.read_text())
    assert path.name.endswith("-learn.json") and file["part"] == "learn" and [*file["checks"]] == [*PARTS["learn"]]


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
    assert gpu_check.entry.ended(gpu_check.main, []) == 2 and not [*tmp_path.iterdir()]
    assert capsys.readouterr().err.startswith("error: device: cuda:0: torch finds no CUDA device (torch ")


# ---- packages for a machine without a network

NAME = "stride-carried"
FILES = {
    "stride_carried.py": "WORD = 'carried'\n",
    "stride_carried-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: 1.0\n",
    "stride_carried-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    "stride_carried-1.0.dist-info/RECORD": "",
}


@pytest.mark.slow
def test_what_was_packed_is_found_where_it_is_unpacked(tmp_path, monkeypatch, capsys):
    """pip knows a folder with one wheel and nothing else."""
    index, carried, target = (tmp_path / name for name in ("index", "carried", "target"))
    index.mkdir()
    with zipfile.ZipFile(index / "stride_carried-1.0-py3-none-any.whl", "w") as wheel:
        for path, text in FILES.items():
            wheel.writestr(path, text)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    monkeypatch.setattr(gpu_check, "LACKED", (NAME,))
    monkeypatch.setitem(wheels.NEEDED, "stride_carried", NAME)
    assert gpu_check.main(["--wheels", str(carried)]) == 0
    assert capsys.readouterr().out == "stride_carried-1.0-py3-none-any.whl\n"
    assert NAME in wheels.missing()
    wheels.unpack(carried, target)
    assert NAME not in wheels.missing(target)
    assert (target / "stride_carried.py").read_text() == FILES["stride_carried.py"]
    with pytest.raises(UserError, match=r"pip download stride-nowhere: .*stride-nowhere"):
        wheels.pack(carried, gpu_check.PROJECT, "3.12", ("stride-nowhere",))
    with pytest.raises(UserError, match=f"{tmp_path} holds no wheels; python scripts/gpu_check.py --wheels"):
        wheels.unpack(tmp_path, target)


def test_carried_packages_are_found_by_the_process_that_checks(tmp_path, monkeypatch):
    """It is handed the folder and root on its path, and its exit code is the command's."""
    calls = []

    def run(command, env, check):
        calls.extend((command, env))
        return subprocess.CompletedProcess([], 3)

    monkeypatch.setattr(gpu_check, "unpack", lambda carried, target: calls.append(target))
    monkeypatch.setattr(subprocess, "run", run)
    words = ["--from-wheels", str(tmp_path), "--only", "facts"]
    assert gpu_check.main(words) == 3
    target, command, env = calls
    assert command[1:] == ["-m", "lab.gpu_check", *words, "--bare"]
    assert env["PYTHONPATH"].startswith(f"{target}:{gpu_check.PROJECT}") and not target.exists()
