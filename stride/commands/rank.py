"""Which rank of a training this process is, if several processes carry its shards; environment variables tell it."""

from collections.abc import Mapping
from typing import NamedTuple

VARIABLES = ("STRIDE_RANK", "STRIDE_WORLD_SIZE", "STRIDE_RANK_FILE")


class Rank(NamedTuple):
    """This process's number, the number of ranks, and the file by which they find each other ("": by MASTER_ADDR)."""

    number: int
    ranks: int
    file: str = ""


def rank_of(variables: Mapping[str, str]) -> Rank | None:
    """Return the rank that these environment variables give, None if this process trains alone.

    SLURM's tasks are ranks only if MASTER_ADDR is set, too; otherwise each task is a training of its own.
    """
    if VARIABLES[0] in variables:
        return Rank(int(variables[VARIABLES[0]]), int(variables[VARIABLES[1]]), variables[VARIABLES[2]])
    names = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS")
    if "TORCHELASTIC_RUN_ID" in variables:  # torchrun
        names = ("RANK", "WORLD_SIZE")
    elif "MASTER_ADDR" not in variables or int(variables.get(names[1], "1")) < 2:
        return None
    return Rank(int(variables[names[0]]), int(variables[names[1]]))


def is_worker(variables: Mapping[str, str]) -> bool:
    """Whether this process carries shards for rank 0, which alone has the run folder and the console."""
    rank = rank_of(variables)
    return rank is not None and rank.number > 0
