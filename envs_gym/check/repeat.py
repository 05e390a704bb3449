"""Whether the same happens again: under one seed, in another instance, beside another, after another episode."""

import random
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch

from envs_gym.check.catalogue import finding
from envs_gym.check.finding import FAULT, NOTE, Finding
from envs_gym.check.study import Actor, Study
from envs_gym.check.world import World, copied, distance

SEED, OTHER_SEED = 7, 99
STEPS = 150
STARTS = 6
NOT_THEIRS = (gymnasium.Env.__module__, gymnasium.utils.EzPickle.__module__, "typing")
ROUNDING = 1e-3  # differences below begin in the last digits
Moment = tuple[Any, Any, Any, Any]  # observation, reward, terminated, truncated


class Trace(NamedTuple):
    """What happened, copied, and the observations themselves as they were handed over."""

    moments: list[Moment]
    handed: list[Any]


def check_repeatability(study: Study) -> Iterator[Finding]:
    until = study.until(0.03)  # of the first trace; there are up to nine
    with study.world() as first, study.world() as second:
        kind = type(first.env.unwrapped)
        classes, generators = _class_attributes(kind), _global_generators()
        once = trace(first, SEED, STEPS, until)
        drawn = [name for name, state in _global_generators().items() if state != generators[name]]
        yield from _overwritten(once)
        steps = len(once.moments) - 1
        again, elsewhere = trace(first, SEED, steps), trace(second, SEED, steps)
        changed = [name for name, value in _class_attributes(kind).items() if value != classes.get(name)]
        if drawn:
            yield finding("global-random", f"{' and '.join(drawn)} moved in {steps} steps")
        same = apart(once, elsewhere)
        study.repeats = not same
        yield from _repeated(study, same, apart(once, again), changed)
        if not same:
            yield from _side_by_side(first, second, once, changed)
            yield from _scribbled(second, once)
            yield from _starts(study, first, time.monotonic() + 0.1 * study.limits.seconds)


def trace(
    world: World, seed: int, steps: int, until: float = np.inf, other: World | None = None, scribble: bool = False
) -> Trace:
    """The same actions for the same seed; `other` is stepped in between, by other actions.

    `scribble`: each observation is spoilt once it has been copied, as by somebody who works on it in place.
    """
    actor, their = Actor(world.env.action_space, seed), Actor(world.env.action_space, OTHER_SEED)
    obs, info = world.reset(seed)
    handed: list[Any] = [obs]
    moments: list[Moment] = [(copied(obs), None, None, None)]
    theirs: tuple[Any, Any] | None = None if other is None else other.reset(OTHER_SEED)
    for _ in range(steps):
        action = actor.draw(obs, info)
        if scribble:
            _spoil(obs)
        if other is not None and theirs is not None:
            seen, _, ended, cut, extra = other.step(their.draw(*theirs))
            theirs = other.reset() if ended or cut else (seen, extra)
        obs, reward, terminated, truncated, info = world.step(action)
        moments.append((copied(obs), reward, bool(terminated), bool(truncated)))
        handed.append(obs)
        if terminated or truncated:
            obs, info = world.reset()
        if time.monotonic() > until:
            break
    return Trace(moments, handed)


def apart(one: Trace, other: Trace) -> tuple[str, float] | None:
    """Where two traces part, and by how much; None where they are equal."""
    for step, (mine, theirs) in enumerate(zip(one.moments, other.moments, strict=False)):
        where = f"at step {step}" if step else "at reset"
        if by := distance(mine[0], theirs[0]):
            return f"observations part {where} by {by:.2g}", by
        if step and (by := distance(mine[1], theirs[1])):
            return f"rewards part {where} by {by:.2g}", by
        if mine[2:] != theirs[2:]:
            return f"one episode ends {where}, the other does not", np.inf
    return None


def _repeated(
    study: Study, elsewhere: tuple[str, float] | None, again: tuple[str, float] | None, changed: list[str]
) -> Iterator[Finding]:
    if elsewhere and changed:
        yield finding(
            "shared-state", f"{changed[0]} of the class changes, and a second instance then differs: {elsewhere[0]}"
        )
    elif elsewhere:
        level = NOTE if study.unsteady else ""
        yield finding("differs-under-seed", f"two instances, one seed, the same actions: {elsewhere[0]}", level)
    elif again:
        seen = f"the same seed a second time in one instance: {again[0]}"
        yield finding("reset-remembers", seen, NOTE if study.unsteady else FAULT if again[1] > ROUNDING else "")
    elif changed:
        yield finding("class-attribute-changes", f"{', '.join(changed[:4])} changed while it played")


def _side_by_side(first: World, second: World, once: Trace, changed: list[str]) -> Iterator[Finding]:
    beside = apart(once, trace(first, SEED, len(once.moments) - 1, other=second))
    alone = apart(once, trace(first, SEED, len(once.moments) - 1))
    if beside and not alone:
        name = f" (its class changes {changed[0]})" if changed else ""
        yield finding("shared-state", f"stepping a second instance changes the first{name}: {beside[0]}")


def _overwritten(once: Trace) -> Iterator[Finding]:
    for index, (handed, moment) in enumerate(zip(once.handed, once.moments, strict=True)):
        if by := distance(moment[0], handed):
            later = f"the observation of {'step ' + str(index) if index else 'reset'} has changed by {by:.2g} since"
            yield finding("observation-overwritten", later)
            return


def _scribbled(world: World, once: Trace) -> Iterator[Finding]:
    if difference := apart(once, trace(world, SEED, len(once.moments) - 1, scribble=True)):
        yield finding("observation-is-state", f"changing a returned observation changes the world: {difference[0]}")


def _spoil(obs: Any) -> None:
    if isinstance(obs, np.ndarray):
        if obs.flags.writeable and obs.dtype.kind in "fiu":
            obs += np.ones((), obs.dtype)
    elif isinstance(obs, dict | tuple):
        for part in obs.values() if isinstance(obs, dict) else obs:
            _spoil(part)


def _starts(study: Study, world: World, until: float) -> Iterator[Finding]:
    """Whether seeds matter, and whether a reset without a seed goes on from the last."""
    seeded = [copied(world.reset(seed)[0]) for seed in range(STARTS)]
    world.reset(SEED)
    unseeded = [copied(world.reset()[0]) for _ in range(STARTS)]
    vary = any(distance(seeded[0], each) for each in seeded[1:])
    repeat = not any(distance(unseeded[0], each) for each in unseeded[1:])
    if vary and repeat:
        seen = f"{STARTS} seeds begin differently, but {STARTS} resets without one all alike"
        yield finding("same-start-every-episode", seen)
    elif not vary and repeat and time.monotonic() < until:
        one = trace(world, SEED, 30, until)
        if not any(apart(one, _with_seed(world, seed, until)) for seed in range(3)):
            yield finding("nothing-random", "all seeds begin alike, and the same actions lead to the same")


def _with_seed(world: World, seed: int, until: float) -> Trace:
    """The actions of SEED in a world of another."""
    actor = Actor(world.env.action_space, SEED)
    obs, info = world.reset(seed)
    moments: list[Moment] = [(copied(obs), None, None, None)]
    while len(moments) <= 30 and time.monotonic() < until:
        obs, reward, terminated, truncated, info = world.step(actor.draw(obs, info))
        moments.append((copied(obs), reward, bool(terminated), bool(truncated)))
        if terminated or truncated:
            obs, info = world.reset()
    return Trace(moments, [])


def _global_generators() -> dict[str, str]:
    """Their states as text."""
    state = np.random.get_state(legacy=False)
    return {
        "np.random": repr((state["state"]["key"].tobytes(), state["state"]["pos"])),  # type: ignore[index,call-overload]
        "random": repr(random.getstate()),
        "torch": torch.get_rng_state().numpy().tobytes().hex(),
    }


def _class_attributes(kind: type) -> dict[str, str]:
    """What the classes of an environment hold that can change, as text; Gymnasium's own are left out."""
    found = {}
    for each in kind.__mro__:
        if each is not object and each.__module__ not in NOT_THEIRS:
            for name, value in vars(each).items():
                if not name.startswith("__") and isinstance(value, list | dict | set | np.ndarray | int | float):
                    found[f"{each.__name__}.{name}"] = repr(value)
    return found
