"""What a GPU is asked, in three parts: checks in this order, a module of this folder each, and their seconds.

Nothing heavy is imported here: a check is loaded when its turn comes, and one that cannot be stops no other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

PARTS: dict[str, dict[str, float]] = {  # at most so many seconds, as long as the whole part has any left
    "hashes": {
        "facts": 15,
        "hashes": 50,
        "rollouts": 80,
        "returns": 10,
        "replays": 60,
        "halves": 20,
        "waits": 40,
        "resume": 120,
        "crossing": 120,
    },
    "learn": {"facts": 15, "solving": 125, "learning": 385},
    "speed": {"facts": 15, "speed": 360, "kernels": 150},
}
ROUNDING = 1e-3  # of weights: sums in another order stay within; a number that a graph has frozen leads further


class Machine(NamedTuple):
    """Where the checks run; tests hand in the CPU, the host's compiler, and want it small."""

    device: str = "cuda:0"
    compile: Callable[..., Any] | None = None
    """who makes kernels of a source (`utils.device_source.Compile`); None: CuPy"""
    engines: tuple[str, ...] = ("eager", "graphed", "fused_gpu")
    plug: Callable[[Any, str], None] | None = None
    """who gives an agent one of these but eager where there are no CUDA graphs; None: `build_agent`"""
    small: bool = False


class Found(NamedTuple):
    """What a check knows so far: each replaces the one before."""

    line: str
    """for people"""
    figures: Mapping[str, Any]
    """for the file"""
    wrong: Sequence[str] | None = None
    """a line for whatever is not as it must be; None where nothing can be wrong"""


Check = Callable[[Machine, float], Iterator[Found]]  # on this machine, in so many seconds


def load(name: str) -> Check:
    """What stands behind a check's name."""
    check: Check = import_module(f"lab.gpu.{name}").check
    return check
