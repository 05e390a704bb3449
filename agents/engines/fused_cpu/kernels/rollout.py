"""Playing: the actor, its draws and the compiled worlds, step after step in one call, straight into the memory's table.

Every thread plays its own worlds; nothing is shared, so there is nothing to wait for.
"""

from typing import Any

import numpy as np

from agents.engines.fused_cpu.frame import ENTRIES, TILE, At
from agents.engines.fused_cpu.kernels.calls import PIECE, call, call_kernel, longs, put, step_of
from agents.engines.fused_cpu.kernels.scratch import scratch_of
from utils.kernel_cache import njit


@njit(**PIECE)
def leave(address: int, game: Any) -> None:
    """Put what `play` is to know at an address, where every thread finds it; the arrays must outlive the playing."""
    put(address, game)


@njit(**PIECE)
def play(game: Any, thread: int) -> None:
    """Steps [BEGIN, END) of a thread's share of the worlds.

    `game` points to a tuple: the frame; the worlds' kernel, called one step at a time with (*worlds, first, last + 1,
    *rest, ...); the table: obs, action, reward, terminated, truncated, is_first, slots [T, N, ..], final_obs
    [S, N, ..]; of the collector and memory: next_obs [1, N, ..], slot and fresh (is_first) [N]; ours: ended_obs
    [1, N, ..], episode_return and episode_length [T, N].
    """
    frame, advance, worlds, rest, table_, others, told = game[0]
    obs, action, reward, terminated, truncated, is_first, slots = table_
    next_obs, final_obs, ended_obs, slot, fresh = others
    episode_return, episode_length = told
    f = longs(frame, ENTRIES)
    steps, count = obs.shape[0], obs.shape[1]
    numbers = next_obs.size // count  # of one observation
    table, latest = obs.reshape(-1), next_obs.reshape(-1)
    finals, last = final_obs.reshape(-1), ended_obs.reshape(-1)
    mine = scratch_of(frame, thread)
    x, hidden, outputs, odds = mine.x, mine.hidden, mine.outputs, mine.odds
    lo, hi = thread * count // f[At.THREADS], (thread + 1) * count // f[At.THREADS]
    for t in range(f[At.BEGIN], f[At.END]):
        if t == 0:
            for k in range(lo * numbers, hi * numbers):
                table[k] = latest[k]
        for i in range(lo, hi):
            is_first[t, i], slots[t, i] = fresh[i], slot[i]
        for start in range(lo, hi, TILE):
            n = min(TILE, hi - start)
            call(f[At.ENCODE], (frame, obs.ctypes.data, 0, t * count + start, n, x))
            call(f[At.FORWARD], (frame, 0, x, hidden, n, outputs))
            at = t * count + start
            given = f[At.DRAWS] + 4 * at * f[At.DRAW]
            taken = action.ctypes.data + action.itemsize * at * (action.size // (steps * count))
            call(f[At.SAMPLE], (frame, outputs, odds, given, n, taken, f[At.LOG_PROB] + 4 * at))
        following = step_of(obs, t + 1) if t + 1 < steps else next_obs
        call_kernel(
            advance,
            (
                *worlds, lo, hi, *rest, step_of(action, t), following, step_of(reward, t), step_of(terminated, t),
                step_of(truncated, t), ended_obs, step_of(episode_return, t), step_of(episode_length, t),
            ),
        )  # fmt: skip
        for i in range(lo, hi):
            fresh[i] = terminated[t, i] | truncated[t, i]
            if truncated[t, i]:
                for k in range(numbers):
                    finals[(slot[i] * count + i) * numbers + k] = last[i * numbers + k]
                slot[i] = (slot[i] + 1) % final_obs.shape[0]


@njit(**PIECE)
def note_episodes(
    terminated: np.ndarray, truncated: np.ndarray, returns: np.ndarray, lengths: np.ndarray, ring: np.ndarray,
    count: int,
) -> int:  # fmt: skip
    """Write the episodes that ended in this rollout to the window's ring [2, W + 1]; how many have ended so far."""
    lost, cut = terminated.reshape(-1), truncated.reshape(-1)
    gained, lasted = returns.reshape(-1), lengths.reshape(-1)
    for i in range(lost.size):
        if lost[i] | cut[i]:
            place = count % (ring.shape[1] - 1)
            ring[0, place], ring[1, place] = gained[i], lasted[i]
            count += 1
    return count
