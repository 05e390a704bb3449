"""Slow environments played by Ray actors: `collectors=16` beside `workers=16` of this machine, in turns.

    python -m lab.bench.actors                                            about half an hour of an idle machine
    python -m lab.bench.actors --turns 1 --iterations 6 --worlds 2 --waits 0.002 --steps 16       shows that it runs

Trainings are CartPole-v1 by PPO whose step waits so many seconds. Told are medians over turns: the start (from the
command to the first iteration), env steps per second of all iterations but the first two, and what the learner's own
process spends of a core in one of these steps. At the end actors are killed, one in every sixth iteration; told is how
much longer than the others that iteration and the next one took.
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

COLD = 2  # iterations that do not count
FEWEST = 6  # of a training in which an actor is killed
WORDS = (
    "lab.bench.actors:stride-lab/Waiting-v0:ppo", "-q", "n_epochs=4", "batch_size=0.25", "hidden_dims=[64,64]",
    "threads=1", "early_stop_on_eval_threshold=false", "eval_freq_epochs=null", "test_episodes=0",
)  # fmt: skip


class Waiting(CartPoleEnv):
    """CartPole-v1 whose step takes so many seconds of no processor."""

    def __init__(self, seconds: float = 0.02, render_mode: str | None = None) -> None:
        super().__init__(render_mode=render_mode)
        self.seconds = seconds

    def step(self, action: int) -> tuple:  # type: ignore[override]
        time.sleep(self.seconds)
        return super().step(action)


if __name__ == "lab.bench.actors":  # and not once more as the program
    gymnasium.register("stride-lab/Waiting-v0", "lab.bench.actors:Waiting", max_episode_steps=500)


class Tick(NamedTuple):
    """When an iteration began, and the seconds of a core that the learner had spent by then."""

    wall: float
    cpu: float


class Spent(NamedTuple):
    """What one training took."""

    start: float
    rate: float  # env steps per second
    cpu: float  # of the learner in one env step


def main(argv: list[str]) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--turns", type=int, default=7, help="of the trainings (default 7)")
    parser.add_argument("--iterations", type=int, default=14, help="of a training (default 14)")
    parser.add_argument("--worlds", type=int, default=16, help="environments, workers, collectors (default 16)")
    parser.add_argument("--steps", type=int, default=64, help="of each environment in a rollout (default 64)")
    parser.add_argument("--waits", type=float, nargs="+", default=[0.02, 0.005], help="seconds a step takes")
    asked = parser.parse_args(argv)
    if asked.iterations < FEWEST:
        raise UserError(f"--iterations {asked.iterations} are too few to kill an actor; use --iterations {FEWEST}")
    actors = (f"collectors={asked.worlds}", "--on", "ray:local")
    contenders = {"workers": (f"workers={asked.worlds}",), "collectors": actors, "collectors, lag": (*actors, "lag=1")}
    print(machine(1, "ray"))
    for wait in asked.waits:
        size = asked.worlds * asked.steps
        budget = f"n_envs={asked.worlds}", f"n_steps={asked.steps}", f"max_timesteps={size * asked.iterations}"
        words = [*WORDS, f"env_kwargs.seconds={wait}", *budget]
        print(f"{asked.worlds} environments, {wait * 1e3:g} ms a step, rollouts of {asked.steps} steps", flush=True)
        turns: dict[str, list[Spent]] = {name: [] for name in contenders}
        for number in range(asked.turns):
            for name in list(contenders)[:: -1 if number % 2 else 1]:
                turns[name].append(spent(training([*words, *contenders[name]]), size))
        for name, found in turns.items():
            start, rate, cpu = (statistics.median(turn[i] for turn in found) for i in range(3))
            print(f"  {name}: start {start:.1f} s, {rate:,.0f} env steps/s, learner {cpu * 1e6:,.0f} us of CPU a step")
        for name in list(contenders)[1:]:
            pairs = list(zip(turns[name], turns["workers"], strict=True))
            rates, cpus = (ratio_of([a[i] for a, _ in pairs], [b[i] for _, b in pairs]) for i in (1, 2))
            print(f"  {name} / workers: rate {rates}, CPU of the learner {cpus}", flush=True)
        for name in list(contenders)[1:]:
            late = lateness(training([*words, *contenders[name]], kill_after=wait * asked.steps / 2))
            print(f"  {name}, an actor killed: late by {', '.join(f'{seconds:.1f}' for seconds in late)} s", flush=True)
    return 0


def training(words: Sequence[str], kill_after: float = 0.0) -> list[Tick]:
    """A training in a process of its own; the first tick is the moment at which that was asked for."""
    with tempfile.TemporaryDirectory(prefix="stride-actors-") as folder:
        process = get_context("spawn").Process(target=noted, args=(words, kill_after, folder))
        began = Tick(time.perf_counter(), 0.0)
        process.start()
        process.join()
        ticks_file = Path(folder, "ticks.json")
        if not ticks_file.exists():
            printed = Path(folder, "printed").read_text().strip()[-200:]
            raise UserError(f"{' '.join(words)} failed: {printed}")
        return [began, *(Tick(*numbers) for numbers in json.loads(ticks_file.read_text()))]


def spent(ticks: Sequence[Tick], size: int) -> Spent:
    """Of a training whose iterations have `size` env steps."""
    asked, begun, *_ = ticks
    first, *_, last = ticks[1 + COLD :]
    steps = size * (len(ticks) - 2 - COLD)
    return Spent(begun.wall - asked.wall, steps / (last.wall - first.wall), (last.cpu - first.cpu) / steps)


def noted(words: Sequence[str], kill_after: float, folder: str) -> None:
    """What the process does; perf_counter is the same clock in all of them."""
    ticks: list[Tick] = []
    training_step = Agent.training_step

    def step(agent: Agent, dataloader_iter: Iterator[int]) -> None:
        ticks.append(Tick(time.perf_counter(), time.process_time()))
        if kill_after and is_struck(len(ticks)):
            strike(agent.shard_group, kill_after)
        training_step(agent, dataloader_iter)

    Agent.training_step = step  # type: ignore[method-assign, assignment]
    os.environ["STRIDE_RUNS"] = folder
    printed = os.open(Path(folder, "printed"), os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):  # Ray's own processes write there, too
        os.dup2(printed, stream)
    if train.command([*words]) == 0:
        Path(folder, "ticks.json").write_text(json.dumps(ticks))


def is_struck(iteration: int) -> bool:
    """Whether an actor is killed in it; the first one is 1."""
    return iteration % 6 == 4


def strike(group: object, seconds: float) -> None:
    """Kill the actor of the last slice so many seconds from now."""
    assert isinstance(group, RayShards)
    part = group._slices[-1]
    call = part.actor.__ray_call__.options(concurrency_group="watch")
    pid = part._ray.get(call.remote(lambda actor: os.getpid()))
    threading.Timer(seconds, os.kill, (pid, signal.SIGKILL)).start()


def lateness(ticks: Sequence[Tick]) -> list[float]:
    """Seconds of each pair of an iteration in which an actor was killed and the next one, above those of two others."""
    seconds = {i: ticks[i + 1].wall - ticks[i].wall for i in range(1 + COLD, len(ticks) - 1)}
    struck = [i for i in seconds if is_struck(i) and i + 1 in seconds]
    usual = statistics.median(took for i, took in seconds.items() if not is_struck(i) and not is_struck(i - 1))
    return [seconds[i] + seconds[i + 1] - 2 * usual for i in struck]


if __name__ == "__main__":
    entry.run(main)
