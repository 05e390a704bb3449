"""Whole episodes: the actor and compiled worlds side by side, step after step in one call; nothing is learnt from them.

A world that has had its episodes is neither looked at nor stepped again. Every thread plays its own worlds. A number
that is not finite ends a thread's playing where it stands, so that whoever asked finds it there.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stride.agents.engines.fused_cpu.frame import ENTRIES, TILE, At
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, call_kernel, floats, longs, put
from stride.agents.engines.fused_cpu.kernels.scratch import scratch_of
from stride.envs_fast.world import Simulation, Told
from stride.utils.kernel_cache import njit

F = np.float32
LARGEST = F(np.finfo(np.float32).max)
OBSERVATION, ACTION, REWARD, LAST, RETURN = range(1, 6)  # what is not finite, in the order of looking
STEP, WHAT, WORLD, TROUBLE = range(4)  # of a thread's trouble, and how many numbers that are


class Tally(NamedTuple):
    """What every world is to play, and has; its episodes lie from `first` on, in their order."""

    wanted: np.ndarray  # [N] int64
    found: np.ndarray  # [N] int64
    first: np.ndarray  # [N] int64
    began: np.ndarray  # [N] int64: at which step the running episode did
    returns: np.ndarray  # [E] float32
    lengths: np.ndarray  # [E] float32
    trouble: np.ndarray  # [threads, TROUBLE] int64; WHAT is 0 where there is none


class Match(NamedTuple):
    """What `play_episodes` plays on."""

    frame: int
    advance: int  # address of the worlds' kernel
    sampled: int  # 1: DRAWS holds a table for each step of a call; 0: none is read
    simulation: Simulation
    obs: np.ndarray  # [1, N, ...] float32 or int64: what is acted upon next
    action: np.ndarray  # [1, N] int64 or [1, N, A] float32
    told: Told  # of one step; its obs is the one above
    playing: np.ndarray  # [N] int32 from a thread's first world on: those of its worlds that still play
    given: np.ndarray  # [1, N, ...] like action: theirs side by side
    drawn: np.ndarray  # [N * DRAW] float32 likewise; zeros where nothing is sampled
    tally: Tally


@njit(**PIECE)
def leave_match(address: int, match: Match) -> None:
    """Put what is played at an address, where every thread finds it; the arrays must outlive the playing."""
    put(address, match)


@njit(**PIECE)
def play_episodes(matches: Sequence[Match], thread: int) -> None:
    """Steps [BEGIN, END) of a thread's share of the worlds, or fewer where all have had their episodes.

    Reads DRAWS [END - BEGIN, N, DRAW], PARAMETERS and TURNED.
    """
    match = matches[0]
    frame, obs, action, told, tally = match.frame, match.obs, match.action, match.told, match.tally
    f = longs(frame, ENTRIES)
    count = obs.shape[1]
    width, numbers, draw = obs.size // count, action.size // count, f[At.DRAW]
    seen, last, acted, given = obs.reshape(-1), told.final_obs.reshape(-1), action.reshape(-1), match.given.reshape(-1)
    mine, playing, drawn = scratch_of(frame, thread), match.playing, match.drawn
    lo, hi = thread * count // f[At.THREADS], (thread + 1) * count // f[At.THREADS]
    for t in range(f[At.BEGIN], f[At.END]):
        n = 0
        for i in range(lo, hi):
            if tally.found[i] < tally.wanted[i]:
                playing[lo + n] = i
                n += 1
        if n == 0 or _found_trouble(tally, thread, t, OBSERVATION, seen, width, playing, lo, n):
            return
        for start in range(lo, lo + n, TILE):
            m = min(TILE, lo + n - start)
            if match.sampled:
                table = floats(f[At.DRAWS] + 4 * (t - f[At.BEGIN]) * count * draw, count * draw)
                _gather(table, draw, playing, start, m, drawn)
            call(f[At.ENCODE], (frame, obs.ctypes.data, playing.ctypes.data, start, m, mine.x))
            call(f[At.FORWARD], (frame, 0, mine.x, mine.hidden, m, mine.outputs))
            noise, chosen = drawn.ctypes.data + 4 * start * draw, given.ctypes.data + given.itemsize * start * numbers
            call(f[At.SAMPLE], (frame, mine.outputs, mine.odds, noise, m, chosen, mine.log_prob))
            for s in range(start, start + m):
                for k in range(numbers):
                    acted[playing[s] * numbers + k] = given[s * numbers + k]
        if _found_trouble(tally, thread, t, ACTION, acted, numbers, playing, lo, n):
            return
        s = lo
        while s < lo + n:  # a stretch of neighbours in one call
            begin = np.int64(playing[s])
            end = begin + 1
            s += 1
            while s < lo + n and playing[s] == end:
                end += 1
                s += 1
            call_kernel(match.advance, (match.simulation, begin, end, action, told))
        if _found_trouble(tally, thread, t, REWARD, told.reward.reshape(-1), 1, playing, lo, n):
            return
        for s in range(lo, lo + n):
            i = playing[s]
            if told.terminated[0, i] | told.truncated[0, i]:
                if _found_trouble(tally, thread, t, LAST, last, width, playing, s, 1):
                    return
                if _found_trouble(tally, thread, t, RETURN, told.episode_return.reshape(-1), 1, playing, s, 1):
                    return
                place = tally.first[i] + tally.found[i]
                tally.returns[place], tally.lengths[place] = told.episode_return[0, i], told.episode_length[0, i]
                tally.found[i] += 1
                tally.began[i] = t + 1


@njit(inline="always")
def _gather(table: np.ndarray, width: int, playing: np.ndarray, start: int, count: int, out: np.ndarray) -> None:
    """The rows of those that play, side by side."""
    for s in range(start, start + count):
        for k in range(width):
            out[s * width + k] = table[playing[s] * width + k]


@njit(inline="always")
def _found_trouble(
    tally: Tally, thread: int, t: int, what: int, numbers: np.ndarray, width: int, playing: np.ndarray, start: int,
    count: int,
) -> bool:  # fmt: skip
    """Whether a number of playing[start : start + count] is not finite; the first such world is noted."""
    for s in range(start, start + count):
        for k in range(width):
            if not abs(numbers[playing[s] * width + k]) <= LARGEST:
                noted = tally.trouble
                noted[thread, STEP], noted[thread, WHAT], noted[thread, WORLD] = t, what, playing[s]
                return True
    return False
