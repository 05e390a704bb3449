"""check-env's first part: is it a Gymnasium environment, with correct spaces, and correct results of reset and step."""

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
from gymnasium import Env, Space, spaces
from gymnasium.spaces import Box, Dict, Discrete

from stride.envs_gym import spaces as stride_spaces
from stride.envs_gym.answers import check_flags, real, shown
from stride.envs_gym.blame import Blame
from stride.envs_gym.check.finding import FAULT, Findings, finding
from stride.envs_gym.check.study import StopError, Study
from stride.utils.user_error import UserError

STOP_REASON = "fix its interface first: all other checks need it"


def check_form(study: Study) -> Findings:
    """Check class, spaces and results; StopError where reset and step cannot be called in Gymnasium's way."""
    with study.calling("__init__"):
        bare = study.subject.bare()
    yield from _check_base_class(bare)
    findings = [*_check_spaces(bare), *_check_signature(bare)]
    if not findings:
        findings = list(_check_answers(study, bare))
    yield from findings
    if any(finding.level == FAULT for finding in findings):
        raise StopError(STOP_REASON)
    with study.world() as world:
        env = world.env
        measurements = study.measurements
        if env.spec is not None:  # the declared time limit; the environment may have an undeclared one of its own
            measurements.time_limit = env.spec.max_episode_steps
        if study.subject.spec is not None:
            measurements.reward_threshold = study.subject.spec.reward_threshold
        measurements.observation_space = short(env.observation_space)
        measurements.action_space = short(env.action_space)
        yield from _check_support(env)
        yield from _check_images(env.observation_space)
        yield from _check_action_space(env.action_space)


def _check_base_class(bare: Any) -> Findings:
    """Report an object that is no gymnasium.Env, and stop the check."""
    if isinstance(bare, Env):
        return
    bases = [f"{base.__module__}.{base.__name__}" for base in type(bare).__mro__[1:-1]]
    if any(name.startswith("gym.") for name in bases):
        parent = "the old package gym's Env"
    else:
        parent = ", ".join(bases) or "nothing"
    yield finding("not-gymnasium", f"{type(bare).__name__} is derived from {parent}, not from gymnasium.Env")
    raise StopError(STOP_REASON)


def _check_spaces(bare: Env) -> Findings:
    for name in ("observation_space", "action_space"):
        try:
            space = bare.observation_space if name == "observation_space" else bare.action_space
        except AttributeError:
            yield finding("space-missing", f"it has no {name} after __init__")
            continue
        if not isinstance(space, spaces.Space):
            yield finding("space-missing", f"its {name} is {shown(space)}, not one of gymnasium.spaces")


def _check_signature(bare: Env) -> Findings:
    parameters = inspect.signature(bare.reset).parameters
    if "seed" not in parameters and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        yield finding("reset-without-seed", f"its reset takes {list(parameters) or 'no arguments'}")


def _check_answers(study: Study, bare: Env) -> Findings:
    """Call reset and step once, without Gymnasium's wrappers, and check their results."""
    blame = Blame(study.subject.name, [bare])
    with study.calling("reset"), blame.during("reset"):
        result: Any = bare.reset(seed=0)
    if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
        yield finding("old-reset", f"its reset returns {shown(result)}, not (observation, info)")
        return
    bare.action_space.seed(0)
    action = bare.action_space.sample()
    with study.calling("step"), blame.during("step"):
        result = bare.step(action)
    if not isinstance(result, tuple) or len(result) != 5:
        count = f"{len(result)} values" if isinstance(result, tuple) else shown(result)
        yield finding("old-step", f"its step returns {count}, not (observation, reward, terminated, truncated, info)")
        return
    _, reward, terminated, truncated, info = result
    for name, problem in flag_and_reward_problems(reward, terminated, truncated):
        yield finding(name, problem)
    if not isinstance(info, dict):
        yield finding("info-not-dict", f"info is {shown(info)}")


def flag_and_reward_problems(reward: Any, terminated: Any, truncated: Any) -> Iterator[tuple[str, str]]:
    """Yield (name of the finding, evidence) for flags that are not booleans, and for a reward that is not a number."""
    try:
        check_flags(terminated, truncated)
    except TypeError as error:
        yield "flag-not-bool", str(error)
    try:
        real(reward)
    except TypeError as error:
        yield "reward-not-number", str(error)


def _check_support(env: Env) -> Findings:
    try:
        stride_spaces.observation_space(env.observation_space)
        stride_spaces.actions(env.action_space)
    except (UserError, ValueError) as error:
        yield finding("unfit-for-stride", str(error))


def _check_images(space: Space) -> Findings:
    for name, component in stride_spaces.leaf_spaces(space, "observation"):
        image = isinstance(component, Box) and len(component.shape) == 3 and component.shape[-1] in (1, 3, 4)
        if image and component.dtype != np.uint8:
            form = f"{list(component.shape or ())}, of {component.dtype}"
            yield finding("float-image", f"{name} looks like an image, {form}")


def _check_action_space(space: Space) -> Findings:
    if isinstance(space, Discrete) and space.start != 0:
        yield finding("discrete-start", f"actions count from {space.start} to {space.start + space.n - 1}")
    if not isinstance(space, Box):
        return
    bounded = space.bounded_below & space.bounded_above
    if not bounded.all():
        yield finding("action-bounds-infinite", f"{int((~bounded).sum())} of {bounded.size} actions have no bounds")
    scaled = bounded & ((space.low != -1) | (space.high != 1))
    if scaled.any():
        lower = space.low[scaled].min()
        upper = space.high[scaled].max()
        evidence = f"{int(scaled.sum())} of {scaled.size} actions are in {lower:.3g} to {upper:.3g}"
        yield finding("action-not-normalised", evidence)


def short(space: Space) -> str:
    """Return a space in a few words, such as "Box [4] float32, -1 to 1"."""
    if isinstance(space, Discrete):
        return f"Discrete {space.n}" + (f" from {space.start}" if space.start else "")
    if isinstance(space, Box):
        lower = space.low.min(initial=0)
        upper = space.high.max(initial=0)
        return f"Box {list(space.shape)} {space.dtype}, {lower:.3g} to {upper:.3g}"
    if isinstance(space, Dict):
        return "Dict of " + ", ".join(f"{key}: {short(component)}" for key, component in space.spaces.items())
    return str(space)
