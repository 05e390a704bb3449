"""The fault scripts with small counts: each fault is proven to strike, and nothing is lost to it.

Each runs in a process of its own, as it forks; docs/reliability.md holds the full counts.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent.parent

SCRIPTS = {
    "kill": (
        ["--trials", "13", "--groups", "1"],
        ["PPO, fused: **1 of 1 resumed bit-identical**", "SAC: **1 of 1", "LSTM: **1 of 1", "seeds: **2 of 2 runs"],
    ),
    "environments": (
        ["--faults", "8"],
        [
            "training: **17 of 17** ended",
            "test: **16 of 16** ended",
            "made: **8 of 8** one",
            "publishing: **24 of 24**",
        ],
    ),
    "monitor": (
        ["--reads", "3000", "--kills", "10", "--replacements", "20", "--steps", "250000"],
        [
            "metrics: **0 torn**, 0 older",
            "**10 of 10** files whole",
            "**10 of 10** known",
            "**0 mixed**",
            "% of the time",
        ],
    ),
    "audience": (["--windows", "1"], ["8 monitors: ", "** of a core each"]),
    "damage": (["--flips", "20", "--cuts", "10"], ["**30 of 30** damaged", "30 of 30 times", "did go on"]),
    "nan": (["--agents", "3"], ["**54 of 54** caught", "ppo; ppo, fused; sac"]),
    "races": (
        ["--processes", "12", "--lookups", "2000", "--trainings", "2"],
        ["12 folders, 1 of that id", "1 owner, 11 refused", "0 failed", "2 ended well in 2 folders"],
    ),
    "fuzz": (
        ["--commands", "30", "--loads", "400", "--ids", "60", "--words", "300", "--folders", "20"],
        [
            "**30 of 30** wrong configs",
            "**0 other exceptions**",
            "**300 of 300** refused",
            "**0 of 300** wrong",
            "**0 of 180** wrong",
        ],
    ),
    "hostile": (["--files", "12"], ["**60 of 60** refused", "**0 executed**"]),
    "folder": (["--cases", "8", "--each", "2"], ["**16 of 16** ended as they should", "**0 read or wrote outside**"]),
    "inspector": (["--runs", "12"], ["72 room calls", "**0 wrong**", "12 times the table went on"]),
    "signals": (
        ["--trials", "7", "--groups", "1"],
        ["SIGTERM: **7 of 7**", "SIGINT: **7 of 7**", "SIGHUP: **7 of 7**", "gets SIGKILL: **1 of 1** times"],
    ),
    "circumstances": (
        [
            "--references",
            "2",
            "--environments",
            "3",
            "--limits",
            "5",
            "--stops",
            "2",
            "--resumes",
            "1",
            "--cases",
            "16",
        ],
        [
            "**10 of 10** comparisons",
            "**3 of 3** environments",
            "** limits",
            "**2 of 2** runs stopped",
            "**1 of 1** times three resumes",
            "**16 of 16** resumes",
        ],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCRIPTS)
def test_nothing_is_lost_to_a_planted_fault(name, tmp_path):
    counts, expected = SCRIPTS[name]
    done = subprocess.run(
        [sys.executable, "-m", f"scripts.faults.{name}", *counts],
        cwd=ROOT, capture_output=True, text=True, timeout=600, env={**os.environ, "TMPDIR": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for words in expected:
        assert words in done.stdout


@pytest.mark.slow
def test_a_disk_that_fills_up():
    if os.geteuid():
        pytest.skip("mounting a small tmpfs needs root")
    command = [sys.executable, "-m", "scripts.faults.disk", "--levels", "3"]  # another user reads what it makes in /tmp
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    if "could not be mounted" in done.stdout:
        pytest.skip("a tmpfs cannot be mounted here")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "**3 of 3**" in done.stdout and done.stdout.count("refused with exit code 2") == 1
    assert done.stdout.count("3 of 3 times by a process") == 2
