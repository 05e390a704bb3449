"""Evaluate a policy that was trained in worlds of Brax: `python -m lab.brax_eval_policy`, from a clone."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(str(Path(__file__).parents[1] / "utils" / "clone.py"))["run_lab"]("lab.brax_eval_policy")
