"""How fast the compiled environments are beside their peers, in one run: millions of env steps per second.

All contenders of a size are timed in turns, by the processor's time; a figure is the median of its turns. Everything
runs on one thread. On a machine that others use too, the ratios are worth more than the figures.
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # run as a file from anywhere

import envs_fast  # noqa: E402
from scripts.bench_plot import bars_svg, millions  # noqa: E402
from utils.user_error import UserError, nearest  # noqa: E402

STEPS = 64  # steps of a kernel call, and different actions of every contender
SIZES, ALL_SIZES = (16, 256, 4096), (16, 256, 4096, 65536)
SLOW = 4096  # peers that keep an object for each world are not made wider
OURS = ("ours, T steps", "ours, 1 step", "ours, Gymnasium")
PEERS = ("gymnasium native", "envpool", "gymnasium sync")
LIMIT, FRACTION = "memory limit", "fraction of limit"


class Contender(NamedTuple):
    """Something that steps N worlds; `run` makes `steps` steps of all of them."""

    run: Callable[[], Any]
    steps: int
    close: Callable[[], Any]


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="CartPole-v1", metavar="ID[,ID...]", help="fast environments")
    parser.add_argument("--all", action="store_true", help="every fast environment, and 65536 worlds as well")
    parser.add_argument("--seconds", type=float, default=0.2, metavar="S", help="length of one timing")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="timings per figure")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the first environment's figures as SVG")
    asked = parser.parse_args(argv)
    if asked.repeats < 1 or not asked.seconds > 0:
        parser.error("--repeats takes a number from 1, --seconds one above 0")
    ids = list(envs_fast.WORLDS) if asked.all else asked.env.split(",")
    for env_id in ids:
        if env_id not in envs_fast.WORLDS:
            raise UserError(f"no fast environment {env_id!r}{nearest(env_id, envs_fast.WORLDS)}")

    torch.set_num_threads(1)
    console = Console()
    console.print(
        f"{machine()}\nmillion env steps per second, median of {asked.repeats} x {asked.seconds:g} s in turns\n"
    )
    figures: dict[str, dict[int, dict[str, float]]] = {}
    for env_id in ids:
        sizes = ALL_SIZES if asked.all else SIZES
        figures[env_id] = {size: measure(env_id, size, asked.repeats, asked.seconds) for size in sizes}
        console.print(table(env_id, figures[env_id]))
        if asked.json:  # after each, so that a run cut short has not been in vain
            text = json.dumps({"machine": machine(), "steps_per_second": figures}, indent=2)
            asked.json.write_text(text + "\n", encoding="utf-8")
    if asked.plot:
        groups = {f"{size} worlds": _rates(row) for size, row in figures[ids[0]].items()}
        title = f"{ids[0]}: env steps per second, one thread"
        asked.plot.write_text(bars_svg(title, groups, set(OURS)), encoding="utf-8")
    return 0


def measure(env_id: str, size: int, repeats: int, seconds: float) -> dict[str, float]:
    """Env steps per second of every contender, the bandwidth limit, and what fraction of it the kernel reaches."""
    contenders = {name: contender for name, make in MAKERS.items() if (contender := make(env_id, size)) is not None}
    for contender in contenders.values():
        contender.run()  # compiles, and touches every page
    copy = copying(env_id, size)
    rates: dict[str, list[float]] = {name: [] for name in (*contenders, LIMIT)}
    for _ in range(repeats):
        for name, contender in contenders.items():
            rates[name].append(size * contender.steps * calls_per_second(contender.run, seconds))
        rates[LIMIT].append(size * STEPS * calls_per_second(copy, seconds))
    for contender in contenders.values():
        contender.close()
    medians = {name: statistics.median(all_) for name, all_ in rates.items()}
    return {**medians, FRACTION: medians[OURS[0]] / medians[LIMIT]}


def calls_per_second(run: Callable[[], Any], seconds: float) -> float:
    """Of as many calls as fit, in seconds of this process: what others are given of a shared machine does not count."""
    count, calls, began = 0, 1, time.process_time()
    while (elapsed := time.process_time() - began) < seconds:
        for _ in range(calls):
            run()
        count, calls = count + calls, 2 * calls  # the clock is a system call: it is read seldom
    return count / elapsed


def in_turn(step: Callable[[Any], Any], actions: list[Any]) -> Callable[[], Any]:
    """A call makes one step with each of the actions."""

    def run() -> None:
        for action in actions:
            step(action)

    return run


def native_actions(env_id: str, size: int) -> np.ndarray:
    """Random actions [STEPS, N, ...] in the units of Gymnasium."""
    env, rng = envs_fast.make(env_id, 1), np.random.default_rng(0)
    space = env.setting.gym_action_space or env.action_space
    if isinstance(space, spaces.Box):
        return rng.uniform(space.low, space.high, (STEPS, size, *space.shape)).astype(np.float32)
    assert isinstance(space, spaces.Discrete)  # the worlds know these two
    return rng.integers(0, int(space.n), (STEPS, size))


def unit_actions(env_id: str, size: int) -> torch.Tensor:
    """The same for the contract, whose boxes are [-1, 1]."""
    env = envs_fast.make(env_id, 1)
    actions = native_actions(env_id, size)
    box = env.setting.gym_action_space
    return torch.from_numpy(actions / box.high if isinstance(box, spaces.Box) else actions)


def kernel(env_id: str, size: int) -> Contender:
    """Ours, STEPS steps in one call into the same buffers."""
    env, actions = envs_fast.make(env_id, size, seed=0), unit_actions(env_id, size)
    buffers = env.trajectory(STEPS)
    return Contender(lambda: env.advance(actions, buffers), STEPS, env.close)


def single(env_id: str, size: int) -> Contender:
    """Ours, a call for each step."""
    env = envs_fast.make(env_id, size, seed=0)
    return Contender(in_turn(env.step, [*unit_actions(env_id, size)]), STEPS, env.close)


def face(env_id: str, size: int) -> Contender:
    """Ours as Gymnasium's VectorEnv."""
    env = gymnasium.make_vec(f"fast/{env_id}", num_envs=size)
    env.reset(seed=0)
    return Contender(in_turn(env.step, [*native_actions(env_id, size)]), STEPS, env.close)


def sync(env_id: str, size: int) -> Contender | None:
    """Gymnasium's loop over Python objects; a call is one step."""
    if size > SLOW:
        return None
    make = lambda: gymnasium.make(env_id, disable_env_checker=True)  # noqa: E731
    env = gymnasium.vector.SyncVectorEnv([make] * size)
    env.reset(seed=0)
    actions = itertools.cycle(native_actions(env_id, size))
    return Contender(lambda: env.step(next(actions)), 1, env.close)


def native(env_id: str, size: int) -> Contender | None:
    """Gymnasium's own vectorized environment, which it has for a few ids."""
    if gymnasium.spec(env_id).vector_entry_point is None:
        return None
    env = gymnasium.make_vec(env_id, num_envs=size, vectorization_mode="vector_entry_point")
    env.reset(seed=0)
    return Contender(in_turn(env.step, [*native_actions(env_id, size)]), STEPS, env.close)


def pooled(env_id: str, size: int) -> Contender | None:
    """envpool on one thread, where it is installed and knows the id."""
    if size > SLOW or find_spec("envpool") is None:
        return None
    envpool = import_module("envpool")
    if env_id not in envpool.list_all_envs():
        return None
    env = envpool.make_gymnasium(env_id, num_envs=size, num_threads=1, seed=0)
    env.reset()
    return Contender(in_turn(env.step, [*native_actions(env_id, size)[:8]]), 8, env.close)


MAKERS: dict[str, Callable[[str, int], Contender | None]] = dict(
    zip((*OURS, *PEERS), (kernel, single, face, native, pooled, sync), strict=True)
)


def copying(env_id: str, size: int) -> Callable[[], Any]:
    """Moves as many bytes as STEPS steps must at least: actions in, results out, state read and written once a step."""
    env, actions = envs_fast.make(env_id, size), native_actions(env_id, size)
    obs, reward, terminated, truncated, *_ = env.trajectory(1).arrays
    inside = sum(array.nbytes for array in (env.state, env.ages, env.returns))
    across = actions[0].nbytes + sum(array.nbytes for array in (obs, reward, terminated, truncated))
    half = max((2 * inside + across) // 2, 1)  # a copied byte is read once and written once
    source, target = (np.ones((STEPS, half), np.uint8) for _ in range(2))
    return lambda: np.copyto(target, source)


def table(env_id: str, figures: dict[int, dict[str, float]]) -> Table:
    """A row for each contender, a column for each number of worlds."""
    title = Table(title=env_id, title_justify="left", title_style="bold")
    title.add_column("worlds", no_wrap=True)
    for size in figures:
        title.add_column(f"{size:,}", justify="right", no_wrap=True)
    for name in (*MAKERS, LIMIT):
        if any(name in row for row in figures.values()):
            cells = [millions(row[name]) if name in row else "-" for row in figures.values()]
            title.add_row(
                name, *cells, style="bold" if name in OURS else None, end_section=name in (OURS[-1], PEERS[-1])
            )
        elif name == "envpool" and find_spec(name) is None:
            title.add_row(name, *["not installed" for _ in figures])
    title.add_row(FRACTION, *[f"{row[FRACTION]:.0%}" for row in figures.values()])
    for peer in PEERS:
        if any(peer in row for row in figures.values()):
            ratios = [f"{row[OURS[-1]] / row[peer]:,.1f}x" if peer in row else "-" for row in figures.values()]
            title.add_row(f"our face / {peer}", *ratios)
    return title


def _rates(row: dict[str, float]) -> dict[str, float]:
    return {name: rate for name, rate in row.items() if name in MAKERS}


def machine() -> str:
    """Processor, cores, versions."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    packages = ["numpy", "numba", "gymnasium", "torch", *(["envpool"] if find_spec("envpool") else [])]
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    cpu = names[0] if names else platform.processor()
    return f"{cpu}, {os.cpu_count()} cores, 1 thread used\nPython {platform.python_version()}, {versions}"


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
