"""Make a page of W&B for the runs of a project: `stride setup-wandb-dashboard`."""

import runpy
from pathlib import Path

if __name__ == "__main__":
    runpy.run_path(f"{Path(__file__).parents[1]}/utils/clone.py")["run_lab"]("stride.commands.setup_wandb_dashboard")
