"""How fast does Stride collect a rollout, and cut it into minibatches?

python -m lab.bench.collect --n-envs 8,64
"""

import itertools
import statistics
import time
from collections.abc import Callable

import torch

from lab.bench.families import calls_within
from lab.bench.measure import machine, setting
from stride.agents.experience.minibatches import minibatches
from stride.agents.experience.nouns import Final
from stride.agents.ppo import PPO
from stride.commands.usage import parser_of
from stride.config.schema import PPOConfig
from stride.envs_gym.make import make_envs
from stride.utils import entry
from stride.utils.counter_rng import SHUFFLE

N_STEPS, REPEATS = 128, 5  # of each environment in a rollout; timings per figure


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--env", default="CartPole-v1", metavar="ID", help="any Gymnasium id")
    parser.add_argument("--n-envs", default="8,64", metavar="N[,N...]", help="worlds side by side")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads of torch, for all")
    args = parser.parse_args(argv)
    widths = [int(width) for width in args.n_envs.split(",") if width.isdecimal() and int(width)]
    if not widths:
        parser.error("--n-envs takes numbers such as 8,64")
    torch.set_num_threads(args.threads)
    print(machine(args.threads), flush=True)
    for width in widths:
        print(f"\n{width} envs x {N_STEPS} steps", flush=True)
        collecting(setting(args.env, width, N_STEPS, args.threads))
    return 0


def seconds_per_call(work: Callable[[], object]) -> float:
    """Return the median of REPEATS timings, after one call to warm up."""
    work()
    timings = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        count = calls_within(work, 0.05, time.perf_counter)
        timings.append((time.perf_counter() - began) / count)
    return statistics.median(timings)


@torch.no_grad()
def collecting(config: PPOConfig) -> None:
    """Print the rates of collecting a rollout, with the shares of its three calls per step, and of cutting minibatches.

    The calls are timed one by one, on the same row each time. The loop between them takes the rest of the time.
    """
    agent = PPO(config, make_envs(config, config.n_envs))
    collector, memory, rollout = agent.collector, agent.memory, config.rollout_size
    noise = torch.zeros(config.n_envs, agent.policy.draws)
    act = agent.policy.act(collector.obs, collector.carry, collector.is_first, noise, False)
    step = collector.envs.step(act.action)
    table = agent.judge(memory.rollout((), Final(collector.obs, collector.carry)))
    index = itertools.count()
    whole = seconds_per_call(lambda: collector.collect(config.n_steps, memory))
    calls: dict[str, Callable[[], object]] = {
        "env": lambda: collector.envs.step(act.action),
        "policy": lambda: agent.policy.act(collector.obs, collector.carry, collector.is_first, noise, False),
        "memory.write": lambda: memory.write(collector.obs, collector.is_first, act, step),
    }
    shares = {name: seconds_per_call(call) * config.n_steps / whole for name, call in calls.items()}
    cutting = seconds_per_call(lambda: [*minibatches(table, config.minibatch_size, agent.key(SHUFFLE, next(index)))])
    collector.envs.close()
    shares_text = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    print(f"  collect       {rollout / whole:>12,.0f} env steps/s  {shares_text}", flush=True)
    print(f"  minibatches   {rollout / cutting:>12,.0f} rows/s", flush=True)


if __name__ == "__main__":
    entry.run(main)
