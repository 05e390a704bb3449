"""Worlds that are a table of transitions: how the table is stored, looked up, and stepped for many worlds at once.

The rules that fill a table live with their world (frozen_lake, cliff_walking, taxi).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from envs_fast.ended import list_ended
from envs_fast.world import IN_EPISODE, KERNEL, TILE, between, draw
from utils.kernel_cache import njit


class Outcome(NamedTuple):
    """Where an action may lead."""

    state: int
    reward: float
    terminated: bool


Rules = Callable[[int, int], Sequence[Outcome]]  # (state, action) -> one outcome, or one per probability


class Tables(NamedTuple):
    """A world for the kernel; outcome k of (state, action) has the same probability everywhere."""

    next_state: np.ndarray  # int32 [states, actions, outcomes]
    rewards: np.ndarray  # float64 [states, actions, outcomes]
    ends: np.ndarray  # uint8 [states, actions, outcomes]
    thresholds: np.ndarray  # float64 [outcomes - 1]: where a uniform passes on to the next outcome
    starts: np.ndarray  # int32 [starts]
    start_thresholds: np.ndarray  # float64 [starts - 1]


def tabulate(
    states: int, actions: int, rules: Rules, probabilities: Sequence[float], starts: dict[int, float]
) -> Tables:
    """Write the rules down; a single outcome stands for all of them, `starts` are weights by state."""
    shape = (states, actions, len(probabilities))
    tables = Tables(
        np.empty(shape, np.int32),
        np.empty(shape, np.float64),
        np.empty(shape, np.uint8),
        np.cumsum(probabilities)[:-1],
        np.fromiter(starts, np.int32),
        (np.cumsum(list(starts.values())) / sum(starts.values()))[:-1],
    )
    for state in range(states):
        for action in range(actions):
            next_state, reward, terminated = zip(*rules(state, action), strict=True)
            tables.next_state[state, action] = next_state
            tables.rewards[state, action] = reward
            tables.ends[state, action] = terminated
    return tables


@njit(inline="always")
def choose(uniform: float, thresholds: np.ndarray) -> int:
    """Which outcome a uniform stands for."""
    outcome = 0
    for k in range(thresholds.size):
        outcome += 1 if uniform >= thresholds[k] else 0
    return outcome


@njit(inline="always")
def uniform_of_step(age: int, episode: int, world: int, seed_lo: int, seed_hi: int) -> float:
    """What decides the step that follows `age` others."""
    return between(draw(IN_EPISODE * (age + 1), episode, world, seed_lo, seed_hi)[0], 0.0, 1.0)


@njit(inline="always")
def step(
    state: int,
    action: int,
    uniform: float,
    next_state: np.ndarray,
    rewards: np.ndarray,
    ends: np.ndarray,
    thresholds: np.ndarray,
) -> tuple[int, float, int]:
    """Where an action leads, its reward, and 1 where that ends the episode."""
    outcome = choose(uniform, thresholds)
    return next_state[state, action, outcome], rewards[state, action, outcome], ends[state, action, outcome]


@njit(inline="always")
def reset(
    episode: int, world: int, seed_lo: int, seed_hi: int, starts: np.ndarray, start_thresholds: np.ndarray
) -> int:
    """The first state of an episode."""
    if starts.size == 1:
        return starts[0]
    uniform = between(draw(0, episode, world, seed_lo, seed_hi)[0], 0.0, 1.0)
    return starts[np.searchsorted(start_thresholds, uniform, side="right")]


@njit(inline="always")
def seen(state: int, observations: int) -> int:
    """What is observed of a state: a second copy of all states looks like the first."""
    return state - observations if state >= observations else state


@njit(**KERNEL)
def advance(
    state: np.ndarray,
    ages: np.ndarray,
    episodes: np.ndarray,
    returns: np.ndarray,
    lo: int,
    hi: int,
    first_world: int,
    seed_lo: int,
    seed_hi: int,
    parameters: np.ndarray,
    next_state: np.ndarray,
    rewards: np.ndarray,
    ends: np.ndarray,
    thresholds: np.ndarray,
    starts: np.ndarray,
    start_thresholds: np.ndarray,
    actions: np.ndarray,
    obs: np.ndarray,
    reward: np.ndarray,
    terminated: np.ndarray,
    truncated: np.ndarray,
    final_obs: np.ndarray,
    episode_return: np.ndarray,
    episode_length: np.ndarray,
) -> None:
    """The batched kernel; world.py says what the arrays are. parameters: time limit, number of observations."""
    limit, observations = np.int32(parameters[0]), int(parameters[1])
    ended, uniforms = np.empty(TILE, np.int32), np.zeros(TILE)
    for start in range(lo, hi, TILE):
        stop = min(start + TILE, hi)
        place, age, total, episode = state[0, start:stop], ages[start:stop], returns[start:stop], episodes[start:stop]
        for t in range(actions.shape[0]):
            action, out = actions[t, start:stop], obs[t, start:stop]
            r, done, cut = reward[t, start:stop], terminated[t, start:stop], truncated[t, start:stop]
            if thresholds.size > 0:
                for i in range(stop - start):
                    uniforms[i] = uniform_of_step(age[i], episode[i], first_world + start + i, seed_lo, seed_hi)
            for i in range(stop - start):
                place[i], gain, done[i] = step(place[i], action[i], uniforms[i], next_state, rewards, ends, thresholds)
                age[i] += np.int32(1)
                total[i] += gain
                r[i] = gain
                out[i] = seen(place[i], observations)
                cut[i] = (age[i] >= limit) & (done[i] == 0)
            for k in range(list_ended(done, cut, ended)):
                i = ended[k]
                world = start + i
                episode_return[t, world], episode_length[t, world], final_obs[t, world] = total[i], age[i], out[i]
                age[i], total[i], episode[i] = 0, 0.0, episode[i] + 1
                place[i] = reset(episode[i], first_world + world, seed_lo, seed_hi, starts, start_thresholds)
                out[i] = seen(place[i], observations)


@njit(**KERNEL)
def restart(
    state: np.ndarray,
    ages: np.ndarray,
    episodes: np.ndarray,
    returns: np.ndarray,
    lo: int,
    hi: int,
    first_world: int,
    seed_lo: int,
    seed_hi: int,
    parameters: np.ndarray,
    next_state: np.ndarray,
    rewards: np.ndarray,
    ends: np.ndarray,
    thresholds: np.ndarray,
    starts: np.ndarray,
    start_thresholds: np.ndarray,
    mask: np.ndarray,
    obs: np.ndarray,
) -> None:
    """Begin the episode `episodes[i]` in every masked world; what is seen of all."""
    for i in range(lo, hi):
        if mask[i]:
            ages[i], returns[i] = 0, 0.0
            state[0, i] = reset(episodes[i], first_world + i, seed_lo, seed_hi, starts, start_thresholds)
        obs[i] = seen(state[0, i], int(parameters[1]))


@njit(**KERNEL)
def chances(
    ages: np.ndarray,
    episodes: np.ndarray,
    seed_lo: int,
    seed_hi: int,
    thresholds: np.ndarray,
    actions: np.ndarray,
    odds: np.ndarray,
    out: np.ndarray,
) -> None:
    """Write the probability, odds[action, outcome], of the outcome each action is about to have; 1 for no action."""
    for i in range(actions.size):
        uniform = uniform_of_step(ages[i], episodes[i], i, seed_lo, seed_hi)
        known = (actions[i] >= 0) & (actions[i] < odds.shape[0])
        out[i] = odds[actions[i], choose(uniform, thresholds)] if known else 1.0
