"""Constant actions: whether the world answers to what is done at all, to each part of it, and how much they pay."""

import hashlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

from stride.envs_gym.answers import real
from stride.envs_gym.check.catalogue import finding
from stride.envs_gym.check.finding import Finding
from stride.envs_gym.check.study import Actor, Study, mask_of
from stride.envs_gym.check.world import World
from stride.utils.statistics import mean_and_deviation
from stride.utils.typography import plain

SEEDS = ((3, 10), (2, 3), (1, 1))  # of each constant action, of random ones: as many as there is time for
LEAST = 5
STEPS, PART_STEPS = 200, 60  # of an episode that is played; of one that only looks whether a part matters
MOST_ACTIONS, MOST_PARTS = 8, 8
SHARE, SHARE_OF_PARTS = 0.2, 0.1  # of the time
MIDDLE, LOW, HIGH, HALF = "middle", "low", "high", "half of high"
CLEAR = 2.0  # standard errors


class Played(NamedTuple):
    """One episode, or its first steps."""

    digest: bytes  # of all that was seen
    total: float
    length: int
    over: bool
    least: float  # reward of a step
    most: float


def check_constant_actions(study: Study) -> Iterator[Finding]:
    with study.world() as world:
        if mask_of(*world.reset(0)) is not None:
            return  # a constant action may be illegal
        space = world.env.action_space
        actions = constant_actions(space)
        if not actions:
            return
        seeds, drawn, steps = _plan(study, len(actions))
        chance = [episode(world, seed, Actor(space, seed), steps) for seed in range(drawn)]
        held = {
            name: [episode(world, seed, action, steps) for seed in range(seeds)] for name, action in actions.items()
        }
        study.facts.return_steps = steps
        yield from _baselines(study, held, chance)
        if study.repeats:
            yield from _answers(study, world, held, chance)


def _plan(study: Study, actions: int) -> tuple[int, int, int]:
    """Seeds of each constant action, of random ones, and steps of an episode."""
    for seeds, drawn in SEEDS:
        steps = study.affordable(SHARE, actions * seeds + drawn, STEPS)
        if steps >= PART_STEPS:
            break
    return seeds, drawn, max(LEAST, steps)


def constant_actions(space: gymnasium.Space[Any]) -> dict[str, Any]:
    """Name -> action; {} for spaces that no policy of ours acts in."""
    if isinstance(space, spaces.Discrete):
        return {
            str(each): np.int64(each) for each in range(int(space.start), int(space.start + space.n))[:MOST_ACTIONS]
        }
    if isinstance(space, spaces.MultiDiscrete | spaces.MultiBinary):
        low, high = _ends(space)
        return {LOW: low, HIGH: high}
    if isinstance(space, spaces.Box):
        low, high = _ends(space)
        middle = (low / 2 + high / 2).astype(space.dtype)
        half = (middle / 2 + high / 2).astype(space.dtype)
        return {MIDDLE: middle, LOW: low, HIGH: high, HALF: half}
    return {}


def _ends(space: gymnasium.Space[Any]) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(space, spaces.MultiDiscrete):
        return space.start.copy(), (space.start + space.nvec - 1).astype(space.dtype)
    if isinstance(space, spaces.Box):
        low, high = (np.where(np.isfinite(each), each, end) for each, end in ((space.low, -1), (space.high, 1)))
        return low.astype(space.dtype), high.astype(space.dtype)
    return np.zeros(space.shape or (), space.dtype), np.ones(space.shape or (), space.dtype)


def episode(world: World, seed: int, action: Any, steps: int) -> Played:
    """`action`: one that is held, or an Actor."""
    digest, total, length, over, paid = hashlib.blake2b(digest_size=16), 0.0, 0, False, [np.inf, -np.inf]
    obs, info = world.reset(seed)
    while not over and length < steps:
        done = action.draw(obs, info) if isinstance(action, Actor) else action
        obs, reward, terminated, truncated, info = world.step(done)
        value = _value(reward)
        total, length, over = total + value, length + 1, bool(terminated or truncated)
        paid = [min(paid[0], value), max(paid[1], value)]
        _feed(digest, obs)
        digest.update(repr((value, bool(terminated), bool(truncated))).encode())
    return Played(digest.digest(), total, length, over, *paid)


def _value(reward: Any) -> float:
    """0 where it is no number: random play has said so."""
    try:
        value = real(reward)
    except TypeError:
        return 0.0
    return value if np.isfinite(value) else 0.0


def _feed(digest: hashlib.blake2b, obs: Any) -> None:
    if isinstance(obs, dict | tuple):
        for part in obs.values() if isinstance(obs, dict) else obs:
            _feed(digest, part)
    else:
        digest.update(np.ascontiguousarray(obs).tobytes())


def _baselines(study: Study, held: dict[str, list[Played]], chance: list[Played]) -> Iterator[Finding]:
    """Returns of the first STEPS steps at most."""
    facts = study.facts
    means = {name: mean_and_deviation([each.total for each in plays])[0] for name, plays in held.items()}
    mean, deviation = mean_and_deviation([each.total for each in chance])
    same_in_play = facts.random_return_std in (None, 0.0)
    facts.constant_returns = means
    facts.random_return, facts.random_return_std = mean, deviation
    best = max(means, key=lambda name: means[name])
    plays = [each for each in (*chance, *(each for some in held.values() for each in some))]
    seen = f"{_named(best)} returns {plain(means[best])}, random ones {plain(mean)} ± {plain(deviation)}"
    if not any(each.least or each.most for each in plays) and not (facts.reward_min or facts.reward_max):
        total = sum(each.length for each in plays) + facts.steps
        yield finding("reward-never-seen", f"every reward was 0 in {total:,} steps of random and constant actions")
    elif not _enough(plays):
        return
    elif same_in_play and len({each.total for each in plays}) == 1 and len(held) > 1:
        yield finding(
            "return-never-differs", f"random or constant, each of {len(plays)} episodes returned {plays[0].total:g}"
        )
    elif _cannot_be_beaten(study, held[best], plays):
        yield finding("constant-action-is-best", f"{seen}; no step ever paid more, no episode was longer")
    elif facts.reward_threshold is not None and means[best] >= facts.reward_threshold:
        yield finding("constant-action-is-best", f"{seen}; {plain(facts.reward_threshold)} counts as solved")
    elif means[best] - mean > CLEAR * deviation:
        yield finding("constant-action-beats-random", seen)


def _enough(plays: list[Played]) -> bool:
    """Whether episodes were played to an end, or far enough to say something of all: slow worlds begin slowly, too."""
    return all(each.over or each.length >= PART_STEPS for each in plays)


def _cannot_be_beaten(study: Study, best: list[Played], plays: list[Played]) -> bool:
    """Each of its steps was paid the most that any step ever was, and no episode lasted longer."""
    most = max(max(each.most for each in plays), study.facts.reward_max or -np.inf)
    least = min(min(each.least for each in plays), most if study.facts.reward_min is None else study.facts.reward_min)
    longest = max(each.length for each in plays)
    return most > least and most >= 0 and all(each.least == most and each.length == longest for each in best)


def _answers(study: Study, world: World, held: dict[str, list[Played]], chance: list[Played]) -> Iterator[Finding]:
    """What of an action has any consequence; only known where a seed decides all else."""
    digests = {name: tuple(each.digest for each in plays) for name, plays in held.items()}
    space, seeds = world.env.action_space, min(len(plays) for plays in held.values())
    drawn = tuple(each.digest for each in chance[:seeds])
    if len(held) > 1 and len({*digests.values(), drawn}) == 1 and not _enough(chance):
        yield finding("not-checked", f"whether actions matter: the first {chance[0].length} steps do not tell")
        return
    if len(held) > 1 and len({*digests.values(), drawn}) == 1:
        steps = sum(each.length for each in chance[:seeds])
        seen = f"{len(held)} constant actions and random ones led to the same {steps} steps, number for number"
        yield finding("actions-ignored", seen)
        return
    if isinstance(space, spaces.Discrete):
        alike = [name for name in digests if list(digests.values()).count(digests[name]) > 1]
        if alike:
            yield finding(
                "actions-alike", f"of actions {', '.join(digests)} these did the same as another: {', '.join(alike)}"
            )
        return
    if HALF in digests and digests[HALF] == digests[HIGH] != digests[MIDDLE]:
        yield finding(
            "action-range-clipped", "half of the highest action did the same as the highest, number for number"
        )
    yield from _parts(study, world, space)


def _parts(study: Study, world: World, space: gymnasium.Space[Any]) -> Iterator[Finding]:
    """Each number of an action from end to end, the others in their middle."""
    low, high = _ends(space)
    count = min(low.size, MOST_PARTS)
    if low.size < 2:
        return
    middle = (low / 2 + high / 2).astype(space.dtype)
    steps = study.affordable(SHARE_OF_PARTS, 2 * count, PART_STEPS)
    if steps < LEAST:
        yield finding("not-checked", "whether each part of the action matters: steps take too long")
        return
    ignored = []
    for place in range(count):
        digests = set()
        for end in (low, high):
            action = middle.copy()
            action.reshape(-1)[place] = end.reshape(-1)[place]
            digests.add(episode(world, 1, action, steps).digest)
        if len(digests) == 1:
            ignored.append(place)
    if ignored and len(ignored) < count:
        places = ", ".join(map(str, ignored))
        yield finding(
            "action-part-ignored",
            f"from end to end nothing hung on action[{places}], in {steps} steps; {count} of {low.size} were tried",
        )


def _named(name: str) -> str:
    return f"action {name}" if name.lstrip("-").isdigit() else f"the constant action {name!r}"
