"""Which rank of a training this process is, where several carry its shards; the environment says so. No torch."""

from collections.abc import Mapping
from typing import NamedTuple

VARIABLES = ("STRIDE_RANK", "STRIDE_WORLD_SIZE", "STRIDE_RANK_FILE")


class Rank(NamedTuple):
    """Which of how many processes this is, and the file in which they find each other: "" where MASTER_ADDR says it."""

    number: int
    ranks: int
    file: str = ""


def rank_of(variables: Mapping[str, str]) -> Rank | None:
    """The rank of a process that was started with these environment variables; None: it is alone.

    SLURM's tasks are ranks only where MASTER_ADDR is set, too: without it each is a training of its own.
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
    """Whether this process carries shards for rank 0, which has the run folder and the console."""
    rank = rank_of(variables)
    return rank is not None and rank.number > 0
