"""DQN's samples, a tile at a time: values, targets, the slope of the loss; and how the policy acts.

The formulas are those of agents/dqn.py, whose autograd is the test of every slope here.
"""

import numpy as np

from stride.agents.engines.fused_cpu.frame import TILE, FrameFields, fields_at, live_at, scratch_of
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, floats, ints, longs
from stride.agents.engines.plan.layout import LANES
from stride.agents.engines.plan.numbers import SUMS, Sum
from stride.utils.kernel_cache import njit

F = np.float32
ONLINE, TARGET = 0, 1  # nets


@njit(inline="always")
def _join(outputs: np.ndarray, actions: int, n: int) -> None:
    """Advantages and the value of the state behind them to values of actions: value + advantage - their mean."""
    for s in range(n):
        total = F(0.0)
        for k in range(actions):
            total += outputs[k * TILE + s]
        shift = outputs[actions * TILE + s] - total / F(actions)
        for k in range(actions):
            outputs[k * TILE + s] += shift


@njit(inline="always")
def _best(outputs: np.ndarray, actions: int, n: int, out: np.ndarray) -> None:
    """out[s] = the first of the actions with the highest value."""
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

    Reads place, following, reward, discount of these transitions, and obs, final_obs, action where they say.
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
            _best(z, actions, n, choice)  # dueling or not: the state's value shifts all actions alike
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
    """Values [A, TILE] become the slope of the Huber loss of the actions taken; filling beyond `count` has none.

    It is -fraction clip(target - q, +-limit). Dueling, q = v + a - mean a: it goes to v and to the a taken, and 1 / A
    of it is taken from every a.
    """
    actions, limit = f.actions, F(live_at(f.live).huber)
    fraction = F(1.0) / F(f.minibatch)
    for s in range(n):
        chosen, slope = np.int64(0), F(0.0)
        if s < count:
            chosen = np.int64(taken[s])
            q = z[chosen * TILE + s]
            error = target[s] - q
            far = abs(error)
            small = limit if far > limit else far
            slope = fraction * (limit if -error > limit else -limit if -error < -limit else -error)
            sums[Sum.VALUE_LOSS * TILE + s] += fraction * small * (far - F(0.5) * small)
            sums[Sum.Q * TILE + s] += fraction * q
            sums[Sum.TARGET * TILE + s] += fraction * target[s]
            sums[Sum.ERROR * TILE + s] += fraction * far
        for k in range(actions):
            z[k * TILE + s] = F(0.0)
        z[chosen * TILE + s] = slope
        if f.dueling:
            for k in range(actions):
                z[k * TILE + s] -= slope / F(actions)
            z[actions * TILE + s] = slope


@njit(**PIECE)
def act_by_value(frame: int, thread: int, draws: int, n: int, action: int, log_prob: int) -> None:
    """The best action, or any where the first uniform of draws [n, 2] says so; as QPolicy.act."""
    f = fields_at(frame)
    actions, epsilon = f.actions, F(live_at(f.live).epsilon_greedy)
    uniform, out = floats(draws, 2 * n), longs(action, n)
    choice = np.empty(TILE, np.int32)
    _best(floats(scratch_of(f, thread).outputs, actions * TILE), actions, n, choice)
    for s in range(n):
        random_action = min(int(uniform[2 * s + 1] * F(actions)), actions - 1)
        out[s] = random_action if uniform[2 * s] < epsilon else np.int64(choice[s])
