"""How fast collecting and cutting minibatches are.

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

N_STEPS, REPEATS = 128, 5  # of a rollout; timings per figure


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--env", default="CartPole-v1", metavar="ID", help="any Gymnasium id")
    parser.add_argument("--n-envs", default="8,64", metavar="N[,N...]", help="worlds side by side")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads of torch, for all")
    asked = parser.parse_args(argv)
    widths = [int(width) for width in asked.n_envs.split(",") if width.isdecimal() and int(width)]
    if not widths:
        parser.error("--n-envs takes numbers such as 8,64")
    torch.set_num_threads(asked.threads)
    print(machine(asked.threads), flush=True)
    for width in widths:
        print(f"\n{width} envs x {N_STEPS} steps", flush=True)
        collecting(setting(asked.env, width, N_STEPS, asked.threads))
    return 0


def seconds_per_call(work: Callable[[], object]) -> float:
    """The median of some timings, after one call to warm up."""
    work()
    timings = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        count = calls_within(work, 0.05, time.perf_counter)
        timings.append((time.perf_counter() - began) / count)
    return statistics.median(timings)


@torch.no_grad()
def collecting(config: PPOConfig) -> None:
    """Tell a rollout taken apart: collecting, its three calls per step, and cutting the table into minibatches.

    The calls are timed one by one, on one row again and again; what their shares leave of 1 is the loop between them.
    """
    agent = PPO(config, make_envs(config, config.n_envs))
    it, memory, rollout = agent.collector, agent.memory, config.rollout_size
    noise = torch.zeros(config.n_envs, agent.policy.draws)
    act = agent.policy.act(it.obs, it.carry, it.is_first, noise, False)
    step = it.envs.step(act.action)
    table = agent.judge(memory.rollout((), Final(it.obs, it.carry)))
    index = itertools.count()
    whole = seconds_per_call(lambda: it.collect(config.n_steps, memory))
    calls: dict[str, Callable[[], object]] = {
        "env": lambda: it.envs.step(act.action),
        "policy": lambda: agent.policy.act(it.obs, it.carry, it.is_first, noise, False),
        "memory.write": lambda: memory.write(it.obs, it.is_first, act, step),
    }
    shares = {name: seconds_per_call(call) * config.n_steps / whole for name, call in calls.items()}
    cutting = seconds_per_call(lambda: [*minibatches(table, config.minibatch_size, agent.key(SHUFFLE, next(index)))])
    it.envs.close()
    told = ", ".join(f"{name} {share:.0%}" for name, share in shares.items())
    print(f"  collect       {rollout / whole:>12,.0f} env steps/s  {told}", flush=True)
    print(f"  minibatches   {rollout / cutting:>12,.0f} rows/s", flush=True)


if __name__ == "__main__":
    entry.run(main)
