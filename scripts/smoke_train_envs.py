"""Trains every shipped variant for two iterations: `python -m lab.smoke_train_envs`, from a clone."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).parents[1] / "utils" / "clone.py"))["run_lab"]("lab.smoke_train_envs")
