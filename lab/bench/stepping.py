"""Env steps per second of a compiled world through VecEnv.step, the last word printed; for lab.bench.pairs.

    python -m lab.bench.stepping 16 CartPole-v1

One thread, random actions, resets included; the best 2 ms of a second, so that a busy neighbour counts for little.
"""

import time

import torch
from gymnasium.spaces import Discrete

from stride.commands.usage import parser_of
from stride.envs_fast.registry import make
from stride.utils import entry

TURNS, SECONDS = 500, 0.002


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("num_envs", type=int, help="worlds side by side")
    parser.add_argument("env_id", nargs="?", default="CartPole-v1", help="a compiled world (default CartPole-v1)")
    given = parser.parse_args(argv)
    num_envs, env_id = given.num_envs, given.env_id
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
    return 0


if __name__ == "__main__":
    entry.run(main)
