"""The kernel that plays: the actor and compiled environments ("worlds"), many steps in one call.

It writes straight into the table of the agent's memory. Each thread plays its own worlds, so threads never wait for one
another. play.py calls it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stride.agents.engines.fused_cpu.frame import TILE, fields_at, scratch_of
from stride.agents.engines.fused_cpu.kernels.calls import PIECE, call, call_kernel, put, step_of
from stride.envs_fast.world import Simulation, StepResults
from stride.utils.kernel_cache import njit


class RolloutTable(NamedTuple):
    """The columns of the agent's memory: a row for each of T steps of N worlds."""

    obs: np.ndarray  # [T, N, ...] float32 or int64
    action: np.ndarray  # [T, N] int64 or [T, N, A] float32
    reward: np.ndarray  # [T, N] float32
    terminated: np.ndarray  # [T, N] uint8
    truncated: np.ndarray  # [T, N] uint8
    is_first: np.ndarray  # [T, N] uint8
    slot: np.ndarray  # [T, N] int64: where the final observation of the running episode will be stored


class BetweenSteps(NamedTuple):
    """The state of collector and memory between two steps."""

    next_obs: np.ndarray  # [1, N, ...] the observation that the next action answers, after the last row
    final_obs: np.ndarray  # [S, N, ...] the last observations of episodes that a time limit cut
    ended_obs: np.ndarray  # [1, N, ...] working memory: last observations of the episodes that ended in this step
    slot: np.ndarray  # [N] int64: where the next final observation of a world will be stored
    is_first: np.ndarray  # [N] uint8: 1 where the next row begins an episode


class Game(NamedTuple):
    """All arguments of `play`."""

    frame: int  # address of the frame
    advance: int  # address of the environment's kernel, which makes one step of some worlds (envs_fast/world.py)
    simulation: Simulation
    table: RolloutTable
    state: BetweenSteps
    episode_return: np.ndarray  # [T, N] float32, set where an episode ended
    episode_length: np.ndarray  # [T, N] float32, in steps, likewise


@njit(**PIECE)
def leave(address: int, game: Game) -> None:
    """Store the arguments of `play` at an address that all threads read; the caller must keep their arrays alive."""
    put(address, game)


@njit(**PIECE)
def play(games: Sequence[Game], thread: int) -> None:
    """Play the steps [f.begin, f.end) of a thread's worlds; `games` is the address of one Game.

    Reads draws, parameters and turned; writes the table, log_prob and the state between steps.
    """
    game = games[0]
    frame, state = game.frame, game.state
    obs, action, reward, terminated, truncated, is_first, slots = game.table
    next_obs, slot, starts = state.next_obs, state.slot, state.is_first
    f = fields_at(frame)
    scratch = scratch_of(f, thread)
    steps, worlds = obs.shape[0], obs.shape[1]
    width = next_obs.size // worlds  # numbers of one observation
    table_obs, latest_obs = obs.reshape(-1), next_obs.reshape(-1)
    final_obs, ended_obs = state.final_obs.reshape(-1), state.ended_obs.reshape(-1)
    low, high = thread * worlds // f.threads, (thread + 1) * worlds // f.threads
    for t in range(f.begin, f.end):
        if t == 0:
            for k in range(low * width, high * width):
                table_obs[k] = latest_obs[k]
        for i in range(low, high):
            is_first[t, i], slots[t, i] = starts[i], slot[i]
        for start in range(low, high, TILE):
            n, row = min(TILE, high - start), t * worlds + start
            call(f.encode, (frame, obs.ctypes.data, 0, row, n, scratch.x))
            if f.remember:
                call(f.remember, (frame, thread, row, start, n))
            else:
                call(f.forward, (frame, 0, scratch.x, scratch.hidden, n, scratch.outputs))
            action_at = action.ctypes.data + action.itemsize * row * (action.size // (steps * worlds))
            call(f.sample, (frame, thread, f.draws + 4 * row * f.draw, n, action_at, f.log_prob + 4 * row))
        # a world writes its next observation into the next row, or after the last row into next_obs, where the next
        # rollout begins
        following_obs = step_of(obs, t + 1) if t + 1 < steps else next_obs
        call_kernel(
            game.advance,
            (
                game.simulation, low, high, step_of(action, t),
                StepResults(
                    following_obs, step_of(reward, t), step_of(terminated, t), step_of(truncated, t), state.ended_obs,
                    step_of(game.episode_return, t), step_of(game.episode_length, t),
                ),
            ),
        )  # fmt: skip
        for i in range(low, high):
            starts[i] = terminated[t, i] | truncated[t, i]
            if truncated[t, i]:
                for k in range(width):
                    final_obs[(slot[i] * worlds + i) * width + k] = ended_obs[i * width + k]
                slot[i] = (slot[i] + 1) % state.final_obs.shape[0]


@njit(**PIECE)
def note_episodes(
    terminated: np.ndarray, truncated: np.ndarray, returns: np.ndarray, lengths: np.ndarray, ring: np.ndarray,
    count: int,
) -> int:  # fmt: skip
    """Write the episodes that ended in this rollout to the ring of the collector's window; return the new `count`.

    `ring` [2, W + 1]: returns and lengths of the latest W episodes; `count`: how many episodes have ended so far. The
    other arrays are [T, N].
    """
    is_terminated, is_truncated = terminated.reshape(-1), truncated.reshape(-1)
    total, length = returns.reshape(-1), lengths.reshape(-1)
    for i in range(total.size):
        if is_terminated[i] | is_truncated[i]:
            column = count % (ring.shape[1] - 1)
            ring[0, column], ring[1, column] = total[i], length[i]
            count += 1
    return count
