"""DQN's samples, a tile at a time: values, targets, the slope of the loss; and how the policy acts.

The formulas are those of agents/dqn.py, whose autograd is the test of every slope here.
"""

import numpy as np

from stride.agents.engines.fused_cpu.frame import ENTRIES, LIVES, SUMS, TILE, At, Kernels
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, doubles, floats, ints, longs
from stride.agents.engines.fused_cpu.kernels.scratch import scratch_of
from stride.agents.engines.plan.layout import LANES
from stride.agents.engines.plan.numbers import Live, Sum
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
    most = np.empty(TILE, np.float32)
    for s in range(n):
        most[s], out[s] = outputs[s], 0
    for k in range(1, actions):
        for s in range(n):
            better = outputs[k * TILE + s] > most[s]
            out[s] = np.int32(k) if better else out[s]
            most[s] = outputs[k * TILE + s] if better else most[s]


@njit(**PIECE)
def q_gradient(frame: int, thread: int, part: int, number: int, begin: int, end: int) -> None:
    """Add the gradient of the samples [begin, end) of update `number` to this part's PARTIAL, what is told to its SUMS.

    Reads PLACE, FOLLOWING, REWARD, DISCOUNT of these transitions, and OBS, FINAL_OBS, ACTION where they say.
    """
    f = longs(frame, ENTRIES)
    actions, size = f[At.ACTIONS], f[At.MINIBATCH]
    mine = scratch_of(frame, thread)
    x, hidden, outputs = mine.x, mine.hidden, mine.outputs
    gradient = f[At.PARTIAL] + 4 * part * f[At.SIZE]
    z = floats(outputs, (actions + 1) * TILE)
    target, choice, taken = floats(mine.target, TILE), ints(mine.choice, TILE), ints(mine.taken, TILE)
    sums = floats(f[At.SUMS] + 4 * part * SUMS * TILE, SUMS * TILE)
    for start in range(begin, end, TILE):
        count = min(TILE, end - start)
        first, n = number * size + start, (count + LANES - 1) // LANES * LANES
        call(f[At.ENCODE], (frame, f[At.OBS], f[At.FOLLOWING], first, count, x))
        if f[At.DOUBLE]:
            call(f[At.FORWARD], (frame, ONLINE, x, hidden, n, outputs))
            _best(z, actions, n, choice)  # dueling or not: the state's value shifts all actions alike
        call(f[At.FORWARD], (frame, TARGET, x, hidden, n, outputs))
        if f[At.DUELING]:
            _join(z, actions, n)
        if not f[At.DOUBLE]:
            _best(z, actions, n, choice)
        reward, discount = floats(f[At.REWARD] + 4 * first, count), floats(f[At.DISCOUNT] + 4 * first, count)
        place = ints(f[At.PLACE] + 4 * first, count)
        for s in range(count):
            target[s] = reward[s] + discount[s] * z[choice[s] * TILE + s]
            taken[s] = np.int32(longs(f[At.ACTION] + 8 * np.int64(place[s]), 1)[0])
        call(f[At.ENCODE], (frame, f[At.OBS], f[At.PLACE], first, count, x))
        call(f[At.FORWARD], (frame, ONLINE, x, hidden, n, outputs))
        if f[At.DUELING]:
            _join(z, actions, n)
        _slopes(frame, z, target, taken, count, n, sums)
        call(f[At.BACKWARD], (frame, ONLINE, x, hidden, n, outputs, gradient, mine.one, mine.above, mine.below))


@njit(inline="always")
def _slopes(
    frame: int, z: np.ndarray, target: np.ndarray, taken: np.ndarray, count: int, n: int, sums: np.ndarray
) -> None:
    """Values [A, TILE] become the slope of the Huber loss of the actions taken; filling beyond `count` has none.

    It is -share clip(target - q, +-limit). Dueling, q = v + a - mean a: it goes to v and to the a taken, and 1 / A of
    it is taken from every a.
    """
    f = longs(frame, ENTRIES)
    actions, limit = f[At.ACTIONS], F(doubles(f[At.LIVE], LIVES)[Live.HUBER])
    share = F(1.0) / F(f[At.MINIBATCH])
    for s in range(n):
        chosen, slope = np.int64(0), F(0.0)
        if s < count:
            chosen = np.int64(taken[s])
            q = z[chosen * TILE + s]
            error = target[s] - q
            far = abs(error)
            small = limit if far > limit else far
            slope = share * (limit if -error > limit else -limit if -error < -limit else -error)
            sums[Sum.VALUE_LOSS * TILE + s] += share * small * (far - F(0.5) * small)
            sums[Sum.Q * TILE + s] += share * q
            sums[Sum.TARGET * TILE + s] += share * target[s]
            sums[Sum.ERROR * TILE + s] += share * far
        for k in range(actions):
            z[k * TILE + s] = F(0.0)
        z[chosen * TILE + s] = slope
        if f[At.DUELING]:
            for k in range(actions):
                z[k * TILE + s] -= slope / F(actions)
            z[actions * TILE + s] = slope


@njit(**PIECE)
def act_by_value(frame: int, outputs: int, spare: int, draws: int, n: int, actions_at: int, log_prob: int) -> None:
    """The best action, or any where the first uniform of [n, 2] says so; as QPolicy.act."""
    f = longs(frame, ENTRIES)
    actions, random = f[At.ACTIONS], F(doubles(f[At.LIVE], LIVES)[Live.EPSILON_GREEDY])
    uniform, out = floats(draws, 2 * n), longs(actions_at, n)
    choice = np.empty(TILE, np.int32)
    _best(floats(outputs, actions * TILE), actions, n, choice)
    for s in range(n):
        any_of = min(int(uniform[2 * s + 1] * F(actions)), actions - 1)
        out[s] = any_of if uniform[2 * s] < random else np.int64(choice[s])


OWN: dict[str, Kernels] = {"dqn": {At.GRADIENT_PART: q_gradient, At.SAMPLE: act_by_value}}
