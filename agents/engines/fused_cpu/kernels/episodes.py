"""The kernel that plays complete episodes for evaluation: the actor and compiled environments, many steps in one call.

Each thread plays its own worlds. A world that has finished its episodes is neither checked nor stepped again. Where a
number is not finite, the thread notes it and stops at once, so that ../episodes.py can report it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stride.agents.engines.fused_cpu.frame import TILE, fields_at, scratch_of
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, call_kernel, floats, put
from stride.envs_fast.world import Simulation, StepResults
from stride.utils.kernel_cache import njit

F = np.float32
LARGEST_FLOAT = F(np.finfo(np.float32).max)
# kinds of non-finite numbers, in the order in which they are checked; 0 is none
OBSERVATION, ACTION, REWARD, FINAL_OBSERVATION, RETURN = range(1, 6)
STEP, KIND, WORLD, NOTE_COLUMNS = range(4)  # columns of EpisodeTally.non_finite, and how many there are


class EpisodeTally(NamedTuple):
    """Counts of the episodes that each world must play and has played, and the results of all E episodes.

    World i's episodes are entries first[i] to first[i] + wanted[i] - 1 of the results, in the order of playing.
    """

    wanted: np.ndarray  # [N] int64
    done: np.ndarray  # [N] int64
    first: np.ndarray  # [N] int64
    start_step: np.ndarray  # [N] int64: the step at which the running episode started
    returns: np.ndarray  # [E] float32
    lengths: np.ndarray  # [E] float32, in steps
    non_finite: np.ndarray  # [threads, NOTE_COLUMNS] int64: a thread's note; its KIND is 0 where all is finite


class Match(NamedTuple):
    """All arguments of `play_episodes`.

    A thread's worlds are [low, high); of `playing` and the packed arrays it uses the entries from `low` on.
    """

    frame: int  # address of the frame
    advance: int  # address of the environment's kernel, which makes one step of some worlds
    sampled: int  # 1: actions are sampled, with the draws of each step; 0: greedy, no draws are read
    simulation: Simulation
    obs: np.ndarray  # [1, N, ...] float32 or int64: the present observations
    action: np.ndarray  # [1, N] int64 or [1, N, A] float32
    step: StepResults  # results of one step; its obs is the array above
    playing: np.ndarray  # [N] int32: numbers of a thread's worlds that still play
    packed_action: np.ndarray  # [1, N, ...] like action: actions of the worlds in `playing`, side by side
    packed_draws: np.ndarray  # [N * draw] float32: their draws; zeros where nothing is sampled
    tally: EpisodeTally


@njit(**PIECE)
def leave_match(address: int, match: Match) -> None:
    """Store the arguments of `play_episodes` where all threads read them; the caller must keep their arrays alive."""
    put(address, match)


@njit(**PIECE)
def play_episodes(matches: Sequence[Match], thread: int) -> None:
    """Play the steps [f.begin, f.end) of a thread's worlds, or fewer where all have finished their episodes.

    `matches` is the address of one Match. Reads draws [end - begin, N, draw], parameters and turned.
    """
    match = matches[0]
    frame, obs, action, step, tally = match.frame, match.obs, match.action, match.step, match.tally
    playing, packed_draws = match.playing, match.packed_draws
    f = fields_at(frame)
    scratch = scratch_of(f, thread)
    worlds, draw = obs.shape[1], f.draw
    width, numbers = obs.size // worlds, action.size // worlds
    flat_obs, final_obs = obs.reshape(-1), step.final_obs.reshape(-1)
    flat_action, packed_action = action.reshape(-1), match.packed_action.reshape(-1)
    reward, episode_return = step.reward.reshape(-1), step.episode_return.reshape(-1)
    low, high = thread * worlds // f.threads, (thread + 1) * worlds // f.threads
    for t in range(f.begin, f.end):
        n = 0
        for i in range(low, high):
            if tally.done[i] < tally.wanted[i]:
                playing[low + n] = i
                n += 1
        if n == 0 or _non_finite(tally, thread, t, OBSERVATION, flat_obs, width, playing, low, n):
            return
        for start in range(low, low + n, TILE):
            m = min(TILE, low + n - start)
            if match.sampled:
                table = floats(f.draws + 4 * (t - f.begin) * worlds * draw, worlds * draw)
                for s in range(start, start + m):
                    for k in range(draw):
                        packed_draws[s * draw + k] = table[playing[s] * draw + k]
            call(f.encode, (frame, obs.ctypes.data, playing.ctypes.data, start, m, scratch.x))
            call(f.forward, (frame, 0, scratch.x, scratch.hidden, m, scratch.outputs))
            draws = packed_draws.ctypes.data + 4 * start * draw
            action_at = packed_action.ctypes.data + packed_action.itemsize * start * numbers
            call(f.sample, (frame, thread, draws, m, action_at, scratch.log_prob))
            for s in range(start, start + m):
                for k in range(numbers):
                    flat_action[playing[s] * numbers + k] = packed_action[s * numbers + k]
        if _non_finite(tally, thread, t, ACTION, flat_action, numbers, playing, low, n):
            return
        s = low
        while s < low + n:
            stop = _end_of_stretch(playing, s, low + n)
            begin, end = np.int64(playing[s]), np.int64(playing[stop - 1]) + 1
            call_kernel(match.advance, (match.simulation, begin, end, action, step))
            s = stop
        if _non_finite(tally, thread, t, REWARD, reward, 1, playing, low, n):
            return
        for s in range(low, low + n):
            i = playing[s]
            if step.terminated[0, i] | step.truncated[0, i]:
                if _non_finite(tally, thread, t, FINAL_OBSERVATION, final_obs, width, playing, s, 1):
                    return
                if _non_finite(tally, thread, t, RETURN, episode_return, 1, playing, s, 1):
                    return
                index = tally.first[i] + tally.done[i]
                tally.returns[index], tally.lengths[index] = episode_return[i], step.episode_length[0, i]
                tally.done[i] += 1
                tally.start_step[i] = t + 1


@njit(inline="always")
def _end_of_stretch(playing: np.ndarray, start: int, last: int) -> int:
    """Return the end of the run of neighbouring worlds from playing[start] on; one call steps them all.

    In [3, 4, 5, 9] the run from index 0 on ends at index 3.
    """
    stop = start + 1
    while stop < last and playing[stop] == playing[stop - 1] + 1:
        stop += 1
    return stop


@njit(inline="always")
def _non_finite(
    tally: EpisodeTally, thread: int, t: int, kind: int, numbers: np.ndarray, width: int, playing: np.ndarray,
    start: int, count: int,
) -> bool:  # fmt: skip
    """Return whether a number of the worlds playing[start : start + count] is not finite; note the first such world.

    `numbers` [N * width]: `width` numbers of each world.
    """
    for s in range(start, start + count):
        for k in range(width):
            if not abs(numbers[playing[s] * width + k]) <= LARGEST_FLOAT:  # also true for NaN
                note = tally.non_finite
                note[thread, STEP], note[thread, KIND], note[thread, WORLD] = t, kind, playing[s]
                return True
    return False
