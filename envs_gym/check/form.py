"""The form of an environment: is it Gymnasium's, what do reset and step answer, and what are its spaces."""

import inspect
from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from stride.envs_gym import spaces as stride_spaces
from stride.envs_gym.answers import check_flags, real, shown
from stride.envs_gym.blame import Blame
from stride.envs_gym.check.catalogue import finding
from stride.envs_gym.check.finding import Finding
from stride.envs_gym.check.study import StopError, Study
from stride.utils.user_error import UserError


def check_form(study: Study) -> Iterator[Finding]:
    """StopError where reset and step cannot be called as everybody calls them."""
    with study.watched("__init__"):
        bare = study.subject.bare()
    yield from _kind(bare)
    found = [*_spaces(bare), *_signature(bare)]
    if not found:
        found = [*_answers(study, bare)]
    yield from found
    if any(each.level == "fault" for each in found):
        raise StopError("mend its form first: whatever else is checked needs it")
    with study.world() as world:
        spec = world.env.spec  # of the wrapper that keeps the limit; an undeclared one may lie deeper
        study.facts.time_limit = None if spec is None else spec.max_episode_steps
        study.facts.reward_threshold = None if study.subject.spec is None else study.subject.spec.reward_threshold
        study.facts.observation_space, study.facts.action_space = map(
            short, (world.env.observation_space, world.env.action_space)
        )
        yield from _fit(world.env)
        yield from _observation_space(world.env.observation_space)
        yield from _action_space(world.env.action_space)


def _kind(bare: Any) -> Iterator[Finding]:
    if isinstance(bare, gymnasium.Env):
        return
    bases = [f"{kind.__module__}.{kind.__name__}" for kind in type(bare).__mro__[1:-1]]
    old = any(name.startswith("gym.") for name in bases)
    what = "the old package gym's Env" if old else ", ".join(bases) or "nothing"
    yield finding("not-gymnasium", f"{type(bare).__name__} is derived from {what}, not from gymnasium.Env")
    raise StopError("mend its form first: whatever else is checked needs it")


def _spaces(bare: gymnasium.Env[Any, Any]) -> Iterator[Finding]:
    for name in ("observation_space", "action_space"):
        try:
            space = bare.observation_space if name == "observation_space" else bare.action_space
        except AttributeError:
            yield finding("space-missing", f"it has no {name} after __init__")
            continue
        if not isinstance(space, spaces.Space):
            yield finding("space-missing", f"its {name} is {shown(space)}, not one of gymnasium.spaces")


def _signature(bare: gymnasium.Env[Any, Any]) -> Iterator[Finding]:
    parameters = inspect.signature(bare.reset).parameters.values()
    if not any(each.name == "seed" or each.kind is each.VAR_KEYWORD for each in parameters):
        yield finding("reset-without-seed", f"its reset takes {[each.name for each in parameters] or 'nothing'}")


def _answers(study: Study, bare: gymnasium.Env[Any, Any]) -> Iterator[Finding]:
    """One reset and one step, by hand."""
    name = study.subject.words
    with study.watched("reset"), Blame(name, [bare], "reset"):
        answer: Any = bare.reset(seed=0)
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[1], dict):
        yield finding("old-reset", f"its reset answers {shown(answer)}, not (observation, info)")
        return
    bare.action_space.seed(0)
    action = bare.action_space.sample()
    with study.watched("step"), Blame(name, [bare], "step"):
        answer = bare.step(action)
    if not isinstance(answer, tuple) or len(answer) != 5:
        count = f"{len(answer)} things" if isinstance(answer, tuple) else shown(answer)
        yield finding("old-step", f"its step answers {count}, not (observation, reward, terminated, truncated, info)")
        return
    _, reward, terminated, truncated, info = answer
    yield from flags_and_reward(reward, terminated, truncated)
    if not isinstance(info, dict):
        yield finding("info-not-dict", f"info is {shown(info)}")


def flags_and_reward(reward: Any, terminated: Any, truncated: Any) -> Iterator[Finding]:
    """What is no number, and no flag."""
    try:
        check_flags(terminated, truncated)
    except TypeError as error:
        yield finding("flag-not-bool", str(error))
    try:
        real(reward)
    except TypeError as error:
        yield finding("reward-not-number", str(error))


def _fit(env: gymnasium.Env[Any, Any]) -> Iterator[Finding]:
    try:
        stride_spaces.observation_space(env.observation_space)
        stride_spaces.actions(env.action_space)
    except (UserError, ValueError) as error:
        yield finding("unfit-for-stride", str(error))


def _observation_space(space: gymnasium.Space[Any]) -> Iterator[Finding]:
    for name, leaf in named_leaves(space):
        image = isinstance(leaf, spaces.Box) and len(leaf.shape) == 3 and leaf.shape[-1] in (1, 3, 4)
        if image and leaf.dtype != np.uint8:
            yield finding("float-image", f"{name} looks like an image, {list(leaf.shape or ())}, of {leaf.dtype}")


def _action_space(space: gymnasium.Space[Any]) -> Iterator[Finding]:
    if isinstance(space, spaces.Discrete) and space.start != 0:
        yield finding("discrete-start", f"actions count from {space.start} to {space.start + space.n - 1}")
    if not isinstance(space, spaces.Box):
        return
    unbounded = ~(space.bounded_below & space.bounded_above)
    if unbounded.any():
        yield finding("action-bounds-infinite", f"{int(unbounded.sum())} of {unbounded.size} actions have no bounds")
    other = ~unbounded & ((space.low != -1) | (space.high != 1))
    if other.any():
        low, high = space.low[other].min(), space.high[other].max()
        yield finding("action-not-normalised", f"{int(other.sum())} of {other.size} lie in {low:.3g} to {high:.3g}")


def named_leaves(space: gymnasium.Space[Any], name: str = "observation") -> Iterator[tuple[str, gymnasium.Space[Any]]]:
    """Every part of a space that has no parts of its own."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, part in parts:
            yield from named_leaves(part, f"{name}.{key}")
    else:
        yield name, space


def short(space: gymnasium.Space[Any]) -> str:
    """A space in a few words."""
    if isinstance(space, spaces.Discrete):
        return f"Discrete {space.n}" + (f" from {space.start}" if space.start else "")
    if isinstance(space, spaces.Box):
        low, high = (f"{bound:.3g}" for bound in (space.low.min(initial=0), space.high.max(initial=0)))
        return f"Box {list(space.shape)} {space.dtype}, {low} to {high}"
    if isinstance(space, spaces.Dict):
        return "Dict of " + ", ".join(f"{key}: {short(part)}" for key, part in space.spaces.items())
    return str(space)
