"""Worlds that publish their whole dynamics (Gymnasium's toy text): the table, and the exact worth of a policy in it.

How a policy answers each state is the caller's business; no learning here.
"""

from typing import Any, NamedTuple

import gymnasium
import numpy as np
from numpy.typing import NDArray

PUBLISHED = ("FrozenLake-v1", "FrozenLake8x8-v1", "CliffWalking-v1", "Taxi-v4")  # ids whose `P` is all there is to know

Floats = NDArray[np.float64]


class TransitionTable(NamedTuple):
    """S states, A actions."""

    start: Floats
    """[S] probability that an episode begins there"""
    follows: Floats
    """[S, A, S] probability of going on there; what is missing to 1 is the probability that the episode ends"""
    reward: Floats
    """[S, A] expected reward, that of the ending transitions included"""


def read_table(env: gymnasium.Env) -> TransitionTable:
    """From `P[state][action] = [(probability, next state, reward, terminated), ...]` and the start distribution."""
    world: Any = env.unwrapped
    states, actions = len(world.P), len(world.P[0])
    follows, reward = np.zeros((states, actions, states)), np.zeros((states, actions))
    for state, row in world.P.items():
        for action, outcomes in row.items():
            for probability, following, gain, terminated in outcomes:
                reward[state, action] += probability * gain
                follows[state, action, following] += probability * (not terminated)
    return TransitionTable(np.asarray(world.initial_state_distrib, np.float64), follows, reward)


def policy_value(table: TransitionTable, policy: Floats, time_limit: int) -> float:
    """Expected undiscounted return of an episode of at most `time_limit` steps; `policy` [S, A] are probabilities.

    v_0 = 0;   v_k+1(s) = sum_a pi(a|s) (r(s, a) + sum_s' p(s'|s, a) v_k(s'));   the answer is start . v_limit.
    """
    follows = np.einsum("sa,sat->st", policy, table.follows)
    reward = (policy * table.reward).sum(1)
    value = np.zeros(len(table.start))
    for _ in range(time_limit):
        value = reward + follows @ value
    return float(table.start @ value)
