"""Worlds of an environment behind the VecEnv contract, whoever plays it, and what an id needs.

Everything a person can get wrong about an environment becomes one line here.
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
from stride.envs_gym.blame import REFUSALS, Blame, EnvError, Importing, creator_of, missing, ours, own_line, registered
from stride.envs_gym.on_device import OnDevice
from stride.envs_gym.snapshot import MUJOCO
from stride.envs_gym.wrappers import atari
from stride.utils.own_modules import import_named, imports_left
from stride.utils.screen import import_mujoco
from stride.utils.user_error import UserError, nearest, one_line
from stride.utils.wings import WINGS, load_wing

OWN_ARGUMENTS = ("id", "max_episode_steps", "disable_env_checker")  # set by us, not through env_kwargs

REGISTERED_BY = {  # ids that are there once this has been imported
    "ALE/": "ale_py",
    "dm_control/": "dm_control",
    "MiniGrid-": "minigrid",
    "BabyAI-": "minigrid",
    "brax/": WINGS["brax"],
}
OURS = "stride.envs_fast"  # whose ids a package may register itself, once it is imported
MADE_BY = {"VizDoom/": "VizDoom", "Retro/": "Retro", "Bandit/": "Bandit"}  # the wing that makes ids when asked for


GIVEN = "given/"  # ids of environments that a program hands over as a function, known while it lends them
USAGE = "env= takes a function that makes an environment, for example env=lambda: MyEnv(), because several are made"
Maker = Callable[..., Env]
INSTEAD = "use env_backend=gym workers=0, or shards=1"
logger = logging.getLogger("stride")
_logged_warnings: set[str] = set()  # kinds of MuJoCo's warnings


class UnknownEnvError(UserError):
    """Nothing here has registered an environment of that id."""


@runtime_checkable
class Numbered(Protocol):
    """Worlds whose draws go by the number of each among all worlds of a training."""

    first_world: int


class EnvInfo(NamedTuple):
    """Facts about an environment before anything is trained in it."""

    reward_threshold: float | None
    max_episode_steps: int | None
    is_image: bool
    observation_space: Space  # as the policy sees it
    action_space: Space


def make_envs(config: Config, num_envs: int, device: torch.device = CPU, first_world: int | None = None) -> VecEnv:
    """`num_envs` worlds of the config's environment, for a policy on `device`; they start with the first `reset(seed)`.

    `first_world`: the number of their first one, where these are some of many and play as they would among them.

    `choose_backend` says whose worlds, and why: the VecEnv contract is the same, the numbers of an episode are not.
    What a backend computes on the CPU is copied step by step to where the policy is.
    UserError for what a person can right, EnvError for what the environment's own code does. The caller closes them.
    """
    import_module(config.env_id)
    envs = make_worlds(config, num_envs, device)
    if first_world is not None:
        if not isinstance(envs, Numbered):
            envs.close()
            kind = type(envs).__name__
            raise UserError(f"shards: environments of {config.env_id} ({kind}) cannot be numbered; {INSTEAD}")
        envs.first_world = first_world
    return OnDevice(envs, device) if device.type == "cuda" and envs.device.type == "cpu" else envs


def env_info(config: Config) -> EnvInfo:
    """Makes one world to ask it, and closes it again."""
    env = make_envs(config, 1)
    env.close()
    space = env.observation_space
    return EnvInfo(env.reward_threshold, env.time_limit, spaces.has_image(space), space, env.action_space)


@contextmanager
def env_errors(config: Config) -> Iterator[None]:
    """Around making worlds: what is wrong with the id, its extra, its arguments or its spaces becomes one line."""
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
        if (isinstance(cause, MemoryError) and not own_line(cause)) or (type(cause) is RuntimeError and ours(cause)):
            raise cause from None  # a lack of room, which is reported elsewhere
        raise _making_error(config, env_spec, error, cause) from cause


def _making_error(config: Config, env_spec: EnvSpec, error: EnvError, cause: BaseException) -> UserError | EnvError:
    """The error to raise where an environment cannot be made, with the cure where the person has one."""
    name, kwargs = config.env_id, dict(config.env_kwargs)
    if isinstance(cause, gymnasium.error.DependencyNotInstalled):
        return UserError(_missing(env_spec, one_line(str(cause))))
    if isinstance(cause, ImportError):  # what Gymnasium raises for ids that moved elsewhere
        return UserError(f"{name} cannot be made: {one_line(str(cause))}{_newest(name)}")
    no_file = isinstance(cause, OSError) and cause.errno in (None, errno.ENOENT)
    if kwargs and (no_file or isinstance(cause, (*REFUSALS, gymnasium.error.Error))):
        hint = _allowed(env_spec, kwargs)
        return UserError(f"{name} refuses env_kwargs {one_line(str(kwargs))}: {error.reason}{hint}")
    return EnvError(f"{name} cannot be made: {error.reason}", error.reason)


def _allowed(env_spec: EnvSpec, kwargs: dict[str, object]) -> str:
    """The nearest of the values that the constructor's own types allow, "" where they do not tell."""
    hints = _types_of(creator_of(env_spec.entry_point))  # of a class: of its constructor
    for name, value in kwargs.items():
        options = [str(option) for option in get_args(hints.get(name)) if get_origin(hints[name]) is Literal]
        if options and str(value) not in options:
            return nearest(str(value), options) or f"; {name} takes {', '.join(options)}"
    return ""


def _types_of(creator: Any) -> dict[str, Any]:
    """Name -> type of a constructor's arguments; {} where they cannot be read."""
    try:
        return get_type_hints(vars(creator)["__init__"] if isinstance(creator, type) else creator)
    except (NameError, TypeError, KeyError):  # a name that only a type checker knows
        return {}


def find_spec(env_id: str) -> EnvSpec:
    """Gymnasium's entry of an id (`module:Id-v0` imports the module first); nearest ids or newest version if none."""
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
    """The id without the module it names, which is imported: it registers worlds, and maybe policies and wrappers."""
    module, _, name = env_id.rpartition(":")
    family = next((start for start in REGISTERED_BY if name.startswith(start)), "")
    module = module or REGISTERED_BY.get(family, "")
    if module:
        try:
            with Importing(module):
                import_named(module)
                _prepare(module)
        except EnvError as error:
            if not missing(error, module):
                raise
            extra = extra_of(name)
            if name == env_id and name in WORLDS:
                pass  # compiled: the package is not needed
            elif extra and extra.module == module:
                hint = nearest(name, WORLDS) if COMPILED.match(name) else ""
                raise UserError(f"{extra.need(env_id)}{hint}") from error
            else:
                raise UserError(f"{env_id}: there is no Python module {module!r}") from error
    for start, wing in MADE_BY.items():
        if name.startswith(start) and name not in gymnasium.registry:
            try:
                load_wing(wing).register(name)
            except gymnasium.error.Error as error:
                raise UserError(f"{name!r} is not an environment id: [namespace/]name[-vN], no spaces") from error
    entry = registered(name)
    if name and (entry is None or str(entry.entry_point).startswith(OURS)):  # a module that the project lists may, too
        for listed in imports_left():
            import_module(f"{listed}:")
    _redirect_mujoco_warnings(name)
    return name


def _prepare(module: str) -> None:
    """Prepare a package of environments that has been imported."""
    if module == "dm_control":
        load_wing("dm_control").register()
    elif module == "ale_py":
        atari.hush()


def _redirect_mujoco_warnings(env_id: str) -> None:
    """Log MuJoCo's warnings once a process, instead of by every world and into a MUJOCO_LOG.TXT."""
    env_spec = registered(env_id)
    if env_spec and str(env_spec.entry_point).startswith(MUJOCO) and importlib.util.find_spec("mujoco"):
        import_mujoco().set_mju_user_warning(_log_mujoco_warning)


def _log_mujoco_warning(warning: str) -> None:
    kind = re.sub(r"[0-9.]+", "", warning)  # without its joint and time
    if " is deprecated " not in warning and kind not in _logged_warnings:  # deprecated: Gymnasium's own model files
        _logged_warnings.add(kind)
        logger.warning(f"MuJoCo: {warning}")


def _newest(env_id: str) -> str:
    """`"; the newest version is X"` where the id's name exists in another version, else `""`."""
    stem = re.sub(r"-v\d+$", "", env_id)
    versions = [env_spec for env_spec in gymnasium.registry.values() if re.sub(r"-v\d+$", "", env_spec.id) == stem]
    newest = max(versions, key=lambda env_spec: env_spec.version or 0, default=None)
    return f"; the newest version is {newest.id}" if newest is not None and newest.id != env_id else ""


def _missing(env_spec: EnvSpec, reason: str) -> str:
    """Which of our extras brings the missing dependency; Gymnasium's own words where none does."""
    registering = [extra for extra in EXTRAS if extra.registers and env_spec.id.startswith(extra.ids)]
    builtin = [extra for extra in EXTRAS if f"gymnasium.envs.{extra.name}" in str(env_spec.entry_point)]
    for extra in registering + builtin:
        return extra.need(env_spec.id)
    return f"{env_spec.id} needs a package that is not installed: {reason}"


def _check_kwargs(env_spec: EnvSpec, kwargs: dict[str, object]) -> None:
    """Refuse names the environment's constructor does not know (MuJoCo passes unknown ones on; then it decides)."""
    for name in OWN_ARGUMENTS:
        if name in kwargs:
            raise UserError(f"env_kwargs cannot set {name!r}; max_episode_steps is a separate key")
    if env_spec.entry_point is None:
        return
    parameters = inspect.signature(creator_of(env_spec.entry_point)).parameters.values()
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
    """Whether the id is one of these."""
    return env_id.startswith(GIVEN)


def id_of(maker: Maker) -> str:
    """`given/MyEnv`, by the class of a world that is made to ask it, and closed again."""
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
    """While worlds of this id are made, it is known to Gymnasium."""
    gymnasium.register(env_id, entry_point=maker)
    try:
        yield
    finally:
        del gymnasium.registry[env_id]
