"""How many processes step Gymnasium's worlds: as configured, else by what a step costs. The bits are the same."""

import inspect
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium
import torch
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.spaces import Box

from stride.config.schema import Config
from stride.envs_fast.vec_env import Obs
from stride.envs_gym.backends import choose_backend
from stride.envs_gym.given import is_given
from stride.envs_gym.gym_env import GymEnv
from stride.envs_gym.wrappers.registry import find_wrapper, world_kwargs, wrappers_of
from stride.utils.resources import cores
from stride.utils.user_error import UserError

PAYS = 0.5e-3  # seconds of a step from which on processes pay (docs/decisions/38-who-steps-the-worlds.md)
STEPS, LONG = 4, 0.05  # steps that are timed, the first of them not counted; seconds after which no other one is needed


class Workers(NamedTuple):
    """How many processes, 0: none but this one, and why."""

    number: int
    reason: str


class Origin(NamedTuple):
    """Where worlds come from that a worker would not find by their id alone."""

    modules: Sequence[str] = ()  # that register them or their wrappers
    spec: EnvSpec | None = None


_measured: dict[str, float] = {}  # seconds of a step, by what is stepped: asked for training, evaluation and header


def choose_workers(config: Config) -> Workers:
    """What a training of this config takes; `auto` makes a world and steps it, once in a process.

    UserError where processes are asked for that could not know the worlds.
    """
    if config.workers == 0:
        return Workers(0, "as configured")
    kept = kept_here(config)
    if config.workers != "auto":
        if kept:
            raise UserError(f"workers: {config.workers} processes cannot make {config.env_id}: {kept}; take workers=0")
        return Workers(min(config.workers, config.n_envs), "as configured")
    most = min(cores(), config.n_envs)
    if kept or most < 2:
        return Workers(0, kept or ("one world" if config.n_envs == 1 else "one core"))
    if wants_none(config):
        return Workers(0, "the world says that they do not pay")
    seconds = step_cost(config)
    told = f"a step takes {1000 * seconds:.2g} ms, processes pay from {1000 * PAYS:g} ms on"
    return Workers(most if seconds >= PAYS else 0, told)


def workers_of(config: Config) -> Workers:
    """Of whatever backend plays the config: only Gymnasium's worlds are stepped by workers."""
    if choose_backend(config).name != "gym":
        return Workers(0, "")
    return choose_workers(config)


def step_cost(config: Config) -> float:
    """Seconds of a step of one world, roughly: no more than is needed to tell 0.03 ms from 3."""
    wrappers = wrappers_of(config)
    key = json.dumps([config.env_id, world_kwargs(config), wrappers, config.max_episode_steps], default=repr)
    if key not in _measured:
        asked = world_kwargs(config), config.max_episode_steps, wrappers
        env = GymEnv(config.env_id, 1, *asked, step_timeout=config.step_timeout)
        obs = env.reset(config.seed)
        times: list[float] = []
        while len(times) < STEPS and max(times, default=0.0) < LONG:
            action = _some_action(env, obs)
            began = time.perf_counter()
            obs = env.step(action).obs
            times.append(time.perf_counter() - began)
        env.close()
        _measured[key] = min(times[1:] or times)  # the least disturbed one
    return _measured[key]


def _some_action(env: GymEnv, obs: Obs) -> torch.Tensor:
    """Nothing, or the first choice; of those that make sense where the world says which do."""
    space = env.action_space
    if isinstance(obs, dict) and "action_mask" in obs:
        return obs["action_mask"].int().argmax(-1)
    return torch.zeros((1, *(space.shape or ())), dtype=torch.float32 if isinstance(space, Box) else torch.int64)


def wants_none(config: Config) -> bool:
    """Whether a world says of itself, in its class's metadata, that workers do not pay: where it is a process, say."""
    made = _spec(config).entry_point
    maker = load_env_creator(made) if isinstance(made, str) else made
    return inspect.isclass(maker) and issubclass(maker, gymnasium.Env) and maker.metadata.get("workers") == 0


def kept_here(config: Config) -> str:
    """Why another process could not make these worlds, "" where it can."""
    if is_given(config.env_id):
        return "this program makes them by a function of its own"
    makers = [_spec(config).entry_point, *(find_wrapper(wrapper["id"]) for wrapper in wrappers_of(config))]
    lost = [maker for maker in makers if maker is not None and not isinstance(maker, str) and not _text(maker)]
    if lost or any(_module(maker) == "__main__" for maker in makers):
        return "they are defined in the program itself, outside of any module"
    return "" if _plain(_spec(config).kwargs) else "they are registered with arguments that only this program has"


def origin(config: Config) -> Origin:
    """From where a process that was just started knows them."""
    spec = _spec(config)
    entry = spec.entry_point
    made = entry if entry is None or isinstance(entry, str) else _text(entry)
    makers = [entry, *(find_wrapper(wrapper["id"]) for wrapper in wrappers_of(config))]
    modules = [config.env_id.rpartition(":")[0], *map(_module, makers)]
    return Origin(tuple(dict.fromkeys(filter(None, modules))), replace(spec, entry_point=made, vector_entry_point=None))


def _spec(config: Config) -> EnvSpec:
    return gymnasium.registry[config.env_id.rpartition(":")[2]]


def _module(maker: object) -> str:
    """Where a class, a function or `module:Name` is defined, "" where that is nowhere."""
    if isinstance(maker, str):
        return maker.partition(":")[0]
    return maker.__module__ if inspect.isclass(maker) or inspect.isfunction(maker) else ""


def _text(maker: Callable[..., Any]) -> str:
    """`module:Name` of a class or a function, "" of what no import finds."""
    name = maker.__qualname__ if _module(maker) else ""
    return f"{_module(maker)}:{name}" if name.isidentifier() else ""


def _plain(kwargs: Mapping[str, object]) -> bool:
    """Whether these arguments are data, which another process can be told."""
    try:
        json.dumps(kwargs)
    except (TypeError, ValueError):
        return False
    return True
