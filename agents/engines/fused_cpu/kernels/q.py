"""The gradient of DQN, a tile of samples at a time: values, targets, slopes of the loss; and epsilon-greedy actions.

Formulas: agents/dqn.py. Tests compare every slope with torch's autograd of these.
"""

import numpy as np

from stride.agents.engines.fused_cpu.frame import TILE, FrameFields, fields_at, live_at, scratch_of
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, floats, ints, longs
from stride.agents.engines.plan.layout import LANES
from stride.agents.engines.plan.numbers import SUMS, Sum
from stride.utils.kernel_cache import njit

F = np.float32
ONLINE, TARGET = 0, 1  # numbers of the nets


@njit(inline="always")
def _join(outputs: np.ndarray, actions: int, n: int) -> None:
    """Replace advantages [A, TILE] by values of actions: state's value + advantage - mean advantage.

    The state's value is row A of the outputs.
    """
    for s in range(n):
        total = F(0.0)
        for k in range(actions):
            total += outputs[k * TILE + s]
        shift = outputs[actions * TILE + s] - total / F(actions)
        for k in range(actions):
            outputs[k * TILE + s] += shift


@njit(inline="always")
def _best(outputs: np.ndarray, actions: int, n: int, out: np.ndarray) -> None:
    """Write to out[s] the action with the highest value; the first one where several are equal."""
    highest = np.empty(TILE, np.float32)
    for s in range(n):
        highest[s], out[s] = outputs[s], 0
    for k in range(1, actions):
        for s in range(n):
            better = outputs[k * TILE + s] > highest[s]
            out[s] = np.int32(k) if better else out[s]
            highest[s] = outputs[k * TILE + s] if better else highest[s]


@njit(**PIECE)
def q_gradient(frame: int, thread: int, part: int, number: int, begin: int, end: int) -> None:
    """Add the gradient of the samples [begin, end) of update `number` to this part's `partial`, statistics to `sums`.

    Reads place, following, reward, discount of these transitions; obs, final_obs and action at the rows they name.
    """
    f = fields_at(frame)
    scratch, actions, size = scratch_of(f, thread), f.actions, f.minibatch
    x, hidden, outputs = scratch.x, scratch.hidden, scratch.outputs
    z = floats(outputs, (actions + 1) * TILE)
    target, choice, taken = floats(scratch.target, TILE), ints(scratch.choice, TILE), ints(scratch.taken, TILE)
    sums = floats(f.sums + 4 * part * SUMS * TILE, SUMS * TILE)
    for start in range(begin, end, TILE):
        count = min(TILE, end - start)
        first, n = number * size + start, (count + LANES - 1) // LANES * LANES
        call(f.encode, (frame, f.obs, f.following, first, count, x))
        if f.double:
            call(f.forward, (frame, ONLINE, x, hidden, n, outputs))
            _best(z, actions, n, choice)  # also without _join: the state's value is the same for all actions
        call(f.forward, (frame, TARGET, x, hidden, n, outputs))
        if f.dueling:
            _join(z, actions, n)
        if not f.double:
            _best(z, actions, n, choice)
        reward, discount = floats(f.reward + 4 * first, count), floats(f.discount + 4 * first, count)
        place = ints(f.place + 4 * first, count)
        for s in range(count):
            target[s] = reward[s] + discount[s] * z[choice[s] * TILE + s]
            taken[s] = np.int32(longs(f.action + 8 * np.int64(place[s]), 1)[0])
        call(f.encode, (frame, f.obs, f.place, first, count, x))
        call(f.forward, (frame, ONLINE, x, hidden, n, outputs))
        if f.dueling:
            _join(z, actions, n)
        _slopes(f, z, target, taken, count, n, sums)
        call(f.backward, (frame, thread, part, ONLINE, x, hidden, n, outputs))


@njit(inline="always")
def _slopes(
    f: FrameFields, z: np.ndarray, target: np.ndarray, taken: np.ndarray, count: int, n: int, sums: np.ndarray
) -> None:
    """Replace values [A, TILE] by the slopes of the Huber loss at the actions taken; lanes behind `count` get 0.

    The slope is -fraction clip(target - q, +-limit). With dueling, q = v + a - mean a: v and the a taken get the slope,
    and slope / A is subtracted from every a.
    """
    actions, limit = f.actions, F(live_at(f.live).huber)
    fraction = F(1.0) / F(f.minibatch)
    for s in range(n):
        chosen, slope = np.int64(0), F(0.0)
        if s < count:
            chosen = np.int64(taken[s])
            q = z[chosen * TILE + s]
            error = target[s] - q
            distance = abs(error)
            small = limit if distance > limit else distance
            slope = fraction * (limit if -error > limit else -limit if -error < -limit else -error)
            sums[Sum.VALUE_LOSS * TILE + s] += fraction * small * (distance - F(0.5) * small)
            sums[Sum.Q * TILE + s] += fraction * q
            sums[Sum.TARGET * TILE + s] += fraction * target[s]
            sums[Sum.ERROR * TILE + s] += fraction * distance
        for k in range(actions):
            z[k * TILE + s] = F(0.0)
        z[chosen * TILE + s] = slope
        if f.dueling:
            for k in range(actions):
                z[k * TILE + s] -= slope / F(actions)
            z[actions * TILE + s] = slope


@njit(**PIECE)
def act_by_value(frame: int, thread: int, draws: int, n: int, action: int, log_prob: int) -> None:
    """Write epsilon-greedy actions int64 [n], as QPolicy.act does; draws are uniforms [n, 2].

    Where the first uniform is below epsilon, the second one chooses a random action; else it is the best one.
    """
    f = fields_at(frame)
    actions, epsilon = f.actions, F(live_at(f.live).epsilon_greedy)
    uniform, out = floats(draws, 2 * n), longs(action, n)
    choice = np.empty(TILE, np.int32)
    _best(floats(scratch_of(f, thread).outputs, actions * TILE), actions, n, choice)
    for s in range(n):
        random_action = min(int(uniform[2 * s + 1] * F(actions)), actions - 1)
        out[s] = random_action if uniform[2 * s] < epsilon else np.int64(choice[s])
