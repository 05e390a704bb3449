"""Every wrapper by the name a config gives it, and how a config's wishes become one stack around each world.

One of your own is `id: your_module:Name`, where Name(env, **arguments) is a gymnasium.Wrapper; or the name that an
installed package gives it by an entry point of the group stride.wrappers, or a module by `WRAPPERS["Name"] = Name`.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gymnasium import Env

from stride.config.plugins import find, import_named, is_dotted, registered
from stride.config.schedule import Schedule
from stride.config.schema import Config
from stride.envs_gym.blame import ARGUMENT_ERRORS
from stride.envs_gym.wrappers.actions import ActionMask, ActionRemapper, CarRacingPedals, StickyActions
from stride.envs_gym.wrappers.atari import AtariScreen, ClipReward, LifeLoss
from stride.envs_gym.wrappers.base import MemoryWrapper, RawReward, layers, require
from stride.envs_gym.wrappers.frames import FrameSkip, FrameStack, TimeLimit, step_limit
from stride.envs_gym.wrappers.images import SQUARE, GrayscaleObservation, ResizeObservation, channel_first
from stride.envs_gym.wrappers.observations import DiscreteEncoder, SelectObservation
from stride.envs_gym.wrappers.pixels import PixelObservation
from stride.envs_gym.wrappers.shaping import (
    CartPoleShaper,
    CountBonus,
    MountainCarCountBonus,
    MountainCarShaper,
    PotentialShaper,
)
from stride.utils.user_error import UserError, nearest
from stride.utils.wings import load_wing

SCREEN_KEEPERS = ("LifeLoss", "ClipReward", "PongShaper")  # wrappers that do not change the screen
OWN_OBJECTS = ("ALE/Pong-v5", "ALE/Breakout-v5")  # games whose memory atari_objects.py reads; others need OCAtari
ATARI_OBS_TYPES = ("rgb", "grayscale", "ram", "objects")  # values of an Atari game's obs_type
REWARD_WRAPPERS = {  # Stride's wrappers that change rewards; the user's own wrappers may, too
    "CartPoleShaper", "ClipReward", "DoomHealthShaper", "DoomKillShaper", "MountainCarCountBonus", "MountainCarShaper",
    "PongShaper",
}  # fmt: skip
WrapperConfig = dict[str, Any]  # {"id": name, ...arguments}, such as {"id": "FrameSkip", "skip": 4}

WRAPPERS: dict[str, Callable[..., Env] | None] = {  # None: imported when it is used, by utils/wings.py
    "ActionMask": ActionMask,
    "ActionRemapper": ActionRemapper,
    "AtariObjects": None,
    "AtariScreen": AtariScreen,
    "BreakoutFeatures": None,
    "CartPoleShaper": CartPoleShaper,
    "CarRacingPedals": CarRacingPedals,
    "ClipReward": ClipReward,
    "CountBonus": CountBonus,
    "DiscreteEncoder": DiscreteEncoder,
    "DoomHealthShaper": None,
    "DoomKillShaper": None,
    "FrameSkip": FrameSkip,
    "FrameStack": FrameStack,
    "GrayscaleObservation": GrayscaleObservation,
    "LifeLoss": LifeLoss,
    "MiniGridFlat": None,
    "MiniGridMask": None,
    "MiniGridPlanes": None,
    "MountainCarCountBonus": MountainCarCountBonus,
    "MountainCarShaper": MountainCarShaper,
    "OCAtariObjects": None,
    "PixelObservation": PixelObservation,
    "PongFeatures": None,
    "PongShaper": None,
    "ResizeObservation": ResizeObservation,
    "SelectObservation": SelectObservation,
    "StickyActions": StickyActions,
    "TimeLimit": TimeLimit,
}


class LifeLayers(NamedTuple):
    """The wrappers of a world in which a lost life ends the episode for learning."""

    loss: LifeLoss
    stack: AtariScreen | FrameStack | None  # the stack of frames, which restarts with each life


class WrappedWorld(NamedTuple):
    """One world with its wrappers."""

    env: Env  # the outermost wrapper
    raw: RawReward | None  # None where no wrapper can change the reward
    memory_wrappers: tuple[MemoryWrapper, ...]  # wrappers whose memory a checkpoint must have
    time_limit: int | None  # in steps of the policy
    lives: LifeLayers | None = None


def wrappers_of(config: Config) -> tuple[WrapperConfig, ...]:
    """Return all wrappers of a config, innermost first: FrameSkip, `env_wrappers`, those for images, the mask.

    Names and arguments are checked (UserError). A wrapper with an argument `gamma` gets the run's gamma unless the
    config sets it.
    """
    screen = atari_screen(config)
    if screen is not None:
        config = replace(config, grayscale_obs=False, resize_obs=False, frame_stack=1)
    size = SQUARE if config.resize_obs is True else config.resize_obs
    drawn = config.obs == "pixels"  # drawn in the final size: drawing more and shrinking it takes twice as long
    wrappers = []
    if screen is not None:
        wrappers.append(screen)
    if shows_objects(config):
        wrappers.append({"id": "AtariObjects" if config.env_id in OWN_OBJECTS else "OCAtariObjects"})
    if config.frame_skip > 1:
        wrappers.append({"id": "FrameSkip", "skip": config.frame_skip})
    wrappers += map(dict, config.env_wrappers)
    if drawn:
        wrappers.append({"id": "PixelObservation", "size": size or SQUARE})
    if config.grayscale_obs:
        wrappers.append({"id": "GrayscaleObservation"})
    if size is not False and not drawn:
        wrappers.append({"id": "ResizeObservation", "size": size})
    if config.frame_stack > 1:
        wrappers.append({"id": "FrameStack", "frames": config.frame_stack})
    if config.action_mask:
        wrappers.append({"id": "ActionMask", "valid_actions": config.spec.valid_actions})
    return tuple(_with_gamma(wrapper, config.gamma) for wrapper in wrappers)


def may_change_rewards(config: Config) -> bool:
    """Whether a wrapper of `env_wrappers` may change the environment's rewards for the agent."""
    return any(wrapper["id"] in REWARD_WRAPPERS or wrapper["id"] not in WRAPPERS for wrapper in config.env_wrappers)


def world_kwargs(config: Config) -> dict[str, Any]:
    """Return `env_kwargs` for the environment's constructor: Stride's `obs_type: objects` becomes ale-py's `ram`."""
    return {**config.env_kwargs, "obs_type": "ram"} if shows_objects(config) else dict(config.env_kwargs)


def shows_objects(config: Config) -> bool:
    """Whether an Atari game is observed by `obs_type: objects`, which Stride adds to ale-py's types.

    UserError for an unknown obs_type.
    """
    if not is_atari(config.env_id):
        return False
    obs_type = config.env_kwargs.get("obs_type", "rgb")
    hint = f"{nearest(str(obs_type), ATARI_OBS_TYPES)} (it takes {', '.join(ATARI_OBS_TYPES)})"
    require(obs_type in ATARI_OBS_TYPES, f"{config.env_id} has no env_kwargs.obs_type {obs_type!r}{hint}")
    return obs_type == "objects"


def is_atari(env_id: str) -> bool:
    """Whether an id is one of ale-py's (`ALE/Name-v5`), with or without `module:` before it."""
    return env_id.rpartition(":")[2].startswith("ALE/")


def atari_screen(config: Config) -> WrapperConfig | None:
    """Return the AtariScreen for `grayscale_obs`, `resize_obs` and `frame_stack`; None where it cannot be used.

    It replaces the general wrappers for images: ALE has its own grey values, and takes the brighter of two frames.
    """
    kwargs = config.env_kwargs
    wrapped = any(wrapper["id"] not in SCREEN_KEEPERS for wrapper in config.env_wrappers)
    visible = kwargs.get("obs_type", "rgb") in ("rgb", "grayscale") and not kwargs.get("sound_obs")
    changed = config.frame_skip > 1 or config.obs != "native" or not isinstance(kwargs.get("frameskip", 4), int)
    small = config.grayscale_obs or config.resize_obs is not False
    if not (is_atari(config.env_id) and small and visible) or changed or wrapped:
        return None
    grey = config.grayscale_obs or kwargs.get("obs_type") == "grayscale"
    size = SQUARE if config.resize_obs is True else config.resize_obs or None
    return {"id": "AtariScreen", "grayscale": grey, "size": size, "stack": config.frame_stack}


def wrap(env: Env, wrappers: Sequence[WrapperConfig]) -> WrappedWorld:
    """Wrap one world, innermost wrapper first, and put channels of images first.

    UserError where a wrapper cannot be made with its arguments.
    """
    if not wrappers and channel_first(env) is env:
        return WrappedWorld(env, None, (), step_limit(env))
    raw = RawReward(env)
    stack: Env = raw
    for wrapper in wrappers:
        arguments = {key: value for key, value in wrapper.items() if key != "id"}
        try:
            stack = find_wrapper(wrapper["id"])(stack, **arguments)
        except UserError:
            raise
        except ARGUMENT_ERRORS as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise UserError(
                f"env_wrappers: {wrapper['id']} refuses {arguments or 'the environment'}: {reason}"
            ) from error
    stack = channel_first(stack)
    memory_wrappers = tuple(layer for layer in layers(stack) if isinstance(layer, MemoryWrapper))
    return WrappedWorld(stack, raw, memory_wrappers, step_limit(stack), _lives_of(stack))


def _lives_of(env: Env) -> LifeLayers | None:
    """Return the LifeLoss of a world and its stack of frames; None without LifeLoss."""
    losses = [layer for layer in layers(env) if isinstance(layer, LifeLoss)]
    if not losses:
        return None
    observing = [layer for layer in layers(env) if not isinstance(layer, LifeLoss | ClipReward | PotentialShaper)]
    stacks = [layer for layer in observing if isinstance(layer, AtariScreen | FrameStack)]
    fitting = not stacks or stacks == observing[:1]
    require(fitting, "LifeLoss must be the outermost wrapper, because a frame stack restarts with each life")
    return LifeLayers(losses[0], stacks[0] if stacks else None)


def find_wrapper(wrapper_id: str) -> Callable[..., Env]:
    """Return the wrapper of that name (`module:Name` imports the module first); UserError, with the nearest names."""
    module, _, name = wrapper_id.rpartition(":")
    if is_dotted(wrapper_id):
        import_named(module, "env_wrappers")  # the module may add its wrapper to WRAPPERS
    wrapper = WRAPPERS.get(name)
    if wrapper is None and name in WRAPPERS:
        wrapper = vars(load_wing(name))[name]
    wrapper = wrapper or find("env_wrappers", "wrappers", wrapper_id)
    if wrapper is None:
        names = [*WRAPPERS, *registered("wrappers")]
        hint = f"{nearest(name, names)} (train.py --help wrappers shows all)"
        raise UserError(f"env_wrappers: {name!r} is not registered{hint}")
    if not callable(wrapper) or (isinstance(wrapper, type) and not issubclass(wrapper, Env)):
        raise UserError(f"env_wrappers: {wrapper_id} is not a gymnasium.Wrapper, or a function that makes one")
    return wrapper


def _with_gamma(wrapper: WrapperConfig, gamma: float | Schedule) -> WrapperConfig:
    """Add the run's gamma where the wrapper has that argument; UserError for unknown and for missing arguments."""
    name = str(wrapper["id"])
    _, *parameters = inspect.signature(find_wrapper(name)).parameters.values()  # the first parameter is the world
    # name -> whether it is required
    accepted = {p.name: p.default is p.empty for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    hint = f"accepted: {', '.join(accepted) or 'none'}"
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for argument in wrapper:
        if argument != "id" and argument not in accepted and not open_ended:
            raise UserError(f"env_wrappers: {name} has no {argument!r}{nearest(argument, accepted)}; {hint}")
    if "gamma" in accepted and "gamma" not in wrapper:
        require(not isinstance(gamma, Schedule), f"env_wrappers: {name} needs a constant gamma, not a schedule")
    if "gamma" in accepted:
        wrapper = {"gamma": gamma, **wrapper}
    for argument, required in accepted.items():
        if required and argument not in wrapper:
            raise UserError(f"env_wrappers: {name} needs {argument!r}; {hint}")
    return wrapper
