"""What became of a run whose process ended without a word: the next who reads it says so."""

from collections.abc import Mapping

from utils import checkpoint_set
from utils.run_dir import RunDir
from utils.run_lock import owner


def died(run: RunDir, facts: Mapping[str, object]) -> str:
    """A sentence about a run that is running by its own account, though no process trains it; "" of any other."""
    if facts.get("status") != "running" or owner(run.path) is not None:
        return ""
    sidecar = checkpoint_set.facts_of(run.checkpoints / "last.ckpt")
    where = f"after its checkpoint at {sidecar['env_steps']:,} env steps" if sidecar else "before its first checkpoint"
    return f"{run.id} died: its process ended without a word {where}"
