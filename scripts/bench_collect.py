"""How fast collecting, learning and Lightning's loop around them are, and PPO beside Stable-Baselines3 in one run.

Every figure is the median of repeated timings in this process; a figure from a shared machine is worth its ratio only.
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run as a file from anywhere

from agents.algorithms import choose_engine  # noqa: E402
from agents.experience.collector import WINDOW  # noqa: E402
from agents.experience.minibatches import minibatches  # noqa: E402
from agents.experience.nouns import Final  # noqa: E402
from agents.ppo import PPO  # noqa: E402
from config.checks import check  # noqa: E402
from config.metrics import load_metrics  # noqa: E402
from config.schedule import Schedule  # noqa: E402
from config.schema import PPOConfig  # noqa: E402
from envs_gym.make import make_envs  # noqa: E402
from report.console import Console  # noqa: E402
from train import build_trainer, fit  # noqa: E402
from utils.counter_rng import SHUFFLE  # noqa: E402
from utils.provenance import provenance  # noqa: E402
from utils.run_dir import RunDir  # noqa: E402
from utils.user_error import UserError  # noqa: E402

EPOCHS, MINIBATCHES = 4, 4
LOG_EVERY = 5  # iterations between rows: what a run of 1M steps in rollouts of 8 x 128 takes by itself
TICKS = 4000  # iterations over which Lightning's loop is timed
LEARN_ITERATIONS = 8
SB3 = "stable_baselines3"
Figures = dict[str, Any]


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1", metavar="ID", help="any Gymnasium id")
    parser.add_argument("--n-envs", default="8,64", metavar="N[,N...]", help="for the parts; PPO runs with the first")
    parser.add_argument("--n-steps", type=int, default=128, metavar="N", help="steps of a rollout")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S", help="length of one timed PPO run")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="timings per figure")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="CPU threads of torch, for all")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    parser.add_argument(
        "--sb3", action=argparse.BooleanOptionalAction, default=True, help="Stable-Baselines3 beside us"
    )
    asked = parser.parse_args(argv)
    widths = [int(width) for width in asked.n_envs.split(",") if width.isdecimal() and int(width)]
    if not widths or asked.repeats < 1 or asked.n_steps < 1:
        parser.error("--n-envs takes numbers such as 8,64; --repeats and --n-steps take one from 1")
    torch.set_num_threads(asked.threads)

    with_sb3 = asked.sb3 and find_spec(SB3) is not None
    figures: Figures = {"machine": machine(asked.threads), "widths": {}}
    print(figures["machine"], flush=True)
    for width in widths:
        config = setting(asked.env, width, asked.n_steps)
        figures["widths"][width] = collecting(config, asked.repeats) | learning(config, asked.repeats)
        print(collecting_text(width, asked.n_steps, figures["widths"][width]), flush=True)
    figures["overhead"] = overhead(setting(asked.env, 8, 128), asked.repeats)
    print(overhead_text(figures["overhead"]), flush=True)
    config = setting(asked.env, widths[0], asked.n_steps)
    figures["ppo"] = side_by_side(config, asked.seconds, asked.repeats, with_sb3)
    print(ppo_text(config, figures["ppo"]), flush=True)
    if asked.sb3 and not with_sb3:
        print("  sb3           not installed: pip install 'stride-rl[sb3]'")
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0


def setting(env_id: str, n_envs: int, n_steps: int) -> PPOConfig:
    """SB3's defaults in our words, but for the size of a rollout: the same work on both sides."""
    config = PPOConfig(
        env_id=env_id,
        variant="bench",
        n_envs=n_envs,
        n_steps=n_steps,
        n_epochs=EPOCHS,
        batch_size=1 / MINIBATCHES,
        hidden_dims=(64, 64),
        optimizer="adam",
        max_timesteps=n_envs * n_steps,
        log_freq_epochs=LOG_EVERY,
        engine="eager",
        early_stop_on_eval_threshold=False,
    )
    check(config, "bench")
    return config


def seconds_of(work: Callable[[], Any], repeats: int, least: float = 0.05) -> float:
    """Of one call: the median over `repeats` timings of at least `least` seconds each, after one call to warm up."""
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
    """A rollout taken apart: collecting, its three calls per step, and cutting the table into minibatches."""
    agent = PPO(config, make_envs(config, config.n_envs))
    it, memory, rollout = agent.collector, agent.memory, config.rollout_size
    noise = torch.zeros(config.n_envs, agent.policy.draws)
    act = agent.policy.act(it.obs, it.carry, it.is_first, noise, False)
    step = it.envs.step(act.action)
    table = agent.judge(memory.rollout((), Final(it.obs, it.carry)))
    index = itertools.count()
    whole = seconds_of(lambda: it.collect(config.n_steps, memory), repeats)
    acting = seconds_of(lambda: agent.policy.act(it.obs, it.carry, it.is_first, noise, False), repeats)
    stepping = seconds_of(lambda: it.envs.step(act.action), repeats)
    writing = seconds_of(lambda: memory.write(it.obs, it.is_first, act, step), repeats)
    cutting = seconds_of(lambda: [*minibatches(table, config.minibatch_size, agent.key(SHUFFLE, next(index)))], repeats)
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
    runs = [trained(config, LEARN_ITERATIONS).agent for _ in range(repeats)]
    seconds = statistics.median(agent.seconds["learn"] / LEARN_ITERATIONS for agent in runs)
    return {"learn_milliseconds": seconds * 1e3, "update_microseconds": seconds / (EPOCHS * MINIBATCHES) * 1e6}


class Trained(NamedTuple):
    """An agent after its run, and how long that took with all that belongs to it."""

    agent: PPO
    seconds: float


def trained(config: PPOConfig, iterations: int, kind: type[PPO] = PPO) -> Trained:
    """train.py's own `fit`, every callback attached, in a temporary run folder."""
    config = replace(config, max_timesteps=config.rollout_size * iterations)
    agent = kind(config, make_envs(config, config.n_envs))
    agent.engine = choose_engine(config, agent)
    with tempfile.TemporaryDirectory(prefix="stride-bench-") as folder:
        run = RunDir(Path(folder))
        run.checkpoints.mkdir()
        console = Console(load_metrics(), config.max_timesteps, quiet=True)
        began = time.perf_counter()
        fit(config, agent, None, run, console)
        return Trained(agent, time.perf_counter() - began)


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
    scheduled = replace(config, policy_lr=Schedule("linear", 1e-3, 0.0), clip_range=Schedule("linear", 0.2, 0.0))
    ours, bare = [], []
    for _ in range(repeats):
        busy, alone = trained(scheduled, TICKS, Idle).agent, Idle(config, make_envs(config, config.n_envs))
        build_trainer([], max_epochs=1, limit_train_batches=TICKS).fit(alone)
        assert isinstance(busy, Idle)
        ours.append(busy.microseconds)
        bare.append(alone.microseconds)
    return {"callbacks_microseconds": statistics.median(ours), "bare_microseconds": statistics.median(bare)}


def side_by_side(config: PPOConfig, seconds: float, repeats: int, with_sb3: bool) -> Figures:
    """Env steps per second of whole trainings, taken in turns; the ratio is the median of the turns' ratios."""
    contenders: dict[str, Callable[[int], float]] = {"stride": lambda count: trained(config, count).seconds}
    if with_sb3:
        contenders["sb3"] = lambda count: stable_baselines(config, count)
    counts = {name: max(2, round(seconds * 4 / run(4))) for name, run in contenders.items()}  # and all is warm
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in contenders.items():
            rates[name].append(counts[name] * config.rollout_size / run(counts[name]))
    figures: Figures = {name: {"median": statistics.median(all_), "all": all_} for name, all_ in rates.items()}
    if with_sb3:
        ratios = [mine / theirs for mine, theirs in zip(rates["stride"], rates["sb3"], strict=True)]
        figures["ratio"] = {"median": statistics.median(ratios), "all": ratios}
    return figures


def stable_baselines(config: PPOConfig, iterations: int) -> float:
    """Seconds of the same training there; no Monitor and no env checker, which would only slow it down."""
    import stable_baselines3
    from stable_baselines3.common.vec_env import DummyVecEnv

    make = lambda: gymnasium.make(config.env_id, disable_env_checker=True)  # noqa: E731
    envs = DummyVecEnv([make] * config.n_envs)
    peer = stable_baselines3.PPO(
        "MlpPolicy",
        envs,
        n_steps=config.n_steps,
        batch_size=config.minibatch_size,
        n_epochs=config.n_epochs,
        policy_kwargs={"net_arch": {"pi": [*config.hidden_dims], "vf": [*config.hidden_dims]}},
        seed=config.seed,
        device="cpu",
    )
    began = time.perf_counter()
    peer.learn(config.rollout_size * iterations)
    elapsed = time.perf_counter() - began
    envs.close()
    return elapsed


def machine(threads: int) -> str:
    """Processor, cores, threads, versions."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    packages = provenance()["versions"] | ({"sb3": version(SB3)} if find_spec(SB3) else {})
    cpu = f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores, {threads} torch thread(s)"
    return f"{cpu}\n{', '.join(f'{name} {number}' for name, number in packages.items())}"


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


def ppo_text(config: PPOConfig, f: Figures) -> str:
    nets = "x".join(map(str, config.hidden_dims))
    work = f"{EPOCHS} epochs x {MINIBATCHES} minibatches, separate {nets} tanh nets"
    lines = ["", f"PPO eager on {config.env_id}, {config.n_envs} envs x {config.n_steps} steps, {work}, whole training"]
    lines += [f"  {name:<13} {f[name]['median']:>12,.0f} env steps/s" for name in ("stride", "sb3") if name in f]
    if "ratio" in f:
        least, most = min(f["ratio"]["all"]), max(f["ratio"]["all"])
        lines.append(f"  ratio         {f['ratio']['median']:>12.2f} (from {least:.2f} to {most:.2f})")
    return "\n".join(lines)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
