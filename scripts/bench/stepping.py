"""Env steps per second of a compiled world through VecEnv.step, the last word printed; for scripts.bench.pairs.

    python scripts/bench/stepping.py 16 CartPole-v1

Given by path it steps the worlds of the checkout it is run in, also of one in which this script is not. One thread,
random actions, resets included; the best 2 ms of a second, so that a busy neighbour counts for little.
"""

import os
import sys
import time

sys.path.insert(0, os.getcwd())  # the checkout that is measured, which need not be the one of this file

import torch
from gymnasium.spaces import Discrete

from envs_fast.registry import make

TURNS, SECONDS = 500, 0.002


def main(num_envs: int, env_id: str) -> None:
    """Measure and print."""
    env, generator = make(env_id, num_envs, seed=0), torch.Generator().manual_seed(0)
    if isinstance(env.action_space, Discrete):
        actions = list(torch.randint(0, int(env.action_space.n), (64, num_envs), generator=generator))
    else:
        actions = list(torch.rand((64, num_envs, 1), generator=generator) * 2 - 1)
    best = 0.0
    for _ in range(TURNS):
        steps, began = 0, time.perf_counter()
        while time.perf_counter() - began < SECONDS:
            for action in actions:
                env.step(action)
            steps += len(actions)
        best = max(best, steps * num_envs / (time.perf_counter() - began))
    print(f"{env_id}, {num_envs} worlds, env steps per second: {best:.0f}")


if __name__ == "__main__":
    main(int(sys.argv[1]), *sys.argv[2:] or ["CartPole-v1"])
