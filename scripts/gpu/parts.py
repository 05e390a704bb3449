"""What a GPU is asked, in this order: a module of this folder each, whose `check` answers, and its seconds.

Nothing heavy is imported here: a part is loaded when its turn comes, and one that cannot be stops no other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

PARTS: dict[str, float] = {  # at most so many seconds, as long as the whole has any left
    "facts": 15,
    "hashes": 45,
    "rollouts": 25,
    "returns": 10,
    "replays": 30,
    "halves": 20,
    "waits": 20,
    "resume": 60,
    "crossing": 60,
    "solving": 120,
    "speed": 175,
}
ROUNDING = 1e-3  # of weights: sums in another order stay within; a number that a graph has frozen leads further


class Machine(NamedTuple):
    """Where the parts run; tests hand in the CPU, the host's compiler, and want it small."""

    device: str = "cuda:0"
    compile: Callable[..., Any] | None = None
    """who makes kernels of a source (`utils.device_source.Compile`); None: CuPy"""
    engines: tuple[str, ...] = ("eager", "graphed")
    graph: Callable[[Any], None] | None = None
    """who makes an agent's engine `graphed` where there are no CUDA graphs; None: `build_agent`"""
    small: bool = False


class Found(NamedTuple):
    """What a part knows so far: each replaces the one before."""

    line: str
    """for people"""
    figures: Mapping[str, Any]
    """for the file"""
    wrong: Sequence[str] | None = None
    """a line for whatever is not as it must be; None where nothing can be wrong"""


Check = Callable[[Machine, float], Iterator[Found]]  # on this machine, in so many seconds


def load(name: str) -> Check:
    """What stands behind a part's name."""
    check: Check = import_module(f"scripts.gpu.{name}").check
    return check
