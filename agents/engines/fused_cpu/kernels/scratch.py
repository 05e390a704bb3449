"""The scratch of a thread by name: what a tile of samples leaves behind on its way through the nets.

Every kernel that has a tile asks here; nobody else knows an offset. TILE samples lie [TILE, floats] where a net reads
them, [floats, TILE] where neighbouring samples are wanted in neighbouring lanes. All are addresses.
"""

from typing import NamedTuple

from stride.agents.engines.fused_cpu.frame import ENTRIES, TILE, At
from stride.agents.engines.fused_cpu.kernels.calls import longs
from stride.agents.engines.plan.layout import LANES
from stride.utils.kernel_cache import njit


class Scratch(NamedTuple):
    """Of one thread; letters as in frame.py."""

    one: int  # [16] a 1.0, behind it zeros
    x: int  # [TILE, ROW] inputs
    hidden: int  # [TILE, HIDDEN_SIZE] a net's activations, layer behind layer
    outputs: int  # [OUTPUTS, TILE] of a head, then the slope of the loss there
    odds: int  # [A, TILE] probabilities
    taken: int  # [A, TILE] actions: int32 in the first row, or numbers
    allowed: int  # [A, TILE] 1 where an action is allowed
    actor: int  # [3, TILE] old log-probability, weight of the action, its share
    critic: int  # [3, TILE] old value, target, share
    above: int  # [TILE, WIDEST] slopes at a layer
    below: int  # [TILE, WIDEST] and at the one below it
    other_x: int  # [TILE, ROW] inputs at the next observation
    second_hidden: int  # [TILE, HIDDEN_SIZE] activations of another net
    actor_hidden: int  # [TILE, HIDDEN_SIZE] and of the actor
    target: int  # [TILE] of a value
    choice: int  # [TILE] int32 the best action
    log_prob: int  # [TILE]
    q: int  # [TILE] values of one critic, then the slope of the loss there
    other_q: int  # [TILE] and of the other
    slopes: int  # [A, TILE] of the first critic's value at the actions
    other_slopes: int  # [A, TILE] and of the other's
    end: int


@njit(inline="always")
def lay(begin: int, row: int, hidden: int, outputs: int, widest: int, actions: int) -> Scratch:
    """Where everything lies in the scratch that begins at `begin`, the sizes being floats of a sample.

    Every algorithm's parts, whichever runs. Host code asks it with `begin` 0 for how much that is.
    """
    tile = 4 * TILE
    x = begin + 4 * LANES
    activations = x + tile * row
    out = activations + tile * hidden
    odds = out + tile * outputs
    taken = odds + tile * actions
    allowed = taken + tile * actions
    actor = allowed + tile * actions
    critic = actor + 3 * tile
    above = critic + 3 * tile
    below = above + tile * widest
    other_x = below + tile * widest
    second = other_x + tile * row
    third = second + tile * hidden
    target = third + tile * hidden
    slopes = target + 5 * tile
    other_slopes = slopes + tile * actions
    return Scratch(
        begin, x, activations, out, odds, taken, allowed, actor, critic, above, below, other_x, second, third,
        target, target + tile, target + 2 * tile, target + 3 * tile, target + 4 * tile, slopes, other_slopes,
        other_slopes + tile * actions,
    )  # fmt: skip


@njit(inline="always")
def scratch_of(frame: int, thread: int) -> Scratch:
    """This thread's."""
    f = longs(frame, ENTRIES)
    begin = f[At.SCRATCH] + 4 * thread * f[At.SCRATCH_SIZE]
    return lay(begin, f[At.ROW], f[At.HIDDEN_SIZE], f[At.OUTPUTS], f[At.WIDEST], f[At.ACTIONS])


def scratch_floats(row: int, hidden: int, outputs: int, widest: int, actions: int) -> int:
    """Floats of a thread's scratch, in whole vectors."""
    return -(-lay.py_func(0, row, hidden, outputs, widest, actions).end // 4 // LANES) * LANES
