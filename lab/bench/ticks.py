"""Iterations per second of a training without its callbacks, the last word printed; for lab.bench.pairs.

    python -m lab.bench.ticks CartPole-v1:ppo n_envs=256

The median iteration of some seconds, so that a busy neighbour counts for little; the first ones compile and fill a
replay memory and are left out.
"""

import statistics
import time

import torch

from stride.agents.engines.choice import build_agent
from stride.commands.usage import parser_of
from stride.config.loader import load_config
from stride.envs_gym.make import make_envs
from stride.utils import entry

WARM, SECONDS = 1.0, 3.0


def main(argv: list[str]) -> int:
    """Drive the agent as Lightning would, measure and print."""
    parser = parser_of(__doc__)
    parser.add_argument("config_id", metavar="ENV:VARIANT", help="a shipped variant")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="what to change")
    given = parser.parse_args(argv)
    env_id, _, variant = given.config_id.rpartition(":")
    config = load_config(env_id, variant, ["max_timesteps=1e12", *given.overrides])
    torch.set_num_threads(config.torch_threads)
    agent = build_agent(config, make_envs(config, config.n_envs))
    optimizer = agent.configure_optimizers()
    agent.optimizers = lambda use_pl_optimizer=False: optimizer  # type: ignore[method-assign,assignment]
    seconds, learnt, tick = list[float](), 0.0, 0  # since when it learns
    while not learnt or time.perf_counter() < learnt + WARM + SECONDS:
        before = time.perf_counter()
        agent.training_step(iter([tick]))
        now, tick = time.perf_counter(), tick + 1
        learnt = learnt or (now if agent.progress["updates"] else 0.0)
        if learnt and before > learnt + WARM:
            seconds.append(now - before)
    print(f"{given.config_id}, {len(seconds)} iterations, per second: {1 / statistics.median(seconds):.6g}")
    return 0


if __name__ == "__main__":
    entry.run(main)
