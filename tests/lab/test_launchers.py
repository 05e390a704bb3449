"""Names in scripts/ that the laboratory had before: each starts its module of lab/, or says that it needs a clone."""

import re
import shutil
from pathlib import Path

from commands import run_command

ROOT = Path(__file__).resolve().parent.parent.parent
RUN_LAB = '["run_lab"]'
LAUNCHERS = {path.stem: path for path in sorted((ROOT / "scripts").glob("*.py")) if RUN_LAB in path.read_text()}
MODULES = {name: re.search(r'\["run_lab"\]\("([\w.]+)"\)', path.read_text())[1] for name, path in LAUNCHERS.items()}
NAMES = {"smoke_train_envs", "smoke_test_envs", "gpu_check", "brax_train_policy", "brax_eval_policy"}


def test_the_old_names_are_there_are_short_and_name_a_module_that_is_there():
    assert {*LAUNCHERS} >= NAMES
    for name, path in LAUNCHERS.items():
        assert len([line for line in path.read_text().splitlines() if line.strip()]) <= 5, path
        assert (ROOT / MODULES[name].replace(".", "/")).with_suffix(".py").is_file(), name


def test_a_launcher_becomes_its_module_in_a_clone_and_says_that_it_needs_one_elsewhere(tmp_path):
    done = run_command(LAUNCHERS["gpu_check"], "--help", cwd=tmp_path, env={"PATH": "/usr/bin:/bin"})
    assert done.returncode == 0 and done.stdout.startswith("usage: python -m lab.gpu_check "), done.stderr
    for file in ("scripts/gpu_check.py", "utils/clone.py"):
        (tmp_path / file).parent.mkdir()
        shutil.copy(ROOT / file, tmp_path / file)
    done = run_command(tmp_path / "scripts" / "gpu_check.py", "--help", cwd=tmp_path)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr == f"this needs a clone of the project; in it, type python -m {MODULES['gpu_check']}\n"
