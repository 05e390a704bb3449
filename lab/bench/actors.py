"""Times slow environments that Ray actors play (`collectors=16`) beside worker processes (`workers=16`), in turns.

    python -m lab.bench.actors                                            about half an hour of an idle machine
    python -m lab.bench.actors --turns 1 --iterations 6 --worlds 2 --waits 0.002 --steps 16       shows that it runs

Trainings are PPO on CartPole-v1 with a step that waits for some milliseconds. Printed are medians over turns: the start
(from the command to the first iteration), env steps per second of all iterations but the first two, and the CPU time
that the learner's process spends on one of these steps. At the end actors are killed, one in every sixth iteration;
printed is how much longer than the others that iteration and the next one took together.
"""

import json
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

from lab.bench.measure import machine
from lab.bench.ratio import ratio_of
from stride.agents.base import Agent
from stride.agents.engines.ray_collectors import RayShards
from stride.commands import train
from stride.commands.usage import parser_of
from stride.utils import entry
from stride.utils.user_error import UserError

WARM_ITERATIONS = 2  # the first ones, not timed
MIN_ITERATIONS = 6  # for a training in which an actor is killed
ARGUMENTS = (
    "lab.bench.actors:stride-lab/Waiting-v0:ppo", "-q", "n_epochs=4", "batch_size=0.25", "hidden_dims=[64,64]",
    "threads=1", "early_stop_on_eval_threshold=false", "eval_freq_epochs=null", "test_episodes=0",
)  # fmt: skip


class Waiting(CartPoleEnv):
    """CartPole-v1 with a step that waits `seconds`, without using the processor."""

    def __init__(self, seconds: float = 0.02, render_mode: str | None = None) -> None:
        super().__init__(render_mode=render_mode)
        self.seconds = seconds

    def step(self, action: int) -> tuple:  # type: ignore[override]
        time.sleep(self.seconds)
        return super().step(action)


if __name__ == "lab.bench.actors":  # not again when this file runs as the program
    gymnasium.register("stride-lab/Waiting-v0", "lab.bench.actors:Waiting", max_episode_steps=500)


class Tick(NamedTuple):
    """When an iteration began, in seconds of perf_counter, and the learner's CPU seconds until then."""

    wall: float
    cpu: float


class Spent(NamedTuple):
    """What one training took."""

    start: float  # seconds until the first iteration
    rate: float  # env steps per second
    cpu: float  # seconds of the learner for one env step


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--turns", type=int, default=7, help="of the trainings (default 7)")
    parser.add_argument("--iterations", type=int, default=14, help="of a training (default 14)")
    parser.add_argument("--worlds", type=int, default=16, help="environments, workers, collectors (default 16)")
    parser.add_argument("--steps", type=int, default=64, help="of each environment in a rollout (default 64)")
    parser.add_argument("--waits", type=float, nargs="+", default=[0.02, 0.005], help="seconds a step takes")
    args = parser.parse_args(argv)
    if args.iterations < MIN_ITERATIONS:
        raise UserError(
            f"--iterations {args.iterations} are too few to kill an actor; use --iterations {MIN_ITERATIONS}"
        )
    actors = (f"collectors={args.worlds}", "--on", "ray:local")
    contenders = {"workers": (f"workers={args.worlds}",), "collectors": actors, "collectors, lag": (*actors, "lag=1")}
    print(machine(1, "ray"))
    for wait in args.waits:
        size = args.worlds * args.steps
        budget = f"n_envs={args.worlds}", f"n_steps={args.steps}", f"max_timesteps={size * args.iterations}"
        arguments = [*ARGUMENTS, f"env_kwargs.seconds={wait}", *budget]
        print(f"{args.worlds} environments, {wait * 1e3:g} ms a step, rollouts of {args.steps} steps", flush=True)
        turns: dict[str, list[Spent]] = {name: [] for name in contenders}
        for number in range(args.turns):
            for name in list(contenders)[:: -1 if number % 2 else 1]:
                turns[name].append(spent(training([*arguments, *contenders[name]]), size))
        for name, results in turns.items():
            start, rate, cpu = (statistics.median(turn[i] for turn in results) for i in range(3))
            print(f"  {name}: start {start:.1f} s, {rate:,.0f} env steps/s, learner {cpu * 1e6:,.0f} us of CPU a step")
        for name in list(contenders)[1:]:
            pairs = list(zip(turns[name], turns["workers"], strict=True))
            rates, cpus = (ratio_of([a[i] for a, _ in pairs], [b[i] for _, b in pairs]) for i in (1, 2))
            print(f"  {name} / workers: rate {rates}, CPU of the learner {cpus}", flush=True)
        for name in list(contenders)[1:]:
            delays = delays_of(training([*arguments, *contenders[name]], kill_after=wait * args.steps / 2))
            print(
                f"  {name}, an actor killed: late by {', '.join(f'{seconds:.1f}' for seconds in delays)} s", flush=True
            )
    return 0


def training(arguments: Sequence[str], kill_after: float = 0.0) -> list[Tick]:
    """Run a training in its own process; return a tick for each iteration, after one of the moment before its start."""
    with tempfile.TemporaryDirectory(prefix="stride-actors-") as folder:
        process = get_context("spawn").Process(target=record_ticks, args=(arguments, kill_after, folder))
        began = Tick(time.perf_counter(), 0.0)
        process.start()
        process.join()
        ticks_file = Path(folder, "ticks.json")
        if not ticks_file.exists():
            printed = Path(folder, "printed").read_text().strip()[-200:]
            raise UserError(f"{' '.join(arguments)} failed: {printed}")
        return [began, *(Tick(*numbers) for numbers in json.loads(ticks_file.read_text()))]


def spent(ticks: Sequence[Tick], size: int) -> Spent:
    """Return what a training took whose iterations have `size` env steps."""
    command, begun, *_ = ticks
    first, *_, last = ticks[1 + WARM_ITERATIONS :]
    steps = size * (len(ticks) - 2 - WARM_ITERATIONS)
    return Spent(begun.wall - command.wall, steps / (last.wall - first.wall), (last.cpu - first.cpu) / steps)


def record_ticks(arguments: Sequence[str], kill_after: float, folder: str) -> None:
    """Train in this process and write the ticks into a file; perf_counter is the same clock in all processes."""
    ticks: list[Tick] = []
    training_step = Agent.training_step

    def step(agent: Agent, dataloader_iter: Iterator[int]) -> None:
        ticks.append(Tick(time.perf_counter(), time.process_time()))
        if kill_after and is_killed_in(len(ticks)):
            kill_later(agent.shard_group, kill_after)
        training_step(agent, dataloader_iter)

    Agent.training_step = step  # type: ignore[method-assign, assignment]
    os.environ["STRIDE_RUNS"] = folder
    printed = os.open(Path(folder, "printed"), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):  # Ray's own processes write there, too
        os.dup2(printed, stream)
    if train.command([*arguments]) == 0:
        Path(folder, "ticks.json").write_text(json.dumps(ticks))


def is_killed_in(iteration: int) -> bool:
    """Whether an actor is killed in this iteration; the first one is 1."""
    return iteration % 6 == 4


def kill_later(group: object, seconds: float) -> None:
    """Kill the actor of the last slice after so many seconds."""
    assert isinstance(group, RayShards)
    last_slice = group._slices[-1]
    call = last_slice.actor.__ray_call__.options(concurrency_group="watch")
    pid = last_slice._ray.get(call.remote(lambda actor: os.getpid()))
    threading.Timer(seconds, os.kill, (pid, signal.SIGKILL)).start()


def delays_of(ticks: Sequence[Tick]) -> list[float]:
    """Return, for each iteration with a killed actor and its next one, the seconds above those of two other ones."""
    seconds = {i: ticks[i + 1].wall - ticks[i].wall for i in range(1 + WARM_ITERATIONS, len(ticks) - 1)}
    killed = [i for i in seconds if is_killed_in(i) and i + 1 in seconds]
    usual = statistics.median(took for i, took in seconds.items() if not is_killed_in(i) and not is_killed_in(i - 1))
    return [seconds[i] + seconds[i + 1] - 2 * usual for i in killed]


if __name__ == "__main__":
    entry.run(main)
