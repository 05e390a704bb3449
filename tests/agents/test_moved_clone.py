"""Kernels are compiled once on a machine: a copy of the checkout, moved, compiles nothing while it trains."""

import os
import shutil
from pathlib import Path

import pytest
from commands import run_command

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(".*", "runs", "docs", "tests", "build", "__pycache__")
COUNTED = """
import os, sys
from numba.core import event
from stride.commands import train
here = os.getpid()
compiled = []
class Listener(event.Listener):
    def on_start(self, what): compiled.append(str(what.data["dispatcher"])) if os.getpid() == here else None
    def on_end(self, what): pass
event.register("numba:compile", Listener())
code = train.main(sys.argv[1:])
print("COMPILED:", *compiled)
sys.exit(code)
"""


@pytest.mark.parametrize("config", ["CartPole-v1:ppo", "CartPole-v1:dqn learning_starts=256"])
def test_a_copied_and_moved_clone_compiles_nothing(tmp_path, config):
    env = {**os.environ, "STRIDE_RUNS": str(tmp_path / "runs"), "OMP_NUM_THREADS": "1"}
    words = [*config.split(), "max_timesteps=1024", "eval_freq_epochs=1", "eval_warmup_epochs=0", "eval_episodes=1"]
    shutil.copytree(ROOT, tmp_path / "copy", ignore=LEFT_OUT)
    first = run_command("train.py", *words, cwd=tmp_path / "copy", env=env)  # may compile
    assert first.returncode == 0, first.stderr
    (tmp_path / "copy").rename(tmp_path / "moved")
    (tmp_path / "moved" / "counted.py").write_text(COUNTED)
    done = run_command("counted.py", *words, cwd=tmp_path / "moved", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rpartition("COMPILED:")[2].split() == []
    assert "compil" not in done.stdout.rpartition("COMPILED:")[0]
