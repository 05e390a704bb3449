"""Does PPO learn by fused_gpu what it learns by fused_cpu? Three variants, 20 seeds, by the rule that compares engines.

What is trained lies in docs/results/devices (lab/evidence/ways.py): who is stopped goes on where it was.
"""

from collections.abc import Iterator
from typing import Any

from lab.evidence.comparison import Comparison, difference, iqm_text
from lab.evidence.comparison import Found as Read
from lab.evidence.ways import WAYS
from lab.gpu.commands import runs_folder
from lab.gpu.parts import Found, Machine
from stride.utils.cores import cores

DEVICES = WAYS["devices"]
WANTED = {"cpu": "fused_cpu", "cuda": "fused_gpu"}  # the engine of each way


def check(machine: Machine, seconds: float) -> Iterator[Found]:
    """Variant by variant, those that learn soonest first."""
    seeds, failed = range(1, DEVICES.seeds + 1), 0
    for variant, changes in DEVICES.variants.items():
        with runs_folder():
            failed += DEVICES._replace(variants={variant: changes}).train_missing(seeds, max(1, cores() - 1))
        read = DEVICES.read()
        compared = DEVICES.compare(read)
        yield Found(
            f"{len(read)} of {len(DEVICES.variants)} variants learnt by both, {failed} seeds failed",
            {f"{name} {measure}": told(each) for (name, measure), each in compared.items()},
            [*wrong(compared, read), *([f"{failed} seeds failed"] if failed else [])],
        )


def told(found: Comparison) -> dict[str, Any]:
    """As people and files take it."""
    both = {"fused_cpu": iqm_text(found.first), "fused_gpu": iqm_text(found.second)}
    return {**both, "fused_gpu - fused_cpu": difference(found), "seeds": len(found.first), "same": found.same}


def wrong(compared: dict[tuple[str, str], Comparison], read: Read) -> list[str]:
    """What is different, and what other engines have learnt."""
    lines = [f"{variant} {measure} is different" for (variant, measure), each in compared.items() if not each.same]
    taken = {(name, way, record["engine"]) for name, files in read.items()
             for way in WANTED for record in files[way].finished()}  # fmt: skip
    return lines + [f"{name} on {way} was learnt by {engine}" for name, way, engine in sorted(taken)
                    if engine != WANTED[way]]  # fmt: skip
