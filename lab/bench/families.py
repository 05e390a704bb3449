"""Env steps per second of every backend that can play each family of environments, and of Gymnasium's own loops.

    python -m lab.bench.envs --families             all that are installed; the others are told with their cure
    python -m lab.bench.envs --families CartPole,Pong --worlds 16 --json FILE
    python -m lab.bench.envs --families my_module:MyEnv-v0           what workers are worth there

A world is one environment of a batch. All contenders of a family step the same number of worlds, in turns; a figure is
the median of its turns, in seconds of wall time, as some work in several processes. `auto` chooses by a fixed rule,
because bits and resume differ between backends: if another one is more than 10 % faster, the row says why it is not
chosen.
"""

import re
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

import gymnasium
import torch

from lab.bench.measure import machine
from lab.smoke_test_envs import random_actions
from stride.config.general import load_general
from stride.config.schema import Config
from stride.envs_fast.vec_env import VecEnv
from stride.envs_gym.backends import ROWS, choose_backend
from stride.envs_gym.blame import EnvError
from stride.envs_gym.make import make_envs
from stride.envs_gym.task import task_of
from stride.envs_gym.workers import workers_of
from stride.envs_gym.wrappers.registry import wrap, wrappers_of
from stride.utils.durable_file import write_json
from stride.utils.provenance import git_hash
from stride.utils.resources import cores
from stride.utils.user_error import UserError, nearest

SYNC, ASYNC = "SyncVectorEnv", "AsyncVectorEnv"
ACTIONS = 16  # different actions of each contender, drawn before anything is timed
ENV_ID = re.compile(r":|-v\d+$")  # an environment that is no family, my_module:MyEnv-v0
T = TypeVar("T")
MIN_RATE_SHARE = 0.9  # of the fastest backend's rate: then `auto` need not say why
BY_RULE = "bits and resume decide, no stopwatch"


class Family(NamedTuple):
    """One environment that stands for its family."""

    env_id: str
    package: str = ""  # the module that it needs
    extra: str = ""  # of stride-rl, installs the package


FAMILIES = {
    "CartPole": Family("CartPole-v1"),
    "HalfCheetah": Family("HalfCheetah-v5", "mujoco", "mujoco"),
    "Ant": Family("Ant-v5", "mujoco", "mujoco"),
    "Pong": Family("ALE/Pong-v5", "ale_py", "atari"),
    "CarRacing": Family("CarRacing-v3", "Box2D", "box2d"),
    "dm_control": Family("dm_control/walker-walk", "dm_control", "dmc"),
    "MiniGrid": Family("minigrid:MiniGrid-DoorKey-8x8-v0", "minigrid", "minigrid"),
    "VizDoom": Family("VizDoom/basic", "vizdoom", "vizdoom"),
    "Retro": Family("Retro/Airstriker-Genesis-v0", "stable_retro", "retro"),
}


class Contender(NamedTuple):
    """A way to step a batch of worlds; `run` makes `steps` steps of all of them."""

    run: Callable[[], object]
    close: Callable[[], object]
    resume: str = ""  # "exact" or "seam" for Stride's backends, "" for others
    steps: int = 1


class Measured(NamedTuple):
    """The figures of one family."""

    rates: dict[str, float]  # contender -> env steps per second
    resumes: dict[str, str]  # Stride's backend -> "exact" or "seam"
    refused: dict[str, str]  # Stride's backend -> why it cannot play this family
    auto: str  # the backend that `auto` chooses
    reason: str  # why


def families(names: str, worlds: int, seconds: float, repeats: int, json: Path | None) -> int:
    """Measure and print each family; write the figures to `json` if it is given."""
    torch.set_num_threads(1)
    print(machine(1))
    print(f"env steps per second of {worlds} worlds, median of {repeats} x {seconds:g} s in turns")
    figures: dict[str, Any] = {}
    for name in chosen(names):
        family = FAMILIES.get(name, Family(name))
        print(f"\n{name} ({family.env_id})", flush=True)
        try:
            measured = measure(family, worlds, seconds, repeats)
        except (UserError, EnvError) as error:
            figures[name] = {"left_out": str(error)}
            print(f"  left out: {error}")
            continue
        print("\n".join(f"  {line}" for line in lines_of(measured)), flush=True)
        figures[name] = measured._asdict()
    if json:
        write_json(json, {"machine": machine(1), "commit": git_hash(), "worlds": worlds, "families": figures})
    return 0


def chosen(names: str) -> list[str]:
    """Return the names in "CartPole,Pong", or all for ""; UserError if one is neither a family nor an id."""
    wanted = names.split(",") if names else [*FAMILIES]
    for name in wanted:
        if name not in FAMILIES and not ENV_ID.search(name):
            raise UserError(f"no family {name!r}{nearest(name, FAMILIES)}; there are {', '.join(FAMILIES)}")
    return wanted


def measure(family: Family, worlds: int, seconds: float, repeats: int) -> Measured:
    """Time all contenders of a family; UserError if its package is not installed."""
    if family.package and find_spec(family.package) is None:
        raise UserError(f"it needs {family.package}: pip install 'stride-rl[{family.extra}]'")
    config, refused = replace(load_general(f"{family.env_id}:ppo", (), task_of), n_envs=worlds), dict[str, str]()
    contenders: dict[str, Contender] = {}
    try:
        contenders |= ours(config, refused)
        contenders |= peers(config)
        turns = in_turns(contenders, worlds, seconds, repeats, time.perf_counter)
    finally:
        for contender in contenders.values():
            contender.close()
    rates = {
        name: statistics.median(spell.env_steps / spell.wall for spell in spells) for name, spells in turns.items()
    }
    backend, workers = choose_backend(config), workers_of(config)
    auto, reasons = backend_label(backend.name, workers.number), [backend.reason, workers.reason]
    resumes = {name: contender.resume for name, contender in contenders.items() if contender.resume}
    return Measured(rates, resumes, refused, auto, "; ".join(filter(None, reasons)))


def backend_label(backend: str, workers: int) -> str:
    return f"{backend}, {workers} workers" if workers else backend


def ours(config: Config, refused: dict[str, str]) -> Iterator[tuple[str, Contender]]:
    """Yield every backend of Stride that can play the config; Gymnasium's also with worker processes.

    The reason why another one cannot is written into `refused`.
    """
    max_workers = min(cores(), config.n_envs)
    for row in ROWS:
        backend_config = replace(config, env_backend=cast(Any, row.name))  # a row is one of the words of the key
        if reason := row.why_not(backend_config):
            refused[row.name] = reason
            continue
        for workers in (0, max_workers) if row.name == "gym" and max_workers > 1 else (0,):
            try:
                envs = make_envs(replace(backend_config, workers=workers), config.n_envs)
            except UserError as error:  # a reason that shows only when worlds are made
                refused[row.name] = str(error)
                break
            yield backend_label(row.name, workers), of_contract(envs)


def of_contract(envs: VecEnv) -> Contender:
    """Return a contender that steps Stride's environments as training does (VecEnv.step)."""
    envs.reset(0)
    actions = [*random_actions(envs.action_space, ACTIONS, envs.num_envs)]
    return Contender(in_turn(envs.step, actions), envs.close, envs.resume, ACTIONS)


def peers(config: Config) -> Iterator[tuple[str, Contender]]:
    """Yield Gymnasium's two loops around the same wrapped worlds; nothing if Gymnasium does not know them."""

    def make() -> gymnasium.Env[Any, Any]:
        limit = {} if config.max_episode_steps is None else {"max_episode_steps": config.max_episode_steps}
        world = gymnasium.make(config.env_id, disable_env_checker=True, **limit, **config.env_kwargs)
        return wrap(world, wrappers_of(config)).env

    if config.env_id.rpartition(":")[2] in gymnasium.registry:
        worlds = [make] * config.n_envs
        yield SYNC, of_gymnasium(gymnasium.vector.SyncVectorEnv(worlds))
        yield ASYNC, of_gymnasium(gymnasium.vector.AsyncVectorEnv(worlds))


def of_gymnasium(envs: gymnasium.vector.VectorEnv) -> Contender:
    """Return a contender that steps Gymnasium's vector environments."""
    envs.reset()
    envs.action_space.seed(0)
    actions = [envs.action_space.sample() for _ in range(ACTIONS)]
    return Contender(in_turn(envs.step, actions), envs.close, steps=ACTIONS)


def in_turn(step: Callable[[T], object], actions: list[T]) -> Callable[[], object]:
    """Return a function that makes one step with each of the actions."""

    def run() -> None:
        for action in actions:
            step(action)

    return run


class Spell(NamedTuple):
    """One timing of a contender."""

    env_steps: int
    wall: float  # seconds
    cpu: float  # seconds of this process


def in_turns(
    contenders: Mapping[str, Contender], worlds: int, seconds: float, repeats: int, clock: Callable[[], float]
) -> dict[str, list[Spell]]:
    """Return `repeats` timings of each contender, of about `seconds` by `clock`; every second turn runs backwards."""
    for contender in contenders.values():
        contender.run()  # compiles, and touches every page
    turns: dict[str, list[Spell]] = {name: [] for name in contenders}
    for turn in range(repeats):
        for name in list(contenders)[:: -1 if turn % 2 else 1]:
            steps, run = worlds * contenders[name].steps, contenders[name].run
            wall, cpu = time.perf_counter(), time.process_time()
            count = calls_within(run, seconds, clock)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            turns[name].append(Spell(steps * count, wall, cpu))
    return turns


def calls_within(run: Callable[[], object], seconds: float, clock: Callable[[], float]) -> int:
    """Call `run` until `seconds` are over; return the number of calls."""
    count, calls, began = 0, 1, clock()
    while clock() - began < seconds or not count:
        for _ in range(calls):
            run()
        count, calls = count + calls, 2 * calls  # a clock may be a system call: it is read seldom
    return count


def lines_of(measured: Measured) -> Iterable[str]:
    """Yield the lines to print about a family."""
    fastest = max(measured.rates.values())
    for name, rate in measured.rates.items():
        mark = "<- auto" if name == measured.auto else ""
        resume = measured.resumes.get(name, "")
        yield f"{name:<20} {rate:>13,.0f}  {rate / fastest:>5.0%}  {resume:<6} {mark}".rstrip()
    for name, reason in measured.refused.items():
        yield f"{name:<20} {'-':>13}  {reason}"
    yield verdict(measured)


def verdict(measured: Measured) -> str:
    """Return what `auto` chooses and why; if another backend is more than 10 % faster, also why not that one."""
    mine = {name: measured.rates[name] for name in measured.resumes}
    best = max(mine, key=mine.__getitem__)
    taken = f"auto takes {measured.auto}: {measured.reason}"
    if mine[measured.auto] >= MIN_RATE_SHARE * mine[best]:
        return f"{taken} ({'the fastest' if best == measured.auto else f'within 10 % of {best}'})"
    times = f"{best} is {mine[best] / mine[measured.auto]:.1f} times as fast"
    loses_exact_resume = measured.resumes[measured.auto] == "exact" and measured.resumes[best] != "exact"
    return f"{taken}; {times}, but {'its resume is a seam' if loses_exact_resume else BY_RULE}"
