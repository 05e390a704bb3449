"""Every module has one name, below `stride`; an old name answers with the new one, wherever it is written."""

import subprocess
import sys

import pytest
from commands import refusal

from stride.commands import train
from stride.utils.places import IS_WHEEL, PROJECT, ROOT

OTHERS = ("lab", "stride", "commands", "scripts", "tests")
ROOMS = sorted({file.parent.name for file in PROJECT.glob("*/__init__.py")} - {*OTHERS})
OLD_NAMES = """
for room in {}:
    try:
        __import__(room)
    except ImportError as error:
        print(error)
"""


def printed(code, cwd):
    return subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, check=True).stdout


@pytest.mark.skipif(IS_WHEEL, reason="a wheel has no folders beside the package")
def test_an_old_name_says_the_new_one():
    assert len(ROOMS) > 8
    assert printed(OLD_NAMES.format(ROOMS), ROOT).splitlines() == [f"write stride.{room}" for room in ROOMS]


@pytest.mark.parametrize(
    ("algorithm", "fragment"),
    [
        ("mine:Mine", "mine cannot be imported: ImportError: write stride.agents ("),
        ("agents.ppo:PPO", "stride.agents"),
        ("stride.agents.ppo:PPO", "algo_id: stride.agents.ppo:PPO is ppo; write ppo"),
    ],
)
def test_an_algorithm_by_an_old_name_is_refused_with_the_new_one(algorithm, fragment, tmp_path, monkeypatch, capsys):
    (tmp_path / "mine.py").write_text("\nfrom agents.ppo import PPO\n\nclass Mine(PPO):\n    pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    line = refusal(capsys, train.command, f"CartPole-v1:{algorithm}", "-q", "max_timesteps=2048")
    assert fragment in line and ("mine.py:2)" in line or algorithm != "mine:Mine")
    assert not (tmp_path / "runs").exists()


def test_a_module_is_one_file_wherever_the_package_was_found():
    code = "import importlib.util, os, stride; print(os.path.realpath(stride.__file__))\n"
    code += "print(importlib.util.find_spec('stride.agents.ppo').origin)"
    assert printed(code, ROOT) == printed(code, "/")
