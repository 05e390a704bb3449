"""Env steps per second of ours and of others: `python -m lab.bench.envs`, from a clone."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).parents[1] / "utils" / "clone.py"))["run_lab"]("lab.bench.envs")
