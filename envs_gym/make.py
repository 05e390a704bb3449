"""Makes the worlds of a config's environment (`make_envs`), and imports the packages that register its id.

Called by training, evaluation, playback and workers. backends.py chooses the code that steps the worlds. Every mistake
in an id, its package, its arguments or its spaces becomes an error of one line here.
"""

import errno
import importlib.util
import inspect
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, Protocol, get_args, get_origin, get_type_hints, runtime_checkable

import gymnasium
import torch
from gymnasium import Env, Space
from gymnasium.envs.registration import EnvSpec

from stride.config.extras import COMPILED, ENVPOOL, EXTRAS, extra_of
from stride.config.foreign import atari_id
from stride.config.loader import shipped_ids
from stride.config.nearby import advice
from stride.config.schema import Config
from stride.envs_fast.vec_env import CPU, VecEnv
from stride.envs_fast.world import WORLDS
from stride.envs_gym import spaces
from stride.envs_gym.backends import make_worlds
from stride.envs_gym.blame import (
    ARGUMENT_ERRORS,
    Blame,
    EnvError,
    Importing,
    creator_of,
    missing,
    ours,
    own_line,
    registered,
)
from stride.envs_gym.on_device import OnDevice
from stride.envs_gym.snapshot import MUJOCO_ENTRY
from stride.envs_gym.wrappers import atari
from stride.utils.own_modules import import_named, imports_left
from stride.utils.screen import import_mujoco
from stride.utils.user_error import UserError, nearest, one_line
from stride.utils.wings import WINGS, load_wing

OWN_ARGUMENTS = ("id", "max_episode_steps", "disable_env_checker")  # set by us, not through env_kwargs

REGISTERED_BY = {  # start of an id -> the module whose import registers such ids
    "ALE/": "ale_py",
    "dm_control/": "dm_control",
    "MiniGrid-": "minigrid",
    "BabyAI-": "minigrid",
    "brax/": WINGS["brax"],
}
COMPILED_MODULE = "stride.envs_fast"  # start of our compiled worlds' entry points; a package may replace such an entry
MADE_BY = {"VizDoom/": "VizDoom", "Retro/": "Retro", "Bandit/": "Bandit"}  # start of an id -> wing that registers it

GIVEN = "given/"  # start of the ids of environments that a program passes as a function (`env=`); see `lent`
USAGE = "env= takes a function that makes an environment, for example env=lambda: MyEnv(), because several are made"
Maker = Callable[..., Env]
UNNUMBERED_HINT = "use env_backend=gym workers=0, or shards=1"
logger = logging.getLogger("stride")
_logged_warnings: set[str] = set()  # texts of MuJoCo's warnings, without their numbers


class UnknownEnvError(UserError):
    """No environment of that id is registered."""


@runtime_checkable
class Numbered(Protocol):
    """Worlds that draw random numbers by their number among all worlds of a training, so that a part plays the same."""

    first_world: int  # number of the first one


class EnvInfo(NamedTuple):
    """Facts about a config's environment, known before a training."""

    reward_threshold: float | None
    max_episode_steps: int | None  # in steps of the policy; None: no limit is known
    is_image: bool  # whether an image is part of the observation
    observation_space: Space  # as the policy sees it
    action_space: Space


def make_envs(config: Config, num_envs: int, device: torch.device = CPU, first_world: int | None = None) -> VecEnv:
    """Make `num_envs` worlds of the config's environment, for a policy on `device`. They start with `reset(seed)`.

    `first_world`: the number of the first one, where these are a part of all worlds of a training (shards): each then
    plays as it would among all.

    `choose_backend` chooses the code that steps the worlds. All backends keep the VecEnv contract, but the numbers of
    an episode differ between them. Results of a backend on the CPU are copied to `device` at each step.
    UserError for mistakes that the user can correct, EnvError for errors of the environment's own code. The caller
    must close the worlds.
    """
    import_module(config.env_id)
    envs = make_worlds(config, num_envs, device)
    if first_world is not None:
        if not isinstance(envs, Numbered):
            envs.close()
            kind = type(envs).__name__
            raise UserError(f"shards: environments of {config.env_id} ({kind}) cannot be numbered; {UNNUMBERED_HINT}")
        envs.first_world = first_world
    return OnDevice(envs, device) if device.type == "cuda" and envs.device.type == "cpu" else envs


def env_info(config: Config) -> EnvInfo:
    """Return the facts about the config's environment; this makes one world and closes it."""
    env = make_envs(config, 1)
    env.close()
    space = env.observation_space
    return EnvInfo(env.reward_threshold, env.time_limit, spaces.has_image(space), space, env.action_space)


@contextmanager
def env_errors(config: Config) -> Iterator[None]:
    """Turn what is raised inside, while worlds are made, into a UserError or EnvError of one line.

    It covers wrong ids, missing packages, wrong arguments, unsupported spaces, and errors of the environment's code.
    """
    env_spec = find_spec(config.env_id)
    kwargs = dict(config.env_kwargs)
    try:
        with Blame(config.env_id, doing="__init__"):
            _check_kwargs(env_spec, kwargs)
            yield
    except UserError as error:
        raise UserError(f"{config.env_id}: {error}") from error
    except EnvError as error:
        cause = error.__cause__ or error
        # too little memory: a MemoryError, or a RuntimeError of our own code; trainer_callbacks reports these
        if (isinstance(cause, MemoryError) and not own_line(cause)) or (type(cause) is RuntimeError and ours(cause)):
            raise cause from None
        raise _making_error(config, env_spec, error, cause) from cause


def _making_error(config: Config, env_spec: EnvSpec, error: EnvError, cause: BaseException) -> UserError | EnvError:
    """Return the error for an environment that cannot be made, with a cure where there is one."""
    name, kwargs = config.env_id, dict(config.env_kwargs)
    if isinstance(cause, gymnasium.error.DependencyNotInstalled):
        return UserError(_missing(env_spec, one_line(str(cause))))
    if isinstance(cause, ImportError):  # Gymnasium raises it for ids that moved to another package
        return UserError(f"{name} cannot be made: {one_line(str(cause))}{_newest(name)}")
    no_file = isinstance(cause, OSError) and cause.errno in (None, errno.ENOENT)
    if kwargs and (no_file or isinstance(cause, (*ARGUMENT_ERRORS, gymnasium.error.Error))):
        hint = _allowed(env_spec, kwargs)
        return UserError(f"{name} refuses env_kwargs {one_line(str(kwargs))}: {error.reason}{hint}")
    return EnvError(f"{name} cannot be made: {error.reason}", error.reason)


def _allowed(env_spec: EnvSpec, kwargs: dict[str, object]) -> str:
    """Return a hint with the values that the constructor's Literal types allow, "" where it has no such types."""
    hints = _types_of(creator_of(env_spec.entry_point))
    for name, value in kwargs.items():
        options = [str(option) for option in get_args(hints.get(name)) if get_origin(hints[name]) is Literal]
        if options and str(value) not in options:
            return nearest(str(value), options) or f"; {name} takes {', '.join(options)}"
    return ""


def _types_of(creator: Any) -> dict[str, Any]:
    """Return name -> type of a constructor's or function's arguments; {} where they cannot be read."""
    try:
        return get_type_hints(vars(creator)["__init__"] if isinstance(creator, type) else creator)
    except (NameError, TypeError, KeyError):  # NameError: a name imported only under TYPE_CHECKING
        return {}


def find_spec(env_id: str) -> EnvSpec:
    """Return Gymnasium's entry of an id (`module:Id-v0` imports the module first).

    UnknownEnvError, with the newest version or the nearest ids, where it is not registered.
    """
    name = import_module(env_id)
    if name in gymnasium.registry:
        return gymnasium.registry[name]
    if is_given(name):
        raise UserError(
            f"{name} was made by a Python function, which commands do not have; continue it from Python with "
            "stride.train(resume=..., env=...) and play it with stride.load(..., env=...)"
        )
    if name.startswith("envpool/"):
        raise UnknownEnvError(f"unknown environment {env_id!r}: {ENVPOOL}")
    newest = "" if atari_id(name) else _newest(name)
    hint = newest or advice(name, [*gymnasium.registry, *shipped_ids()])
    raise UnknownEnvError(f"unknown environment {env_id!r}{hint}")


def import_module(env_id: str) -> str:
    """Import the module that an id names or that registers it; return the id without the module's name.

    Example: "my_envs:Maze-v0" imports my_envs and returns "Maze-v0". "my_envs:" only imports. UserError where the
    module is not installed, ModuleError where it raises.
    """
    module, _, name = env_id.rpartition(":")
    # the module that the id names, else the one that registers ids of its family
    family = next((start for start in REGISTERED_BY if name.startswith(start)), "")
    module = module or REGISTERED_BY.get(family, "")
    if module:
        try:
            with Importing(module):
                import_named(module)
                _prepare(module)
        except EnvError as error:
            if not missing(error, module):  # the module is installed, but its own code raised
                raise
            extra = extra_of(name)
            if name == env_id and name in WORLDS:
                pass  # Stride has a compiled version, which does not need the package
            elif extra and extra.module == module:
                hint = nearest(name, WORLDS) if COMPILED.match(name) else ""
                raise UserError(f"{extra.need(env_id)}{hint}") from error
            else:
                raise UserError(f"{env_id}: there is no Python module {module!r}") from error
    # ids that are registered one by one, when they are asked for
    for start, wing in MADE_BY.items():
        if name.startswith(start) and name not in gymnasium.registry:
            try:
                load_wing(wing).register(name)
            except gymnasium.error.Error as error:
                raise UserError(f"{name!r} is not an environment id: [namespace/]name[-vN], no spaces") from error
    entry = registered(name)
    if name and (entry is None or str(entry.entry_point).startswith(COMPILED_MODULE)):
        # the id may be registered by a module that the user's project lists in its settings
        for listed in imports_left():
            import_module(f"{listed}:")
    _redirect_mujoco_warnings(name)
    return name


def _prepare(module: str) -> None:
    """Set up a package of environments after its import: register dm_control's ids, silence ale-py."""
    if module == "dm_control":
        load_wing("dm_control").register()
    elif module == "ale_py":
        atari.silence()


def _redirect_mujoco_warnings(env_id: str) -> None:
    """Log each kind of MuJoCo's warnings once in a process; MuJoCo writes each one into a file MUJOCO_LOG.TXT."""
    env_spec = registered(env_id)
    if env_spec and str(env_spec.entry_point).startswith(MUJOCO_ENTRY) and importlib.util.find_spec("mujoco"):
        import_mujoco().set_mju_user_warning(_log_mujoco_warning)


def _log_mujoco_warning(warning: str) -> None:
    kind = re.sub(r"[0-9.]+", "", warning)  # without numbers: the joint and the time differ at each warning
    if " is deprecated " not in warning and kind not in _logged_warnings:  # deprecated: Gymnasium's own model files
        _logged_warnings.add(kind)
        logger.warning(f"MuJoCo: {warning}")


def _newest(env_id: str) -> str:
    """Return `"; the newest version is X"` where the id's name exists in another version, else `""`."""
    stem = re.sub(r"-v\d+$", "", env_id)
    versions = [env_spec for env_spec in gymnasium.registry.values() if re.sub(r"-v\d+$", "", env_spec.id) == stem]
    newest = max(versions, key=lambda env_spec: env_spec.version or 0, default=None)
    return f"; the newest version is {newest.id}" if newest is not None and newest.id != env_id else ""


def _missing(env_spec: EnvSpec, reason: str) -> str:
    """Return the message for a missing package: the extra to install, or Gymnasium's reason where no extra has it."""
    registering = [extra for extra in EXTRAS if extra.registers and env_spec.id.startswith(extra.ids)]
    builtin = [extra for extra in EXTRAS if f"gymnasium.envs.{extra.name}" in str(env_spec.entry_point)]
    for extra in registering + builtin:
        return extra.need(env_spec.id)
    return f"{env_spec.id} needs a package that is not installed: {reason}"


def _check_kwargs(env_spec: EnvSpec, kwargs: dict[str, object]) -> None:
    """UserError for arguments that the constructor does not have, and for required ones that are missing.

    A constructor with **kwargs (MuJoCo's, for example) accepts every name, and decides itself.
    """
    for name in OWN_ARGUMENTS:
        if name in kwargs:
            raise UserError(f"env_kwargs cannot set {name!r}; max_episode_steps is a separate key")
    if env_spec.entry_point is None:
        return
    parameters = inspect.signature(creator_of(env_spec.entry_point)).parameters.values()
    # name -> whether it is required
    accepted = {p.name: p.default is p.empty for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    names = ", ".join(accepted) or "none"
    for argument in kwargs:
        if argument not in accepted and not open_ended:
            raise UserError(f"env_kwargs has no {argument!r}{nearest(argument, accepted)}; accepted: {names}")
    for argument, required in accepted.items():
        if required and argument not in {**env_spec.kwargs, **kwargs}:
            raise UserError(f"env_kwargs must give {argument!r}; accepted: {names}")


def is_given(env_id: str) -> bool:
    """Whether the id is of an environment that a program passed as a function (`given/...`)."""
    return env_id.startswith(GIVEN)


def id_of(maker: Maker) -> str:
    """Return `given/MyEnv`, the id for a function's environment, by its class; this makes a world and closes it."""
    if isinstance(maker, Env) or not callable(maker):
        raise UserError(f"{USAGE}; this is {type(maker).__name__}")
    with Blame("env=", doing="__init__"):
        env = maker()
    if not isinstance(env, Env):
        raise UserError(f"{USAGE}; this one makes {type(env).__name__}, which is not a gymnasium.Env")
    with Blame("env=", [env], "close"):
        env.close()
    return GIVEN + type(env.unwrapped).__name__


@contextmanager
def lent(env_id: str, maker: Maker) -> Iterator[None]:
    """Keep an id registered in Gymnasium while the caller's block runs; `maker` makes its worlds."""
    gymnasium.register(env_id, entry_point=maker)
    try:
        yield
    finally:
        del gymnasium.registry[env_id]
