"""Plays random actions in every environment: `python -m lab.smoke_test_envs`, from a clone."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).parents[1] / "utils" / "clone.py"))["run_lab"]("lab.smoke_test_envs")
