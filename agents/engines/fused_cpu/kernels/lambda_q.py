"""The kernels of PQN: values of the best actions, lambda-returns as targets, and the gradient of the loss.

Formulas: agents/pqn.py and agents/returns.py. Tests compare every slope with torch's autograd of these.
"""

import numpy as np

from stride.agents.engines.fused_cpu.frame import TILE, fields_at, live_at, scratch_of
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, doubles, flags, floats, ints, longs
from stride.agents.engines.plan.layout import LANES
from stride.agents.engines.plan.numbers import SUMS, Sum
from stride.utils.kernel_cache import njit

F = np.float32


@njit(**PIECE)
def best_values(frame: int, thread: int, obs: int, rows: int, out: int) -> None:
    """Write the best action's value of `rows` observations at `obs` to out [rows]; threads divide the tiles."""
    f = fields_at(frame)
    scratch, result, units = scratch_of(f, thread), floats(out, rows), floats(f.units, 2)
    for start in range(thread * TILE, rows, f.threads * TILE):
        count = min(TILE, rows - start)
        padded = (count + LANES - 1) // LANES * LANES
        call(f.encode, (frame, obs, 0, start, count, scratch.x))
        call(f.forward, (frame, 0, scratch.x, scratch.hidden, padded, scratch.outputs))
        q = floats(scratch.outputs, f.actions * TILE)
        for s in range(count):
            result[start + s] = q[s]
        for k in range(1, f.actions):
            for s in range(count):
                value = q[k * TILE + s]
                # no comparison with NaN is true, but a NaN must reach the result
                higher = (value > result[start + s]) | (value != value)
                result[start + s] = value if higher else result[start + s]
        for s in range(count):
            result[start + s] = result[start + s] * units[1] + units[0]


@njit(**PIECE)
def lambda_returns(frame: int, first: int, last: int) -> None:
    """Write the targets of the worlds [first, last): G_t = r_t + gamma ((1 - lambda) V_t+1 + lambda G_t+1).

    Where the episode terminated, G_t = r_t. Where it was truncated, and in the last row, G_t = r_t + gamma V_t+1.
    Reads reward, value, final_value, slot, terminated, truncated; writes target.
    """
    f = fields_at(frame)
    steps, worlds, live = f.steps, f.worlds, live_at(f.live)
    rows = steps * worlds
    gamma, decay = F(live.gamma), F(live.gae_lambda)
    reward, value, target = floats(f.reward, rows), floats(f.value, rows + worlds), floats(f.target, rows)
    terminated, truncated = flags(f.terminated, rows), flags(f.truncated, rows)
    finals, slot = floats(f.final_value, f.slots * worlds), longs(f.slot, rows)
    for i in range(first, last):
        later_return = value[rows + i]
        for t in range(steps - 1, -1, -1):
            r = t * worlds + i
            following = value[r + worlds]
            if truncated[r]:
                following = later_return = finals[slot[r] * worlds + i]
            elif terminated[r]:
                following = later_return = F(0.0)
            later_return = reward[r] + gamma * (following + decay * (later_return - following))
            target[r] = later_return


@njit(**PIECE)
def gradient_part(frame: int, thread: int, part: int, order: int, begin: int, end: int, weighing: int) -> None:
    """Add the gradient of the rows order[begin:end] to this part's `partial`, and their statistics to its `sums`.

    Reads obs, action and target. `weighing` is the address of float64 [3]; the last one is 1 / rows of the minibatch.
    The loss is (target - q)^2 / 2 of the action taken.
    """
    f = fields_at(frame)
    scratch, actions, rows = scratch_of(f, thread), f.actions, f.steps * f.worlds
    fraction = F(doubles(weighing, 3)[2])
    index, target, action = ints(order, rows), floats(f.target, rows), longs(f.action, rows)
    z = floats(scratch.outputs, actions * TILE)
    sums = floats(f.sums + 4 * part * SUMS * TILE, SUMS * TILE)
    for start in range(begin, end, TILE):
        count = min(TILE, end - start)
        padded = (count + LANES - 1) // LANES * LANES
        call(f.encode, (frame, f.obs, order, start, count, scratch.x))
        call(f.forward, (frame, 0, scratch.x, scratch.hidden, padded, scratch.outputs))
        for s in range(padded):  # filling has no slope
            chosen, slope = np.int64(0), F(0.0)
            if s < count:
                row = index[start + s]
                chosen = action[row]
                q = z[chosen * TILE + s]
                error = target[row] - q
                slope = -fraction * error
                sums[Sum.VALUE_LOSS * TILE + s] += fraction * F(0.5) * error * error
                sums[Sum.Q * TILE + s] += fraction * q
                sums[Sum.TARGET * TILE + s] += fraction * target[row]
                sums[Sum.ERROR * TILE + s] += fraction * abs(error)
            for k in range(actions):
                z[k * TILE + s] = F(0.0)
            z[chosen * TILE + s] = slope
        call(f.backward, (frame, thread, part, 0, scratch.x, scratch.hidden, padded, scratch.outputs))
