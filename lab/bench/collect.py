"""How fast collecting, cutting minibatches, learning and Lightning's loop around them are.

    python -m lab.bench.collect --n-envs 8,64

Every figure is the median of repeated timings in this process; a figure from a shared machine is worth its ratio only.
"""

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from lab.bench.measure import (
    EPOCHS,
    LOG_EVERY,
    MINIBATCHES,
    Figures,
    lasting,
    machine,
    setting,
    trained,
)
from stride.agents.experience.collector import WINDOW
from stride.agents.experience.minibatches import minibatches
from stride.agents.experience.nouns import Final
from stride.agents.ppo import PPO
from stride.commands.usage import parser_of
from stride.config.metrics import load_metrics
from stride.config.schedule import Schedule
from stride.config.schema import PPOConfig
from stride.envs_gym.make import make_envs
from stride.trainer_callbacks.session import build_trainer
from stride.utils import entry
from stride.utils.counter_rng import SHUFFLE
from stride.utils.durable_file import write_json

TICKS = 4000  # iterations over which Lightning's loop is timed
LEARN_ITERATIONS = 8


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("--env", default="CartPole-v1", metavar="ID", help="any Gymnasium id")
    parser.add_argument("--n-envs", default="8,64", metavar="N[,N...]", help="worlds side by side")
    parser.add_argument("--n-steps", type=int, default=128, metavar="N", help="steps of a rollout")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="timings per figure")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads of torch, for all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    asked = parser.parse_args(argv)
    widths = [int(width) for width in asked.n_envs.split(",") if width.isdecimal() and int(width)]
    if not widths or asked.repeats < 1 or asked.n_steps < 1:
        parser.error("--n-envs takes numbers such as 8,64; --repeats and --n-steps take one from 1")
    torch.set_num_threads(asked.threads)
    figures: Figures = {"machine": machine(asked.threads), "widths": {}}
    print(figures["machine"], flush=True)
    for width in widths:
        config = setting(asked.env, width, asked.n_steps, asked.threads)
        figures["widths"][width] = collecting(config, asked.repeats) | learning(config, asked.repeats)
        print(collecting_text(width, asked.n_steps, figures["widths"][width]), flush=True)
    # of one size, whatever is asked
    figures["overhead"] = overhead(setting(asked.env, 8, 128, asked.threads), asked.repeats)
    print(overhead_text(figures["overhead"]), flush=True)
    if asked.json:
        write_json(asked.json, figures)
    return 0


def seconds_per_call(work: Callable[[], object], repeats: int, least: float = 0.05) -> float:
    """The median over `repeats` timings of at least `least` seconds each, after one call to warm up."""
    work()
    times = []
    for _ in range(repeats):
        count, began = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - began) < least:
            work()
            count += 1
        times.append(elapsed / count)
    return statistics.median(times)


@torch.no_grad()
def collecting(config: PPOConfig, repeats: int) -> Figures:
    """A rollout taken apart: collecting, its three calls per step, and cutting the table into minibatches.

    The calls are timed one by one, on one row again and again; what their shares leave of 1 is the loop between them.
    """
    agent = PPO(config, make_envs(config, config.n_envs))
    it, memory, rollout = agent.collector, agent.memory, config.rollout_size
    noise = torch.zeros(config.n_envs, agent.policy.draws)
    act = agent.policy.act(it.obs, it.carry, it.is_first, noise, False)
    step = it.envs.step(act.action)
    table = agent.judge(memory.rollout((), Final(it.obs, it.carry)))
    index = itertools.count()
    whole = seconds_per_call(lambda: it.collect(config.n_steps, memory), repeats)
    acting = seconds_per_call(lambda: agent.policy.act(it.obs, it.carry, it.is_first, noise, False), repeats)
    stepping = seconds_per_call(lambda: it.envs.step(act.action), repeats)
    writing = seconds_per_call(lambda: memory.write(it.obs, it.is_first, act, step), repeats)
    cutting = seconds_per_call(
        lambda: [*minibatches(table, config.minibatch_size, agent.key(SHUFFLE, next(index)))], repeats
    )
    it.envs.close()
    return {
        "collect_steps_per_second": rollout / whole,
        "policy_share": acting * config.n_steps / whole,
        "env_share": stepping * config.n_steps / whole,
        "memory_write_share": writing * config.n_steps / whole,
        "memory_write_microseconds": writing * 1e6,
        "minibatch_rows_per_second": rollout / cutting,
    }


def learning(config: PPOConfig, repeats: int) -> Figures:
    """Milliseconds of one `learn`: advantages, then every update."""
    runs = [trained(lasting(config, LEARN_ITERATIONS)).agent for _ in range(repeats)]
    seconds = statistics.median(agent.seconds["learn"] / LEARN_ITERATIONS for agent in runs)
    return {"learn_milliseconds": seconds * 1e3, "update_microseconds": seconds / (EPOCHS * MINIBATCHES) * 1e6}


class Idle(PPO):
    """Does nothing but what keeps the callbacks as busy as ever: the clock moves, every row has PPO's numbers."""

    began = ended = 0.0

    def setup(self, stage: str) -> None:
        super().setup(stage)
        areas = tuple(f"train/{area}/" for area in ("loss", "policy", "value", "advantage", "grad_norm"))
        self.numbers = {name: torch.zeros(()) for name in load_metrics() if name.startswith(areas)}
        self.collector.window.add(torch.ones(WINDOW, dtype=torch.bool), torch.ones(WINDOW), torch.ones(WINDOW))

    def iteration(self) -> None:
        self.ended = time.perf_counter()
        self.began = self.began or self.ended
        self.progress["env_steps"] += self.config.rollout_size
        if self.progress["iterations"] % LOG_EVERY == 0:
            self.metrics.add(self.numbers)

    @property
    def microseconds(self) -> float:
        """From the start of one iteration to the start of the next."""
        return (self.ended - self.began) / (self.progress["iterations"] - 1) * 1e6


def overhead(config: PPOConfig, repeats: int) -> Figures:
    """What an iteration costs before it does anything: with every callback and two schedules, and in a bare Trainer."""
    scheduled = lasting(config, TICKS)
    scheduled = replace(scheduled, policy_lr=Schedule("linear", 1e-3, 0.0), clip_range=Schedule("linear", 0.2, 0.0))
    ours, bare = [], []
    for _ in range(repeats):
        busy, alone = (Idle(each, make_envs(each, each.n_envs)) for each in (scheduled, config))
        trained(scheduled, busy)
        build_trainer([], max_epochs=1, limit_train_batches=TICKS).fit(alone)
        ours.append(busy.microseconds)
        bare.append(alone.microseconds)
    return {"callbacks_microseconds": statistics.median(ours), "bare_microseconds": statistics.median(bare)}


def collecting_text(width: int, n_steps: int, f: Figures) -> str:
    shares = f"env {f['env_share']:.0%}, policy {f['policy_share']:.0%}, memory.write {f['memory_write_share']:.0%}"
    update = f"{EPOCHS} epochs x {MINIBATCHES} minibatches, {f['update_microseconds']:.0f} us per update"
    return f"""
{width} envs x {n_steps} steps
  collect       {f["collect_steps_per_second"]:>12,.0f} env steps/s  {shares} ({f["memory_write_microseconds"]:.1f} us)
  minibatches   {f["minibatch_rows_per_second"]:>12,.0f} rows/s
  learn         {f["learn_milliseconds"]:>12.1f} ms           {update}"""


def overhead_text(f: Figures) -> str:
    return f"""
An iteration that does nothing, {TICKS} of them, a row every {LOG_EVERY}
  all callbacks {f["callbacks_microseconds"]:>12.1f} us
  bare Trainer  {f["bare_microseconds"]:>12.1f} us"""


if __name__ == "__main__":
    entry.run(main)
