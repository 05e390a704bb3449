"""Packages for a machine without a network: packed from a folder in the place of an index, unpacked, found."""

import subprocess
import sys
import zipfile

import pytest

from lab import gpu_check
from lab.gpu import wheels
from stride.utils.user_error import UserError

NAME, VERSION = "stride-carried", "1.0"


def index_of(folder):
    """A folder that pip takes for an index, with one wheel."""
    folder.mkdir()
    facts = f"stride_carried-{VERSION}.dist-info"
    with zipfile.ZipFile(folder / f"stride_carried-{VERSION}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("stride_carried.py", "WORD = 'carried'\n")
        wheel.writestr(f"{facts}/METADATA", f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {VERSION}\n")
        wheel.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{facts}/RECORD", "")
    return folder


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """pip knows the folder and nothing else."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index_of(tmp_path / "index")))
    monkeypatch.setattr(wheels, "LACKED", (NAME,))
    return tmp_path / "carried"


@pytest.mark.slow
def test_what_was_packed_is_found_where_it_is_unpacked(offline, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_check, "LACKED", (NAME,))
    assert gpu_check.main(["--wheels", str(offline)]) == 0
    assert capsys.readouterr().out == "stride_carried-1.0-py3-none-any.whl\n"
    target = tmp_path / "target"
    monkeypatch.setitem(wheels.NEEDED, "stride_carried", NAME)
    assert NAME in wheels.missing()
    wheels.unpack(offline, target)
    assert NAME not in wheels.missing(target)
    said = [sys.executable, "-c", "import stride_carried; print(stride_carried.WORD)"]
    assert subprocess.run(said, env={"PYTHONPATH": str(target)}, capture_output=True, text=True).stdout == "carried\n"


@pytest.mark.slow
def test_a_package_that_is_not_there_is_one_line(offline):
    with pytest.raises(UserError, match=r"pip download stride-nowhere: .*stride-nowhere"):
        wheels.pack(offline, gpu_check.PROJECT, "3.12", ("stride-nowhere",))


def test_an_empty_folder_says_how_it_is_filled(tmp_path):
    with pytest.raises(UserError, match=f"{tmp_path} holds no wheels; python scripts/gpu_check.py --wheels"):
        wheels.unpack(tmp_path, tmp_path / "target")


def test_carried_packages_are_found_by_the_process_that_checks(tmp_path, monkeypatch):
    """It is handed the folder and root on its path, and its exit code is the command's."""
    seen = []

    def unpack(carried, target):
        (target / "carried.py").write_text("")
        seen.append(target)

    monkeypatch.setattr(gpu_check, "unpack", unpack)
    monkeypatch.setattr(subprocess, "run", lambda command, env, check: seen.extend((command, env)) or done(3))
    words = ["--from-wheels", str(tmp_path), "--only", "facts"]
    assert gpu_check.main(words) == 3
    target, command, env = seen
    assert command[1:] == ["-m", "lab.gpu_check", *words, "--bare"]
    assert env["PYTHONPATH"].startswith(f"{target}:{gpu_check.PROJECT}")
    assert not target.exists(), "gone with the command"


def done(code):
    return subprocess.CompletedProcess([], code)


@pytest.mark.slow
def test_all_that_a_bare_machine_lacks_is_packed(tmp_path):
    try:
        found = wheels.pack(tmp_path, gpu_check.PROJECT, "3.12", wheels.LACKED)
    except UserError as error:
        if "Connection" in str(error) or "No matching distribution" in str(error):
            pytest.skip(f"no index can be reached: {error}")
        raise
    assert len(found) == len(wheels.LACKED) and all(name.endswith("none-any.whl") for name in found)
