"""Packages for a machine without a network: packed from a folder in the place of an index, unpacked, found."""

import subprocess
import sys
import zipfile

import pytest

from lab import gpu_check
from lab.gpu import wheels
from stride.utils.user_error import UserError

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
    code = [sys.executable, "-c", "import stride_carried; print(stride_carried.WORD)"]
    assert subprocess.run(code, env={"PYTHONPATH": str(target)}, capture_output=True, text=True).stdout == "carried\n"
    with pytest.raises(UserError, match=r"pip download stride-nowhere: .*stride-nowhere"):
        wheels.pack(carried, gpu_check.PROJECT, "3.12", ("stride-nowhere",))
    with pytest.raises(UserError, match=f"{tmp_path} holds no wheels; python scripts/gpu_check.py --wheels"):
        wheels.unpack(tmp_path, target)


def test_carried_packages_are_found_by_the_process_that_checks(tmp_path, monkeypatch):
    """It is handed the folder and root on its path, and its exit code is the command's."""
    calls = []

    def unpack(carried, target):
        (target / "carried.py").write_text("")
        calls.append(target)

    def run(command, env, check):
        calls.extend((command, env))
        return subprocess.CompletedProcess([], 3)

    monkeypatch.setattr(gpu_check, "unpack", unpack)
    monkeypatch.setattr(subprocess, "run", run)
    words = ["--from-wheels", str(tmp_path), "--only", "facts"]
    assert gpu_check.main(words) == 3
    target, command, env = calls
    assert command[1:] == ["-m", "lab.gpu_check", *words, "--bare"]
    assert env["PYTHONPATH"].startswith(f"{target}:{gpu_check.PROJECT}")
    assert not target.exists(), "gone with the command"


@pytest.mark.slow
def test_all_that_a_bare_machine_lacks_is_packed(tmp_path):
    try:
        names = wheels.pack(tmp_path, gpu_check.PROJECT, "3.12", wheels.LACKED)
    except UserError as error:
        if "Connection" in str(error) or "No matching distribution" in str(error):
            pytest.skip(f"no index can be reached: {error}")
        raise
    assert len(names) == len(wheels.LACKED) and all(name.endswith("none-any.whl") for name in names)
