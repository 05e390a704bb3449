"""check-env's test of repeatability: with one seed and the same actions, an environment must do the same again.

It is played again in the same instance, in a second instance, and while a second instance is stepped.
"""

import copy
import random
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import torch
from gymnasium import Env

from stride.envs_gym.check.finding import NOTE, Findings, finding
from stride.envs_gym.check.study import RandomActions, Study
from stride.envs_gym.check.world import CheckedWorld, distance, flattened

SEED, OTHER_SEED = 7, 99
STEPS, SHORT_STEPS = 150, 30  # of a trace at most; of one that only shows whether seeds matter
START_COUNT = 6  # resets that are compared
TRACE_COUNT, MIN_STEPS = 8, 5  # traces that are made; steps of each, however slow
FOREIGN_MODULES = (Env.__module__, gymnasium.utils.EzPickle.__module__, "typing")


class Trace(NamedTuple):
    """A recorded play: copies of all results, and the returned observations themselves, which may change later."""

    results: list[tuple[Any, Any, Any, Any]]  # (observation, reward, terminated, truncated); [0] is of the reset
    returned: list[Any]


def check_repeatability(study: Study) -> Findings:
    """Record traces with the same seed and report where they differ; sets `study.repeats`."""
    step_count = max(MIN_STEPS, study.affordable_steps(0.25, TRACE_COUNT, STEPS))
    with study.world() as first, study.world() as second:
        kind = type(first.env.unwrapped)
        attributes = _class_attributes(kind)
        generators = _global_generators()
        trace = record_trace(first, SEED, step_count)
        moved = [name for name, state in _global_generators().items() if state != generators[name]]
        yield from _check_overwritten(trace)
        again = difference(trace, record_trace(first, SEED, step_count))
        elsewhere = difference(trace, record_trace(second, SEED, step_count))
        changed = [name for name, value in _class_attributes(kind).items() if value != attributes.get(name)]
        if moved:
            yield finding("global-random", f"{' and '.join(moved)} drew numbers in {step_count} steps")
        study.repeats = not elsewhere and not again
        yield from _check_repeated(study, elsewhere, again, changed)
        if study.repeats:
            yield from _check_disturbed(study, first, second, trace, changed)
        if not elsewhere:
            yield from _check_starts(study, first)


def record_trace(
    world: CheckedWorld,
    seed: int,
    step_count: int,
    other: CheckedWorld | None = None,
    scribble: bool = False,
    action_seed: int | None = None,
) -> Trace:
    """Play random actions from a seed and record the results.

    `action_seed`: the seed of the actions; None: the same as `seed`. `other`: a world that is stepped in between, with
    other actions. `scribble`: each observation is changed after it was copied, as code does that works in place.
    """
    actions = RandomActions(world.env.action_space, seed if action_seed is None else action_seed)
    other_actions = RandomActions(world.env.action_space, OTHER_SEED)
    observation, info = world.reset(seed)
    returned: list[Any] = [observation]
    results: list[tuple[Any, Any, Any, Any]] = [(copy.deepcopy(observation), None, None, None)]
    if other is not None:
        other_obs, other_info = other.reset(OTHER_SEED)
    for _ in range(step_count):
        action = actions.draw(observation, info)
        if scribble:
            _scribble(observation)
        if other is not None:
            other_obs, _, terminated, truncated, other_info = other.step(other_actions.draw(other_obs, other_info))
            if terminated or truncated:
                other_obs, other_info = other.reset()
        observation, reward, terminated, truncated, info = world.step(action)
        results.append((copy.deepcopy(observation), reward, bool(terminated), bool(truncated)))
        returned.append(observation)
        if terminated or truncated:
            observation, info = world.reset()
    return Trace(results, returned)


def difference(one: Trace, other: Trace) -> str:
    """Describe the first difference of two traces; "" where they are equal."""
    for step, (result, other_result) in enumerate(zip(one.results, other.results, strict=False)):
        location = f"at step {step}" if step else "at reset"
        if gap := distance(result[0], other_result[0]):
            return f"observations differ {location} by {gap:.2g}"
        if step and (gap := distance(result[1], other_result[1])):
            return f"rewards differ {location} by {gap:.2g}"
        if result[2:] != other_result[2:]:
            return f"one episode ends {location}, the other does not"
    return ""


def _check_repeated(study: Study, elsewhere: str, again: str, changed: list[str]) -> Findings:
    """Report differences: `elsewhere` in a second instance, `again` in the same one; `changed`: class attributes."""
    level = NOTE if study.nondeterministic else ""
    if elsewhere and changed:
        evidence = f"{changed[0]} of the class changes, and a second instance then differs: {elsewhere}"
        yield finding("shared-state", evidence)
    elif elsewhere:
        yield finding("differs-under-seed", f"two instances, one seed, the same actions: {elsewhere}", level)
    elif again:
        yield finding("reset-remembers", f"the same seed a second time in one instance: {again}", level)
    elif changed:
        yield finding("class-attribute-changes", f"{', '.join(changed[:4])} changed while it played")


def _check_disturbed(
    study: Study, first: CheckedWorld, second: CheckedWorld, trace: Trace, changed: list[str]
) -> Findings:
    """Report an environment that a second instance, or a change of its observations, disturbs.

    If it differs, it is played once more without a disturbance: a difference then has another cause.
    """
    step_count = len(trace.results) - 1
    accompanied = difference(trace, record_trace(first, SEED, step_count, other=second))
    scribbled = difference(trace, record_trace(first, SEED, step_count, scribble=True))
    if not accompanied and not scribbled:
        return
    if undisturbed := difference(trace, record_trace(first, SEED, step_count)):
        study.repeats = False
        yield from _check_repeated(study, "", undisturbed, changed)
        return
    if accompanied:
        name = f" (its class changes {changed[0]})" if changed else ""
        yield finding("shared-state", f"stepping a second instance changes the first{name}: {accompanied}")
    if scribbled:
        yield finding("observation-is-state", f"changing a returned observation changes the environment: {scribbled}")


def _check_overwritten(trace: Trace) -> Findings:
    """Report observations that changed after they were returned."""
    for step, (returned, result) in enumerate(zip(trace.returned, trace.results, strict=True)):
        if gap := distance(result[0], returned):
            origin = f"step {step}" if step else "reset"
            yield finding("observation-overwritten", f"the observation of {origin} has changed by {gap:.2g} since")
            return


def _scribble(observation: Any) -> None:
    """Add 1 to all numbers of an observation, in place."""
    for _, component in flattened(observation):
        if isinstance(component, np.ndarray) and component.flags.writeable and component.dtype.kind in "fiu":
            component += np.ones((), component.dtype)


def _check_starts(study: Study, world: CheckedWorld) -> Findings:
    """Report seeds without effect, and resets without a seed that all start the same."""
    if study.affordable_steps(0.2, 2 * START_COUNT, 1) < 1:
        yield finding("not-checked", "whether seeds matter: resets take too long")
        return
    seeded = [copy.deepcopy(world.reset(seed)[0]) for seed in range(START_COUNT)]
    world.reset(SEED)
    unseeded = [copy.deepcopy(world.reset()[0]) for _ in range(START_COUNT)]
    if any(distance(unseeded[0], observation) for observation in unseeded[1:]):
        return
    if any(distance(seeded[0], observation) for observation in seeded[1:]):
        evidence = f"{START_COUNT} seeds start differently, but {START_COUNT} resets without a seed all start the same"
        yield finding("same-start-every-episode", evidence)
        return
    trace = record_trace(world, SEED, SHORT_STEPS)
    if not any(difference(trace, record_trace(world, seed, SHORT_STEPS, action_seed=SEED)) for seed in range(3)):
        yield finding("nothing-random", "all seeds start the same, and the same actions have the same results")


def _global_generators() -> dict[str, str]:
    """Return the states of the global random generators, as text, by name."""
    state = np.random.get_state(legacy=False)["state"]
    return {
        "np.random": repr((state["key"].tobytes(), state["pos"])),
        "random": repr(random.getstate()),
        "torch": torch.get_rng_state().numpy().tobytes().hex(),
    }


def _class_attributes(kind: type) -> dict[str, str]:
    """Return the changeable attributes of an environment's classes, as text; Gymnasium's classes are left out."""
    attributes = {}
    for base in kind.__mro__:
        if base is object or base.__module__ in FOREIGN_MODULES:
            continue
        for name, value in vars(base).items():
            if not name.startswith("__") and isinstance(value, list | dict | set | np.ndarray | int | float):
                attributes[f"{base.__name__}.{name}"] = repr(value)
    return attributes
