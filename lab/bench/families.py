"""Env steps per second of every backend that can play each family of environments, beside who else steps them.

    python -m lab.bench.envs --families             all that are installed; the others are told with their cure
    python -m lab.bench.envs --families CartPole,Pong --worlds 16 --json FILE
    python -m lab.bench.envs --families my_module:MyEnv-v0           what workers are worth there

All contenders of a family step as many worlds, in turns; a figure is the median of its turns, by the clock on the
wall, as some work in processes and threads of their own. `auto` chooses by a fixed rule, for bits and resume differ
between backends: where another one is more than a tenth faster, the row says why it is not taken.
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
ACTIONS = 16  # different ones of each contender, drawn before anything is timed
IDS = re.compile(r":|-v\d+$")  # of any other environment, my_module:MyEnv-v0
T = TypeVar("T")
NEAR = 0.9  # of the fastest: `auto` need not say why
BY_RULE = "bits and resume decide, no stopwatch"


class Family(NamedTuple):
    env_id: str
    package: str = ""  # without which there is none of them
    extra: str = ""  # that installs it


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
    """Somebody who makes `steps` steps of all worlds by `run`."""

    run: Callable[[], object]
    close: Callable[[], object]
    resume: str = ""  # exact or seam, of a backend of ours
    steps: int = 1


class Measured(NamedTuple):
    rates: dict[str, float]  # env steps per second, by the contender's name
    resumes: dict[str, str]  # of ours
    refused: dict[str, str]  # why others of ours are not among them
    auto: str  # the name of `auto`'s choice
    reason: str


def families(names: str, worlds: int, seconds: float, repeats: int, json: Path | None) -> int:
    torch.set_num_threads(1)
    print(machine(1))
    print(f"env steps per second of {worlds} worlds, median of {repeats} x {seconds:g} s in turns")
    figures: dict[str, Any] = {}
    for name in chosen(names):
        family = FAMILIES.get(name, Family(name))
        print(f"\n{name} ({family.env_id})", flush=True)
        try:
            found = measure(family, worlds, seconds, repeats)
        except (UserError, EnvError) as error:
            figures[name] = {"left_out": str(error)}
            print(f"  left out: {error}")
            continue
        print("\n".join(f"  {line}" for line in lines_of(found)), flush=True)
        figures[name] = found._asdict()
    if json:
        write_json(json, {"machine": machine(1), "commit": git_hash(), "worlds": worlds, "families": figures})
    return 0


def chosen(names: str) -> list[str]:
    """`CartPole,Pong`, or all; UserError for one that there is neither here nor by Gymnasium's way to write it."""
    wanted = names.split(",") if names else [*FAMILIES]
    for name in wanted:
        if name not in FAMILIES and not IDS.search(name):
            raise UserError(f"no family {name!r}{nearest(name, FAMILIES)}; there are {', '.join(FAMILIES)}")
    return wanted


def measure(family: Family, worlds: int, seconds: float, repeats: int) -> Measured:
    if family.package and find_spec(family.package) is None:
        raise UserError(f"it needs {family.package}: pip install 'stride-rl[{family.extra}]'")
    config, refused = replace(load_general(f"{family.env_id}:ppo", (), task_of), n_envs=worlds), dict[str, str]()
    who: dict[str, Contender] = {}
    try:
        who |= ours(config, refused)
        who |= peers(config)
        turns = in_turns(who, worlds, seconds, repeats, time.perf_counter)
    finally:
        for contender in who.values():
            contender.close()
    rates = {
        name: statistics.median(spell.env_steps / spell.wall for spell in spells) for name, spells in turns.items()
    }
    backend, workers = choose_backend(config), workers_of(config)
    auto, told = called(backend.name, workers.number), [backend.reason, workers.reason]
    resumes = {name: contender.resume for name, contender in who.items() if contender.resume}
    return Measured(rates, resumes, refused, auto, "; ".join(filter(None, told)))


def called(backend: str, workers: int) -> str:
    return f"{backend}, {workers} workers" if workers else backend


def ours(config: Config, refused: dict[str, str]) -> Iterator[tuple[str, Contender]]:
    """Every backend that can play it, Gymnasium's worlds here and in processes; why not goes into `refused`."""
    most = min(cores(), config.n_envs)
    for row in ROWS:
        asked = replace(config, env_backend=cast(Any, row.name))  # a row is one of the words of the key
        if reason := row.why_not(asked):
            refused[row.name] = reason
            continue
        for workers in (0, most) if row.name == "gym" and most > 1 else (0,):
            try:
                envs = make_envs(replace(asked, workers=workers), config.n_envs)
            except UserError as error:  # what shows only where worlds are made
                refused[row.name] = str(error)
                break
            yield called(row.name, workers), of_contract(envs)


def of_contract(envs: VecEnv) -> Contender:
    """Ours, by the contract that training goes through."""
    envs.reset(0)
    actions = [*random_actions(envs.action_space, ACTIONS, envs.num_envs)]
    return Contender(in_turn(envs.step, actions), envs.close, envs.resume, ACTIONS)


def peers(config: Config) -> Iterator[tuple[str, Contender]]:
    """Gymnasium's two loops around the same wrapped worlds."""

    def make() -> gymnasium.Env[Any, Any]:
        limit = {} if config.max_episode_steps is None else {"max_episode_steps": config.max_episode_steps}
        world = gymnasium.make(config.env_id, disable_env_checker=True, **limit, **config.env_kwargs)
        return wrap(world, wrappers_of(config)).env

    if config.env_id.rpartition(":")[2] in gymnasium.registry:
        worlds = [make] * config.n_envs
        yield SYNC, of_gymnasium(gymnasium.vector.SyncVectorEnv(worlds))
        yield ASYNC, of_gymnasium(gymnasium.vector.AsyncVectorEnv(worlds))


def of_gymnasium(envs: gymnasium.vector.VectorEnv) -> Contender:
    envs.reset()
    envs.action_space.seed(0)
    actions = [envs.action_space.sample() for _ in range(ACTIONS)]
    return Contender(in_turn(envs.step, actions), envs.close, steps=ACTIONS)


def in_turn(step: Callable[[T], object], actions: list[T]) -> Callable[[], object]:
    """A call makes one step with each of the actions."""

    def run() -> None:
        for action in actions:
            step(action)

    return run


class Spell(NamedTuple):
    """Steps of all worlds that were made one after another."""

    env_steps: int
    wall: float  # seconds
    cpu: float


def in_turns(
    who: Mapping[str, Contender], worlds: int, seconds: float, repeats: int, clock: Callable[[], float]
) -> dict[str, list[Spell]]:
    """So many spells of each, which last `seconds` by that clock; every second turn in the reverse order."""
    for contender in who.values():
        contender.run()  # compiles, and touches every page
    turns: dict[str, list[Spell]] = {name: [] for name in who}
    for turn in range(repeats):
        for name in list(who)[:: -1 if turn % 2 else 1]:
            steps, run = worlds * who[name].steps, who[name].run
            wall, cpu = time.perf_counter(), time.process_time()
            count = calls_within(run, seconds, clock)
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
            turns[name].append(Spell(steps * count, wall, cpu))
    return turns


def calls_within(run: Callable[[], object], seconds: float, clock: Callable[[], float]) -> int:
    """How many calls were made in `seconds` and a little more."""
    count, calls, began = 0, 1, clock()
    while clock() - began < seconds or not count:
        for _ in range(calls):
            run()
        count, calls = count + calls, 2 * calls  # a clock may be a system call: it is read seldom
    return count


def lines_of(found: Measured) -> Iterable[str]:
    fastest = max(found.rates.values())
    for name, rate in found.rates.items():
        chosen_one = "<- auto" if name == found.auto else ""
        resume = found.resumes.get(name, "")
        yield f"{name:<20} {rate:>13,.0f}  {rate / fastest:>5.0%}  {resume:<6} {chosen_one}".rstrip()
    for name, reason in found.refused.items():
        yield f"{name:<20} {'-':>13}  {reason}"
    yield verdict(found)


def verdict(found: Measured) -> str:
    """What `auto` takes and why; where another of ours is faster by more than a tenth, why not that one."""
    mine = {name: found.rates[name] for name in found.resumes}
    best = max(mine, key=mine.__getitem__)
    taken = f"auto takes {found.auto}: {found.reason}"
    if mine[found.auto] >= NEAR * mine[best]:
        return f"{taken} ({'the fastest' if best == found.auto else f'within 10 % of {best}'})"
    times = f"{best} is {mine[best] / mine[found.auto]:.1f} times as fast"
    lost = found.resumes[found.auto] == "exact" and found.resumes[best] != "exact"
    return f"{taken}; {times}, but {'its resume is a seam' if lost else BY_RULE}"
