"""Every module has one name, below `stride`; an old name answers with the new one, wherever it is written."""

import subprocess
import sys

import pytest

from stride.commands import train
from stride.utils.places import IS_WHEEL, PROJECT, ROOT

ROOMS = sorted(file.parent.name for file in PROJECT.glob("*/__init__.py") if file.parent.name not in ("lab", "stride"))
ROOMS = [room for room in ROOMS if room not in ("commands", "scripts", "tests")]
ALGORITHM = "\nfrom agents.ppo import PPO\n\nclass Mine(PPO):\n    pass\n"


@pytest.mark.skipif(IS_WHEEL, reason="a wheel has no folders beside the package")
@pytest.mark.parametrize("room", ROOMS)
def test_an_old_name_says_the_new_one(room):
    code = f"import {room}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == f"ImportError: write stride.{room}"


def test_an_algorithm_that_imports_by_an_old_name_is_told(tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text(ALGORITHM)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    assert train.command(["CartPole-v1:mine:Mine", "-q"]) == 2
    line = capsys.readouterr().err
    assert "mine cannot be imported: " in line and "write stride.agents" in line and "mine.py:2)" in line
    assert line.count("\n") == 1 and not (tmp_path / "runs").exists()


def test_a_module_of_ours_by_its_old_name_is_refused_with_the_new_one(capsys):
    assert train.command(["CartPole-v1:agents.ppo:PPO", "-q"]) == 2
    assert "stride.agents" in capsys.readouterr().err


def test_a_shipped_algorithm_goes_by_its_name(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    assert train.command(["CartPole-v1:stride.agents.ppo:PPO", "-q", "max_timesteps=2048"]) == 2
    assert "algo_id: stride.agents.ppo:PPO is ppo; write ppo" in capsys.readouterr().err


def test_a_module_is_one_file_however_the_package_was_found():
    code = "import os, stride, stride.agents.ppo as p; print(os.path.realpath(stride.__file__), p.__file__)"
    paths = {
        subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True).stdout
        for folder in (ROOT, "/")
    }
    assert len(paths) == 1
