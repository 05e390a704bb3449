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

BESIDE_SCREEN = ("LifeLoss", "ClipReward", "PongShaper")  # wrappers that leave the screen alone
OWN_OBJECTS = ("ALE/Pong-v5", "ALE/Breakout-v5")  # games whose memory we read ourselves
OBSERVED = ("rgb", "grayscale", "ram", "objects")  # values of an Atari game's obs_type
REWARDING = {  # wrappers that change rewards; one of the user's own may
    "CartPoleShaper", "ClipReward", "DoomHealthShaper", "DoomKillShaper", "MountainCarCountBonus", "MountainCarShaper",
    "PongShaper",
}  # fmt: skip
WrapperConfig = dict[str, Any]  # {"id": Name, ...arguments}, as a config and a worker process hold it

WRAPPERS: dict[str, Callable[..., Env] | None] = {  # None: of a wing, by utils/wings.py
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
    """The wrappers of a world whose episodes end, for learning, where a life is lost."""

    loss: LifeLoss
    stack: AtariScreen | FrameStack | None  # which begins anew with the next life


class WrappedWorld(NamedTuple):
    """One world in its wrappers."""

    env: Env
    raw: RawReward | None  # None where nothing can change the reward
    remembering: tuple[MemoryWrapper, ...]  # those whose memory a checkpoint has to keep
    time_limit: int | None  # in steps of the policy
    lives: LifeLayers | None = None


def wrappers_of(config: Config) -> tuple[WrapperConfig, ...]:
    """Everything a config asks for, innermost first and checked: skipped frames, `env_wrappers`, images, mask.

    A wrapper that takes `gamma` is given the run's own unless the config says otherwise.
    """
    screen = atari_screen(config)
    if screen is not None:
        config = replace(config, grayscale_obs=False, resize_obs=False, frame_stack=1)
    size = SQUARE if config.resize_obs is True else config.resize_obs
    drawn = config.obs == "pixels"  # in the size asked for: drawing more only to shrink it takes twice as long
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
    """Whether a wrapper of `env_wrappers` may hand the agent other rewards than the environment pays."""
    return any(wrapper["id"] in REWARDING or wrapper["id"] not in WRAPPERS for wrapper in config.env_wrappers)


def world_kwargs(config: Config) -> dict[str, Any]:
    """`env_kwargs` as the environment's constructor takes them."""
    return {**config.env_kwargs, "obs_type": "ram"} if shows_objects(config) else dict(config.env_kwargs)


def shows_objects(config: Config) -> bool:
    """Whether a game is to be seen as `obs_type: objects`, which is ours and not ale-py's.

    UserError for another obs_type than there is.
    """
    if not is_atari(config.env_id):
        return False
    obs_type = config.env_kwargs.get("obs_type", "rgb")
    hint = f"{nearest(str(obs_type), OBSERVED)} (it takes {', '.join(OBSERVED)})"
    require(obs_type in OBSERVED, f"{config.env_id} has no env_kwargs.obs_type {obs_type!r}{hint}")
    return obs_type == "objects"


def is_atari(env_id: str) -> bool:
    """Whether an id is one of ale-py's `ALE/Name-v5`, with or without a module before it."""
    return env_id.rpartition(":")[2].startswith("ALE/")


def atari_screen(config: Config) -> WrapperConfig | None:
    """The AtariScreen that `grayscale_obs`, `resize_obs` and `frame_stack` ask for; None where another one is needed.

    It is in the place of the wrappers that make any image grey and small: ALE has its own greys and pools two frames.
    """
    kwargs = config.env_kwargs
    wrapped = any(wrapper["id"] not in BESIDE_SCREEN for wrapper in config.env_wrappers)
    visible = kwargs.get("obs_type", "rgb") in ("rgb", "grayscale") and not kwargs.get("sound_obs")
    changed = config.frame_skip > 1 or config.obs != "native" or not isinstance(kwargs.get("frameskip", 4), int)
    small = config.grayscale_obs or config.resize_obs is not False
    if not (is_atari(config.env_id) and small and visible) or changed or wrapped:
        return None
    grey = config.grayscale_obs or kwargs.get("obs_type") == "grayscale"
    size = SQUARE if config.resize_obs is True else config.resize_obs or None
    return {"id": "AtariScreen", "grayscale": grey, "size": size, "stack": config.frame_stack}


def wrap(env: Env, wrappers: Sequence[WrapperConfig]) -> WrappedWorld:
    """The stack around one world, images channels first at last; UserError where a wrapper refuses its arguments."""
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
    remembering = tuple(layer for layer in layers(stack) if isinstance(layer, MemoryWrapper))
    return WrappedWorld(stack, raw, remembering, step_limit(stack), _lives_of(stack))


def _lives_of(env: Env) -> LifeLayers | None:
    losses = [layer for layer in layers(env) if isinstance(layer, LifeLoss)]
    if not losses:
        return None
    observing = [layer for layer in layers(env) if not isinstance(layer, LifeLoss | ClipReward | PotentialShaper)]
    stacks = [layer for layer in observing if isinstance(layer, AtariScreen | FrameStack)]
    fitting = not stacks or stacks == observing[:1]
    require(fitting, "LifeLoss must be the outermost wrapper, because a frame stack restarts with each life")
    return LifeLayers(losses[0], stacks[0] if stacks else None)


def find_wrapper(wrapper_id: str) -> Callable[..., Env]:
    """The wrapper of that name (`module:Name` imports the module first); UserError with the nearest names."""
    module, _, name = wrapper_id.rpartition(":")
    if is_dotted(wrapper_id):
        import_named(module, "env_wrappers")  # which may put it under its name into the table
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
    """The arguments with the run's gamma where one is taken; unknown and missing ones are refused."""
    name = str(wrapper["id"])
    _, *parameters = inspect.signature(find_wrapper(name)).parameters.values()  # the first is the world
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
