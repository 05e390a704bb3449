"""Which process of a training this is, where several carry its shards; the environment says so. No torch."""

from collections.abc import Mapping
from typing import NamedTuple

OURS = ("STRIDE_RANK", "STRIDE_RANKS", "STRIDE_MEETING")


class Rank(NamedTuple):
    """Which process of how many this is, and where they meet: "" where torchrun said so."""

    number: int
    ranks: int
    meeting: str = ""


def rank_of(variables: Mapping[str, str]) -> Rank | None:
    """The process that was started with these environment variables; None: it is alone."""
    if OURS[0] in variables:
        return Rank(int(variables[OURS[0]]), int(variables[OURS[1]]), variables[OURS[2]])
    if "TORCHELASTIC_RUN_ID" in variables:  # torchrun
        return Rank(int(variables["RANK"]), int(variables["WORLD_SIZE"]))
    return None


def follows(variables: Mapping[str, str]) -> bool:
    """Whether another process leads the training."""
    rank = rank_of(variables)
    return rank is not None and rank.number > 0
