"""Playing: the actor, its draws and the compiled worlds, step after step in one call, straight into the memory's table.

Every thread plays its own worlds; nothing is shared, so there is nothing to wait for.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stride.agents.engines.fused_cpu.frame import ENTRIES, TILE, At
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, call_kernel, longs, put, step_of
from stride.agents.engines.fused_cpu.kernels.scratch import scratch_of
from stride.envs_fast.world import Simulation, Told
from stride.utils.kernel_cache import njit


class Table(NamedTuple):
    """The memory's, a row for each step."""

    obs: np.ndarray  # [T, N, ...] float32 or int64
    action: np.ndarray  # [T, N] int64 or [T, N, A] float32
    reward: np.ndarray  # [T, N] float32
    terminated: np.ndarray  # [T, N] uint8
    truncated: np.ndarray  # [T, N] uint8
    is_first: np.ndarray  # [T, N] uint8
    slot: np.ndarray  # [T, N] int64: where the final observation of the running episode will lie


class Instant(NamedTuple):
    """Where the worlds stand between two rows, as the collector and the memory know it."""

    next_obs: np.ndarray  # [1, N, ...]
    final_obs: np.ndarray  # [S, N, ...] where a time limit cut
    ended_obs: np.ndarray  # [1, N, ...] ours: the last observations of episodes that ended in this step
    slot: np.ndarray  # [N] int64
    fresh: np.ndarray  # [N] uint8: the next row opens an episode


class Game(NamedTuple):
    """What `play` plays on."""

    frame: int
    advance: int  # address of the worlds' kernel, which is called one step at a time (envs_fast/world.py)
    simulation: Simulation
    table: Table
    now: Instant
    episode_return: np.ndarray  # [T, N] float32, where an episode ended
    episode_length: np.ndarray  # [T, N] float32


@njit(**PIECE)
def leave(address: int, game: Game) -> None:
    """Put what `play` is to know at an address, where every thread finds it; the arrays must outlive the playing."""
    put(address, game)


@njit(**PIECE)
def play(games: Sequence[Game], thread: int) -> None:
    """Steps [BEGIN, END) of a thread's share of the worlds; `games` points to the one that is played.

    Reads DRAWS, PARAMETERS and TURNED; writes the table, LOG_PROB and whatever an instant consists of.
    """
    game = games[0]
    frame, now = game.frame, game.now
    obs, action, reward, terminated, truncated, is_first, slots = game.table
    next_obs, slot, fresh = now.next_obs, now.slot, now.fresh
    f = longs(frame, ENTRIES)
    steps, count = obs.shape[0], obs.shape[1]
    numbers = next_obs.size // count  # of one observation
    table, latest = obs.reshape(-1), next_obs.reshape(-1)
    finals, last = now.final_obs.reshape(-1), now.ended_obs.reshape(-1)
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
        # the worlds write what is seen next into the next row itself, behind the last to where the next rollout begins
        following = step_of(obs, t + 1) if t + 1 < steps else next_obs
        call_kernel(
            game.advance,
            (
                game.simulation, lo, hi, step_of(action, t),
                Told(
                    following, step_of(reward, t), step_of(terminated, t), step_of(truncated, t), now.ended_obs,
                    step_of(game.episode_return, t), step_of(game.episode_length, t),
                ),
            ),
        )  # fmt: skip
        for i in range(lo, hi):
            fresh[i] = terminated[t, i] | truncated[t, i]
            if truncated[t, i]:
                for k in range(numbers):
                    finals[(slot[i] * count + i) * numbers + k] = last[i * numbers + k]
                slot[i] = (slot[i] + 1) % now.final_obs.shape[0]


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
