"""Prints iterations or env steps per second as its last word, which `lab.bench.pairs --printed` compares.

    python -m lab.bench.rate CartPole-v1:ppo n_envs=256     iterations of a training without its callbacks
    python -m lab.bench.rate 16 CartPole-v1                 env steps of so many compiled worlds through VecEnv.step

A training's figure is its median iteration over some seconds, after the first ones, which compile and fill a replay
memory. Worlds run on one thread with random actions; their figure is the best 2 ms of a second, so that other programs
matter little.
"""

import statistics
import time
from collections.abc import Sequence

import torch
from gymnasium.spaces import Discrete

from stride.agents.engines.choice import build_agent
from stride.commands.usage import parser_of
from stride.config.loader import load_config
from stride.envs_fast.registry import make
from stride.envs_gym.make import make_envs
from stride.utils import entry

WARM_SECONDS, TIMED_SECONDS = 1.0, 3.0  # of a training, from its first update on
TURNS, TURN_SECONDS = 500, 0.002  # timings of worlds, and seconds of one


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("what", metavar="ENV:VARIANT or N", help="a shipped variant, or how many worlds")
    parser.add_argument("more", nargs="*", metavar="key=value or ID", help="changes, or a compiled world (CartPole-v1)")
    args = parser.parse_args(argv)
    if args.what.isdecimal():
        world = next(iter(args.more), "CartPole-v1")
        print(f"{world}, {args.what} worlds, env steps per second: {env_steps(world, int(args.what)):.0f}")
    else:
        print(f"{args.what}, iterations per second: {iterations(args.what, args.more):.6g}")
    return 0


def iterations(config_id: str, overrides: Sequence[str]) -> float:
    """Return the iterations per second of a training; calls the agent as Lightning would."""
    env_id, _, variant = config_id.rpartition(":")
    config = load_config(env_id, variant, ["max_timesteps=1e12", *overrides])
    torch.set_num_threads(config.torch_threads)
    agent = build_agent(config, make_envs(config, config.n_envs))
    optimizer = agent.configure_optimizers()
    agent.optimizers = lambda use_pl_optimizer=False: optimizer  # type: ignore[method-assign,assignment]
    seconds, learnt, tick = list[float](), 0.0, 0  # `learnt`: time of the first update, 0 before
    while not learnt or time.perf_counter() < learnt + WARM_SECONDS + TIMED_SECONDS:
        before = time.perf_counter()
        agent.training_step(iter([tick]))
        now, tick = time.perf_counter(), tick + 1
        learnt = learnt or (now if agent.progress["updates"] else 0.0)
        if learnt and before > learnt + WARM_SECONDS:
            seconds.append(now - before)
    return 1 / statistics.median(seconds)


def env_steps(env_id: str, num_envs: int) -> float:
    """Return the env steps per second of so many compiled environments."""
    env, generator = make(env_id, num_envs, seed=0), torch.Generator().manual_seed(0)
    if isinstance(env.action_space, Discrete):
        actions = list(torch.randint(0, int(env.action_space.n), (64, num_envs), generator=generator))
    else:
        actions = list(torch.rand((64, num_envs, 1), generator=generator) * 2 - 1)
    best = 0.0
    for _ in range(TURNS):
        steps, began = 0, time.perf_counter()
        while time.perf_counter() - began < TURN_SECONDS:
            for action in actions:
                env.step(action)
            steps += len(actions)
        best = max(best, steps * num_envs / (time.perf_counter() - began))
    return best


if __name__ == "__main__":
    entry.run(main)
