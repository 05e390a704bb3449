"""Rows per second of minibatches, and of collecting: `python -m lab.bench.collect`, from a clone."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).parents[1] / "utils" / "clone.py"))["run_lab"]("lab.bench.collect")
