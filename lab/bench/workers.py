"""Env steps per second of an environment's worlds in worker processes and in this one, in turns of one run.

    python -m lab.bench.workers CarRacing-v3 --worlds 8 --workers 2

Random actions, resets included, by the clock on the wall: what others compute meanwhile slows both. It says what
`workers: auto` would take, and why.
"""

import statistics
import time
from dataclasses import replace

import numpy as np
import torch
from gymnasium.spaces import Box

from config.schema import Config
from envs_fast.vec_env import VecEnv
from envs_gym.make import env_info, make_envs
from envs_gym.workers import choose_workers
from lab.bench.measure import machine
from scripts.usage import parser_of
from utils import entry
from utils.cores import cores

ACTIONS = 64  # drawn once and repeated


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("env_id", nargs="?", default="CarRacing-v3", help="any Gymnasium environment")
    parser.add_argument("--worlds", type=int, default=8, metavar="N", help="side by side")
    parser.add_argument(
        "--workers", type=int, default=cores(), metavar="N", help="processes; as many as there are cores"
    )
    parser.add_argument("--seconds", type=float, default=5.0, metavar="S", help="length of a turn")
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="of each")
    asked = parser.parse_args(argv)
    if min(asked.worlds, asked.workers, asked.turns) < 1 or not asked.seconds > 0:
        parser.error("--worlds, --workers and --turns take numbers from 1, --seconds one above 0")
    config = Config(env_id=asked.env_id, env_backend="gym", n_envs=asked.worlds)
    env_info(config)  # what is wrong with the id shows here
    taken = choose_workers(config)
    print(f"{machine(1)}\n{asked.env_id}, {asked.worlds} worlds; workers: auto takes {taken.number}, {taken.reason}")
    worlds = {number: make_envs(replace(config, workers=number), asked.worlds) for number in (0, asked.workers)}
    rates: dict[int, list[float]] = {number: [] for number in worlds}
    for envs in worlds.values():
        envs.reset(0)
        stepped(envs, asked.seconds / 5)  # not counted
    for _ in range(asked.turns):
        for number, envs in worlds.items():
            rates[number].append(stepped(envs, asked.seconds))
    middle = {number: statistics.median(each) for number, each in rates.items()}
    for number, rate in middle.items():
        print(f"workers={number}: {rate:,.0f} env steps/s ({min(rates[number]):,.0f} to {max(rates[number]):,.0f})")
    print(f"{asked.workers} workers are {middle[asked.workers] / middle[0]:.2f} times as fast as none")
    for envs in worlds.values():
        envs.close()
    return 0


def stepped(envs: VecEnv, seconds: float) -> float:
    """Env steps per second."""
    steps, generator = 0, torch.Generator().manual_seed(0)
    if isinstance(space := envs.action_space, Box):
        actions = torch.rand((ACTIONS, envs.num_envs, *space.shape), generator=generator) * 2 - 1
    else:
        choices = [space.sample() for _ in range(ACTIONS * envs.num_envs)]
        actions = torch.from_numpy(np.array(choices)).reshape(ACTIONS, envs.num_envs, *(space.shape or ()))
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        envs.step(actions[steps % ACTIONS])
        steps += 1
    return steps * envs.num_envs / (time.perf_counter() - began)


if __name__ == "__main__":
    entry.run(main)
