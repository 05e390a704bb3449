"""What random play tells: of observations, rewards, the ends of episodes, and of what grows while one plays."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from gymnasium import spaces

from stride.envs_gym.check.catalogue import CATALOGUE, finding
from stride.envs_gym.check.finding import FAULT, NOTE, WARNING, Finding
from stride.envs_gym.check.play import Moments, Record, play
from stride.envs_gym.check.study import Study
from stride.envs_gym.check.world import World
from stride.utils.statistics import mean_and_deviation
from stride.utils.typography import plain

OFTEN = 0.01  # of observations outside their bounds, from which on that is no slip
HUGE, APART, TINY = 1e3, 1e4, 1e-3  # of observations: far from 1; one part beside another; hardly any spread
PAID_HUGE, PAID_TINY = 1e3, 1e-3  # of rewards
SPARSE = 0.01
FEW = 5  # episodes from which on something is said of all of them
SPIKE, LEAST_SPIKE = 0.2, 10  # episodes that all end at the longest length: part of them, and how long that is
KIB, MIB = 1 << 10, 1 << 20
MOST_INFO = 10 * KIB
LEAK, STEADY = 20 * MIB, 0.4  # of memory outside Python; how much of it in the second half


def check_random_play(study: Study) -> Iterator[Finding]:
    record = Record()
    with study.world() as world:
        try:
            play(study, world, record)
        finally:
            _tell(study, record)
            yield from _problems(record)  # even where it raised in the end
        if record.steps:
            yield from _observations(record)
            yield from _rewards(record)
            yield from _episodes(study, world, record)
            yield from _growth(record)


def _tell(study: Study, record: Record) -> None:
    facts, episodes = study.facts, record.episodes
    facts.steps, facts.episodes = record.steps, len(episodes)
    facts.terminated, facts.truncated = (
        sum(each.terminated for each in episodes),
        sum(each.truncated and not each.terminated for each in episodes),
    )
    if episodes:
        lengths = [each.length for each in episodes]
        facts.length_min, facts.length_mean, facts.length_max = min(lengths), float(np.mean(lengths)), max(lengths)
        facts.random_return, facts.random_return_std = mean_and_deviation([each.total for each in episodes])
    if record.rewards:
        facts.reward_min, facts.reward_max = min(record.rewards), max(record.rewards)
    if record.step_seconds:
        facts.step_us = 1e6 * float(np.median(record.step_seconds))
        facts.reset_us = 1e6 * float(np.mean(record.reset_seconds))
        facts.steps_per_second = record.steps / (sum(record.step_seconds) + sum(record.reset_seconds[1:]))


def _problems(record: Record) -> Iterator[Finding]:
    looks = max(1, record.steps + len(record.episodes) + 1)
    for name, (count, seen) in record.problems.items():
        often = f"; {count:,} of {looks:,} times" if count > 1 else ""
        level = CATALOGUE[name].level
        if name == "observation-outside" and count < OFTEN * looks and "Discrete" not in seen:
            level = WARNING
        if name == "observation-dtype" and seen.partition("its space ")[2].startswith("uint8"):
            level = FAULT
        yield finding(name, seen + often, level)


def _observations(record: Record) -> Iterator[Finding]:
    moments = record.moments
    still = {name: int((each.low == each.high).sum()) for name, each in moments.items()}
    sizes = {name: each.low.size for name, each in moments.items()}
    total, constant = sum(sizes.values()), sum(still.values())
    if moments and constant == total:
        yield finding("observation-constant", f"nothing of it has changed in {record.steps:,} random steps")
    elif parts := [name for name in moments if still[name]]:
        names = ", ".join(_places(name, moments[name]) for name in parts[:3])
        seen = f"{constant:,} of {total:,} numbers never changed in {record.steps:,} random steps: {names}"
        yield finding("observation-part-constant", seen)
    numbers = {name: each for name, each in moments.items() if _is_scaled_by_hand(each)}
    if numbers:
        yield from _scale(numbers)


def _places(name: str, moments: Moments) -> str:
    still = np.flatnonzero(moments.low == moments.high)
    value = plain(float(moments.low[still[0]]))
    return f"{name}{[int(each) for each in still[:4]]}{' ...' if still.size > 4 else ''} is {value}"


def _is_scaled_by_hand(moments: Moments) -> bool:
    """Neither an image nor a number that only counts: those are encoded."""
    return isinstance(moments.space, spaces.Box) and moments.space.dtype != np.uint8


def _scale(numbers: dict[str, Moments]) -> Iterator[Finding]:
    largest = {name: np.maximum(abs(each.low), abs(each.high)) for name, each in numbers.items()}
    name = max(largest, key=lambda each: float(largest[each].max()))
    place = int(largest[name].argmax())
    low, high = numbers[name].low[place], numbers[name].high[place]
    spreads = np.concatenate([each.spread for each in numbers.values()])
    moving = spreads[spreads > 0]
    if largest[name][place] > HUGE or (moving.size and moving.max() > max(HUGE, APART * float(np.median(moving)))):
        yield finding("observation-scale", f"{name}[{place}] lies in {low:.4g} to {high:.4g}")
    elif moving.size and moving.max() > APART * moving.min() and moving.max() > 10:
        spread = f"one number spreads by {moving.max():.3g}, another by {moving.min():.3g}"
        seen = f"{spread}; {name}[{place}] is the largest"
        yield finding("observation-scale", seen, NOTE)
    if moving.size and moving.max() < TINY:
        yield finding("observation-tiny", f"no number of it has a standard deviation above {moving.max():.2g}")


def _rewards(record: Record) -> Iterator[Finding]:
    if not record.rewards:
        return
    rewards = np.array(record.rewards)
    paid, largest = np.count_nonzero(rewards), abs(rewards).max()
    if paid and paid < SPARSE * rewards.size:
        yield finding("reward-sparse", f"{paid:,} of {rewards.size:,} random steps paid something other than 0")
    returns = [abs(each.total) for each in record.episodes]
    if largest > PAID_HUGE or (returns and np.mean(returns) > 10 * PAID_HUGE):
        mean = f", the mean return is {np.mean(returns):.4g} in size" if returns else ""
        yield finding("reward-scale", f"rewards lie in {rewards.min():.4g} to {rewards.max():.4g}{mean}")
    if 0 < largest < PAID_TINY:
        yield finding("reward-tiny", f"rewards lie in {rewards.min():.2g} to {rewards.max():.2g}")


def _episodes(study: Study, world: World, record: Record) -> Iterator[Finding]:
    episodes, limit = record.episodes, study.facts.time_limit
    if not episodes and limit is None:
        seen = f"no episode ended in {record.steps:,} random steps, and no time limit is declared"
        yield finding("never-ends", seen)
    if not episodes:
        return
    lengths = [each.length for each in episodes]
    if len(lengths) >= FEW and lengths[0] > 1 and set(lengths[1:]) == {1}:
        seen = f"the first episode had {lengths[0]} steps, each of the {len(lengths) - 1:,} after a reset a single one"
        yield finding("reset-does-not-restart", seen)
    elif set(lengths) == {1} and len(lengths) >= FEW:
        yield finding("one-step-episodes", f"each of {len(lengths):,} episodes ended at its first step")
    both = sum(each.terminated and each.truncated for each in episodes)
    if both:
        yield finding(
            "flags-together", f"{both:,} of {len(episodes):,} episodes ended terminated and truncated at once"
        )
    yield from _limits(record, limit)


def _limits(record: Record, limit: int | None) -> Iterator[Finding]:
    """Clocks that are told as ends, and clocks that are not declared."""
    ends = Counter(each.length for each in record.episodes if each.terminated)
    longest, count = max(ends, default=0), len(record.episodes)
    same, alone = ends[longest], len(ends) == 1 and sum(ends.values()) == count
    if alone and longest > 1 and count >= FEW:
        seen = f"all {count:,} random episodes ended by terminated, each at step {longest}"
        if record.age_seen:
            yield finding("time-limit-as-terminated", f"{seen}; the observation shows the time", NOTE)
        else:
            yield finding("time-limit-as-terminated", f"{seen}; the observation does not show the time", FAULT)
    elif (
        longest >= LEAST_SPIKE and same >= max(FEW, SPIKE * count) and longest == max(e.length for e in record.episodes)
    ):
        seen = f"{same:,} of {count:,} random episodes ended by terminated at step {longest}, and none is longer"
        yield finding("time-limit-as-terminated", seen)
    cut = Counter(
        each.length for each in record.episodes if each.truncated and not each.terminated and each.length != limit
    )
    if cut:
        at = f"all at step {min(cut)}" if len(cut) == 1 else f"at steps {min(cut)} to {max(cut)}"
        declared = "no time limit is declared" if limit is None else f"the declared limit is {limit:,}"
        yield finding("hidden-time-limit", f"{sum(cut.values()):,} episodes were truncated, {at}; {declared}")


def _growth(record: Record) -> Iterator[Finding]:
    sizes = record.info_sizes
    some = max(1, len(sizes) // 10)
    if sizes:
        early, late = float(np.mean(sizes[:some])), float(np.mean(sizes[-some:]))
        longer = max(sizes) > 3 * min(sizes) + KIB and _rises(sizes)
        if longer:
            yield finding("info-grows", f"about {min(sizes):,} bytes at first, {max(sizes):,} later")
        elif min(early, late) > MOST_INFO:
            yield finding("info-large", f"about {late / KIB:,.0f} KiB at each step")
    resident = record.resident[len(record.resident) // 5 :]
    if len(resident) >= 10:
        (begun, first), (_, middle), (ended, last) = resident[0], resident[len(resident) // 2], resident[-1]
        if last - first > LEAK and last - middle > STEADY * (last - first):
            seen = f"{(last - first) / MIB:,.0f} MiB in {ended - begun:,} random steps, and it goes on"
            yield finding("resident-memory-grows", seen)
    if record.printed > record.steps:
        yield finding("prints", f"about {record.printed / record.steps:,.0f} bytes at each step")


def _rises(sizes: list[int]) -> bool:
    """Most of the time no smaller than before: within an episode, or over all of them."""
    ups = sum(later > before for before, later in pairwise(sizes))
    return ups > 0.5 * (len(sizes) - 1)
