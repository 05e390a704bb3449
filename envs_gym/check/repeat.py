"""Whether the same happens again: under one seed, in another instance, beside another, after another episode."""

import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch

from stride.envs_gym.check.catalogue import finding
from stride.envs_gym.check.finding import NOTE, Finding
from stride.envs_gym.check.study import Actor, Study
from stride.envs_gym.check.world import World, copied, distance

SEED, OTHER_SEED = 7, 99
STEPS, FEW = 150, 30
STARTS = 6
TRACES, LEAST = 8, 5  # that are made; steps that each has, however slow
NOT_THEIRS = (gymnasium.Env.__module__, gymnasium.utils.EzPickle.__module__, "typing")
Moment = tuple[Any, Any, Any, Any]  # observation, reward, terminated, truncated
Apart = tuple[str, float] | None  # where two traces part, and by how much; None where they are equal


class Trace(NamedTuple):
    """What happened, copied, and the observations themselves as they were handed over."""

    moments: list[Moment]
    handed: list[Any]


def check_repeatability(study: Study) -> Iterator[Finding]:
    steps = max(LEAST, study.affordable(0.25, TRACES, STEPS))
    with study.world() as first, study.world() as second:
        kind = type(first.env.unwrapped)
        classes, generators = _class_attributes(kind), _global_generators()
        once = trace(first, SEED, steps)
        drawn = [name for name, state in _global_generators().items() if state != generators[name]]
        yield from _overwritten(once)
        again, elsewhere = trace(first, SEED, steps), trace(second, SEED, steps)
        changed = [name for name, value in _class_attributes(kind).items() if value != classes.get(name)]
        if drawn:
            yield finding("global-random", f"{' and '.join(drawn)} moved in {steps} steps")
        there, later = apart(once, elsewhere), apart(once, again)
        study.repeats = not there and not later
        yield from _repeated(study, there, later, changed)
        if study.repeats:
            yield from _disturbed(study, first, second, once, changed)
        if not there:
            yield from _starts(study, first)


def trace(
    world: World, seed: int, steps: int, other: World | None = None, scribble: bool = False, actions: int | None = None
) -> Trace:
    """The same actions for the same seed; `other` is stepped in between, by other actions.

    `actions`: the seed of the actions, where it is another one.
    `scribble`: each observation is spoilt once it has been copied, as by somebody who works on it in place.
    """
    actor = Actor(world.env.action_space, seed if actions is None else actions)
    their = Actor(world.env.action_space, OTHER_SEED)
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
    return Trace(moments, handed)


def apart(one: Trace, other: Trace) -> Apart:
    for step, (mine, theirs) in enumerate(zip(one.moments, other.moments, strict=False)):
        where = f"at step {step}" if step else "at reset"
        if by := distance(mine[0], theirs[0]):
            return f"observations part {where} by {by:.2g}", by
        if step and (by := distance(mine[1], theirs[1])):
            return f"rewards part {where} by {by:.2g}", by
        if mine[2:] != theirs[2:]:
            return f"one episode ends {where}, the other does not", np.inf
    return None


def _repeated(study: Study, elsewhere: Apart, again: Apart, changed: list[str]) -> Iterator[Finding]:
    if elsewhere and changed:
        yield finding(
            "shared-state", f"{changed[0]} of the class changes, and a second instance then differs: {elsewhere[0]}"
        )
    elif elsewhere:
        level = NOTE if study.unsteady else ""
        yield finding("differs-under-seed", f"two instances, one seed, the same actions: {elsewhere[0]}", level)
    elif again:
        seen = f"the same seed a second time in one instance: {again[0]}"
        yield finding("reset-remembers", seen, NOTE if study.unsteady else "")
    elif changed:
        yield finding("class-attribute-changes", f"{', '.join(changed[:4])} changed while it played")


def _disturbed(study: Study, first: World, second: World, once: Trace, changed: list[str]) -> Iterator[Finding]:
    """By another instance, and by who works on observations in place; undisturbed it must still do as before."""
    steps = len(once.moments) - 1
    beside = apart(once, trace(first, SEED, steps, other=second))
    spoilt = apart(once, trace(first, SEED, steps, scribble=True))
    if not beside and not spoilt:
        return
    if undisturbed := apart(once, trace(first, SEED, steps)):
        study.repeats = False
        yield from _repeated(study, None, undisturbed, changed)
        return
    if beside:
        name = f" (its class changes {changed[0]})" if changed else ""
        yield finding("shared-state", f"stepping a second instance changes the first{name}: {beside[0]}")
    if spoilt:
        yield finding("observation-is-state", f"changing a returned observation changes the world: {spoilt[0]}")


def _overwritten(once: Trace) -> Iterator[Finding]:
    for index, (handed, moment) in enumerate(zip(once.handed, once.moments, strict=True)):
        if by := distance(moment[0], handed):
            later = f"the observation of {'step ' + str(index) if index else 'reset'} has changed by {by:.2g} since"
            yield finding("observation-overwritten", later)
            return


def _spoil(obs: Any) -> None:
    if isinstance(obs, np.ndarray):
        if obs.flags.writeable and obs.dtype.kind in "fiu":
            obs += np.ones((), obs.dtype)
    elif isinstance(obs, dict | tuple):
        for part in obs.values() if isinstance(obs, dict) else obs:
            _spoil(part)


def _starts(study: Study, world: World) -> Iterator[Finding]:
    """Whether seeds matter, and whether a reset without a seed goes on from the last."""
    if study.affordable(0.2, 2 * STARTS, 1) < 1:
        yield finding("not-checked", "whether seeds matter: resets take too long")
        return
    seeded = [copied(world.reset(seed)[0]) for seed in range(STARTS)]
    world.reset(SEED)
    unseeded = [copied(world.reset()[0]) for _ in range(STARTS)]
    vary = any(distance(seeded[0], each) for each in seeded[1:])
    repeat = not any(distance(unseeded[0], each) for each in unseeded[1:])
    if vary and repeat:
        seen = f"{STARTS} seeds begin differently, but {STARTS} resets without one all alike"
        yield finding("same-start-every-episode", seen)
    elif not vary and repeat:
        one = trace(world, SEED, FEW)
        if not any(apart(one, trace(world, seed, FEW, actions=SEED)) for seed in range(3)):
            yield finding("nothing-random", "all seeds begin alike, and the same actions lead to the same")


def _global_generators() -> dict[str, str]:
    """Their states as text."""
    state = np.random.get_state(legacy=False)
    return {
        "np.random": repr((state["state"]["key"].tobytes(), state["state"]["pos"])),
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
