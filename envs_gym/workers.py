"""Chooses how many worker processes step Gymnasium's worlds: as configured, or by the time of a step.

The number changes only the speed: results are equal bit for bit.
"""

import inspect
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium
import torch
from gymnasium import Env
from gymnasium.envs.registration import EnvSpec
from gymnasium.spaces import Box

from stride.config.schema import Config
from stride.envs_fast.vec_env import Obs
from stride.envs_gym.backends import choose_backend
from stride.envs_gym.blame import creator_of
from stride.envs_gym.gym_env import GymEnv
from stride.envs_gym.make import is_given
from stride.envs_gym.wrappers.registry import find_wrapper, world_kwargs, wrappers_of
from stride.utils.resources import cores
from stride.utils.user_error import UserError

MIN_STEP_SECONDS = 0.5e-3  # workers are faster for steps of at least this time (decisions/38-who-steps-the-worlds.md)
TIMED_STEPS, LONG_SECONDS = 4, 0.05  # steps that are timed, without counting the first; a step so long is the last


class WorkerChoice(NamedTuple):
    """The number of worker processes (0: this process steps the worlds), and the reason."""

    number: int
    reason: str


class WorldOrigin(NamedTuple):
    """What a worker needs besides the id to find an environment."""

    modules: Sequence[str] = ()  # modules that register it or its wrappers
    spec: EnvSpec | None = None  # Gymnasium's entry of the id


_step_costs: dict[str, float] = {}  # JSON of a world's settings -> seconds of a step: training and evaluation both ask


def choose_workers(config: Config) -> WorkerChoice:
    """Return the number of worker processes for a training of this config.

    `workers: auto` makes a world and times its steps, once for each environment in a process. UserError where a number
    is set, but another process cannot make the worlds.
    """
    if config.workers == 0:
        return WorkerChoice(0, "as configured")
    obstacle = obstacle_to_workers(config)
    if config.workers != "auto":
        if obstacle:
            problem = f"workers: {config.workers} processes cannot make {config.env_id}: {obstacle}"
            raise UserError(f"{problem}; use workers=0")
        return WorkerChoice(min(config.workers, config.n_envs), "as configured")
    most_workers = min(cores(), config.n_envs)
    if obstacle or most_workers < 2:
        return WorkerChoice(0, obstacle or ("one environment" if config.n_envs == 1 else "one core"))
    if refuses_workers(config):
        return WorkerChoice(0, "the environment is set to run without them")
    seconds = step_cost(config)
    reason = f"a step takes {1000 * seconds:.2g} ms; processes are faster from {1000 * MIN_STEP_SECONDS:g} ms"
    return WorkerChoice(most_workers if seconds >= MIN_STEP_SECONDS else 0, reason)


def workers_of(config: Config) -> WorkerChoice:
    """Return the choice for any backend; only the backend gym has workers."""
    if choose_backend(config).name != "gym":
        return WorkerChoice(0, "")
    return choose_workers(config)


def step_cost(config: Config) -> float:
    """Return the rough seconds of a step of one world; it must only tell 0.03 ms from 3 ms."""
    wrappers = wrappers_of(config)
    kwargs = world_kwargs(config)
    key = json.dumps([config.env_id, kwargs, wrappers, config.max_episode_steps], default=repr)
    if key not in _step_costs:
        timeout = config.step_timeout
        env = GymEnv(config.env_id, 1, kwargs, config.max_episode_steps, wrappers, step_timeout=timeout)
        observation = env.reset(config.seed)
        durations: list[float] = []
        while len(durations) < TIMED_STEPS and max(durations, default=0.0) < LONG_SECONDS:
            action = _some_action(env, observation)
            start_time = time.perf_counter()
            observation = env.step(action).obs
            durations.append(time.perf_counter() - start_time)
        env.close()
        _step_costs[key] = min(durations[1:] or durations)  # the fastest was disturbed least by other programs
    return _step_costs[key]


def _some_action(env: GymEnv, observation: Obs) -> torch.Tensor:
    """Return an action for the one world: the first legal one where the observation has a mask, else zeros."""
    if isinstance(observation, dict) and "action_mask" in observation:
        return observation["action_mask"].int().argmax(-1)
    shape = env.action_space.shape or ()
    return torch.zeros((1, *shape), dtype=torch.float32 if isinstance(env.action_space, Box) else torch.int64)


def refuses_workers(config: Config) -> bool:
    """Whether the class of the environment has `workers: 0` in its metadata, as VizDoom's: workers make it slower."""
    creator = creator_of(_spec(config).entry_point)
    return inspect.isclass(creator) and issubclass(creator, Env) and creator.metadata.get("workers") == 0


def obstacle_to_workers(config: Config) -> str:
    """Return the reason why another process cannot make these worlds, "" where it can."""
    if is_given(config.env_id):
        return "this program makes them with its own function"
    for creator in _creators(config):
        importable = creator is None or isinstance(creator, str) or _import_path(creator)
        if not importable or _module(creator) == "__main__":
            return "they are defined in the program itself, not in a module"
    try:
        json.dumps(_spec(config).kwargs)
    except (TypeError, ValueError):
        return "they are registered with arguments that only this program has"
    return ""


def world_origin(config: Config) -> WorldOrigin:
    """Return what a new process needs to find the environment."""
    env_spec = _spec(config)
    entry_point = env_spec.entry_point
    if entry_point is not None and not isinstance(entry_point, str):
        entry_point = _import_path(entry_point)
    modules = [config.env_id.rpartition(":")[0], *map(_module, _creators(config))]
    env_spec = replace(env_spec, entry_point=entry_point, vector_entry_point=None)
    return WorldOrigin(tuple(dict.fromkeys(filter(None, modules))), env_spec)


def _spec(config: Config) -> EnvSpec:
    return gymnasium.registry[config.env_id.rpartition(":")[2]]


def _creators(config: Config) -> list[Any]:
    """Return the entry point of the id, and the config's wrappers."""
    return [_spec(config).entry_point, *(find_wrapper(wrapper["id"]) for wrapper in wrappers_of(config))]


def _module(creator: object) -> str:
    """Return the module that defines a class, a function or a text `module:Name`; "" for other objects."""
    if isinstance(creator, str):
        return creator.partition(":")[0]
    return creator.__module__ if inspect.isclass(creator) or inspect.isfunction(creator) else ""


def _import_path(creator: Callable[..., Any]) -> str:
    """Return `module:Name` of a class or a function; "" for one that an import cannot find, such as a local one."""
    name = creator.__qualname__ if _module(creator) else ""
    return f"{_module(creator)}:{name}" if name.isidentifier() else ""
