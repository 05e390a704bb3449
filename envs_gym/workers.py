"""How many processes step Gymnasium's worlds: as configured, else by the cost of a step. The bits are the same."""

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

PAYS = 0.5e-3  # seconds of a step from which on processes pay (docs/decisions/38-who-steps-the-worlds.md)
STEPS, LONG = 4, 0.05  # steps that are timed, the first of them not counted; seconds after which no other one is needed


class WorkerChoice(NamedTuple):
    """How many processes, 0: none but this one, and why."""

    number: int
    reason: str


class WorldOrigin(NamedTuple):
    """Where worlds come from that a worker would not find by their id alone."""

    modules: Sequence[str] = ()  # that register them or their wrappers
    spec: EnvSpec | None = None


_step_costs: dict[str, float] = {}  # seconds of a step, by a key of the world: asked for training, evaluation, header


def choose_workers(config: Config) -> WorkerChoice:
    """The number of processes for a training of this config; `auto` makes a world and steps it, once in a process.

    UserError where processes are asked for that could not make the worlds.
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
    reason = f"a step takes {1000 * seconds:.2g} ms; processes are faster from {1000 * PAYS:g} ms"
    return WorkerChoice(most_workers if seconds >= PAYS else 0, reason)


def workers_of(config: Config) -> WorkerChoice:
    """The choice for any backend: only Gymnasium's worlds are stepped by workers."""
    if choose_backend(config).name != "gym":
        return WorkerChoice(0, "")
    return choose_workers(config)


def step_cost(config: Config) -> float:
    """Seconds of a step of one world, roughly: no more than is needed to tell 0.03 ms from 3."""
    wrappers = wrappers_of(config)
    kwargs = world_kwargs(config)
    key = json.dumps([config.env_id, kwargs, wrappers, config.max_episode_steps], default=repr)
    if key not in _step_costs:
        timeout = config.step_timeout
        env = GymEnv(config.env_id, 1, kwargs, config.max_episode_steps, wrappers, step_timeout=timeout)
        observation = env.reset(config.seed)
        durations: list[float] = []
        while len(durations) < STEPS and max(durations, default=0.0) < LONG:
            action = _some_action(env, observation)
            start_time = time.perf_counter()
            observation = env.step(action).obs
            durations.append(time.perf_counter() - start_time)
        env.close()
        _step_costs[key] = min(durations[1:] or durations)  # the least disturbed one
    return _step_costs[key]


def _some_action(env: GymEnv, observation: Obs) -> torch.Tensor:
    """Zeros, or the first legal choice where the world says which are."""
    if isinstance(observation, dict) and "action_mask" in observation:
        return observation["action_mask"].int().argmax(-1)
    shape = env.action_space.shape or ()
    return torch.zeros((1, *shape), dtype=torch.float32 if isinstance(env.action_space, Box) else torch.int64)


def refuses_workers(config: Config) -> bool:
    """Whether a world's class says in its metadata that workers do not pay: where it is a process itself, say."""
    creator = creator_of(_spec(config).entry_point)
    return inspect.isclass(creator) and issubclass(creator, Env) and creator.metadata.get("workers") == 0


def obstacle_to_workers(config: Config) -> str:
    """Why another process could not make these worlds, "" where it can."""
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
    """Where a process that was just started finds the worlds."""
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
    """The entry point of the id, and the wrappers."""
    return [_spec(config).entry_point, *(find_wrapper(wrapper["id"]) for wrapper in wrappers_of(config))]


def _module(creator: object) -> str:
    """The module that defines a class, a function or `module:Name`, "" where there is none."""
    if isinstance(creator, str):
        return creator.partition(":")[0]
    return creator.__module__ if inspect.isclass(creator) or inspect.isfunction(creator) else ""


def _import_path(creator: Callable[..., Any]) -> str:
    """`module:Name` of a class or a function, "" where no import finds it."""
    name = creator.__qualname__ if _module(creator) else ""
    return f"{_module(creator)}:{name}" if name.isidentifier() else ""
