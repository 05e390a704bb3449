"""check-env's findings from random play: on observations, rewards, ends of episodes, and growing memory."""

from collections import Counter
from itertools import pairwise

import numpy as np
from gymnasium.spaces import Box

from stride.envs_gym.check.finding import CATALOGUE, FAULT, NOTE, WARNING, Findings, finding
from stride.envs_gym.check.play import PartStatistics, PlayRecord, play
from stride.envs_gym.check.study import Study
from stride.utils.statistics import mean_and_deviation
from stride.utils.typography import plain

FAULT_FRACTION = 0.01  # if more observations are outside their bounds, it is a fault, else a warning
HUGE_VALUE, SPREAD_RATIO, TINY_SPREAD = 1e3, 1e4, 1e-3  # limits for observations, in their units and as a ratio
REWARD_HUGE, REWARD_TINY = 1e3, 1e-3  # limits for the size of rewards
SPARSE_FRACTION = 0.01  # if fewer rewards are other than 0, they are sparse
MIN_EPISODES = 5  # needed for a statement about all episodes
# a peak of episode lengths: this fraction of the episodes ends at the longest length, which is at least so long
PEAK_FRACTION, MIN_PEAK_LENGTH = 0.2, 10
KIB, MIB = 1 << 10, 1 << 20
MAX_INFO_BYTES = 10 * KIB
# a leak: the process grows by so many bytes, and at least this fraction of it in the second half
LEAK_BYTES, LATE_FRACTION = 20 * MIB, 0.4


def check_random_play(study: Study) -> Findings:
    """Play random actions, write the study's measurements, and yield all findings."""
    record = PlayRecord()
    with study.world() as world:
        try:
            play(study, world, record)
        finally:
            _measure(study, record)
            yield from _check_problems(record)  # even if the environment raised in the end
    if record.steps:
        time_limit = study.measurements.time_limit
        yield from _check_constant_parts(record)
        yield from _check_scale(record)
        yield from _check_rewards(record)
        yield from _check_episodes(record, time_limit)
        yield from _check_ends(record, time_limit)
        yield from _check_growth(record)


def _measure(study: Study, record: PlayRecord) -> None:
    """Write the record's numbers into the study's measurements."""
    measurements = study.measurements
    episodes = record.episodes
    measurements.steps = record.steps
    measurements.episodes = len(episodes)
    measurements.terminated = sum(episode.terminated for episode in episodes)
    measurements.truncated = sum(episode.truncated and not episode.terminated for episode in episodes)
    if episodes:
        lengths = [episode.length for episode in episodes]
        totals = [episode.total for episode in episodes]
        measurements.length_min = min(lengths)
        measurements.length_mean = float(np.mean(lengths))
        measurements.length_max = max(lengths)
        measurements.random_return, deviation = mean_and_deviation(totals)
        measurements.random_return_std = deviation if len(totals) > 1 else None
    if record.rewards:
        measurements.reward_min = min(record.rewards)
        measurements.reward_max = max(record.rewards)
    if record.step_seconds:
        seconds = sum(record.step_seconds) + sum(record.reset_seconds[1:])
        measurements.step_us = 1e6 * float(np.median(record.step_seconds))
        measurements.reset_us = 1e6 * float(np.mean(record.reset_seconds))
        measurements.steps_per_second = record.steps / seconds


def _check_problems(record: PlayRecord) -> Findings:
    """Report the problems that play.py recorded, with how often each was there."""
    observations = max(1, record.steps + len(record.episodes) + 1)
    for name, (count, evidence) in record.problems.items():
        level = CATALOGUE[name].level
        if name == "observation-outside" and count < FAULT_FRACTION * observations and "Discrete" not in evidence:
            level = WARNING
        if name == "observation-dtype" and evidence.partition("its space ")[2].startswith("uint8"):
            level = FAULT
        if count > 1:
            evidence += f"; {count:,} of {observations:,} times"
        yield finding(name, evidence, level)


def _check_constant_parts(record: PlayRecord) -> Findings:
    """Report numbers of the observation that never changed."""
    total = 0
    constant = 0
    examples = []
    for name, component in record.statistics.items():
        indices = np.flatnonzero(component.low == component.high)
        total += component.low.size
        constant += indices.size
        if indices.size:
            ellipsis = " ..." if indices.size > 4 else ""
            examples.append(f"{name}{indices[:4].tolist()}{ellipsis} is {plain(float(component.low[indices[0]]))}")
    if total and constant == total:
        yield finding("observation-constant", f"it did not change in {record.steps:,} random steps")
    elif constant:
        evidence = f"{constant:,} of {total:,} numbers never changed in {record.steps:,} random steps"
        yield finding("observation-part-constant", f"{evidence}: {', '.join(examples[:3])}")


def _check_scale(record: PlayRecord) -> Findings:
    """Check the sizes of numbers in boxes. Integers and images are left out: both are encoded for a network."""
    parts = {name: component for name, component in record.statistics.items() if _is_read_as_number(component)}
    if not parts:
        return
    sizes = {name: np.maximum(abs(component.low), abs(component.high)) for name, component in parts.items()}
    name = max(sizes, key=lambda name: float(sizes[name].max()))
    index = int(sizes[name].argmax())
    spreads = np.concatenate([component.spread for component in parts.values()])
    spreads = spreads[spreads > 0]
    smallest, median, largest_spread = np.quantile(spreads, [0, 0.5, 1]) if spreads.size else (1.0, 1.0, 1.0)
    if sizes[name][index] > HUGE_VALUE or largest_spread > max(HUGE_VALUE, SPREAD_RATIO * median):
        lowest = parts[name].low[index]
        highest = parts[name].high[index]
        yield finding("observation-scale", f"{name}[{index}] is in {lowest:.4g} to {highest:.4g}")
    elif largest_spread > max(10, SPREAD_RATIO * smallest):
        spread = f"one number has the standard deviation {largest_spread:.3g}, another {smallest:.3g}"
        yield finding("observation-scale", f"{spread}; {name}[{index}] is the largest", NOTE)
    if largest_spread < TINY_SPREAD:
        yield finding("observation-tiny", f"no number in it has a standard deviation above {largest_spread:.2g}")


def _is_read_as_number(component: PartStatistics) -> bool:
    return isinstance(component.space, Box) and component.space.dtype != np.uint8


def _check_rewards(record: PlayRecord) -> Findings:
    """Report rewards that are rare, very large or very small."""
    if not record.rewards:
        return
    rewards = np.array(record.rewards)
    nonzero = np.count_nonzero(rewards)
    largest = abs(rewards).max()
    mean_return = np.mean([abs(episode.total) for episode in record.episodes]) if record.episodes else 0.0
    if nonzero and nonzero < SPARSE_FRACTION * rewards.size:
        yield finding("reward-sparse", f"{nonzero:,} of {rewards.size:,} random steps had a reward other than 0")
    if largest > REWARD_HUGE or mean_return > 10 * REWARD_HUGE:
        mean = f", the mean return is {mean_return:.4g} in size" if record.episodes else ""
        yield finding("reward-scale", f"rewards are in {rewards.min():.4g} to {rewards.max():.4g}{mean}")
    if 0 < largest < REWARD_TINY:
        yield finding("reward-tiny", f"rewards are in {rewards.min():.2g} to {rewards.max():.2g}")


def _check_episodes(record: PlayRecord, time_limit: int | None) -> Findings:
    """Report episodes that never end, that end at once, or that end with both flags."""
    lengths = [episode.length for episode in record.episodes]
    if not lengths:
        if time_limit is None:
            evidence = f"no episode ended in {record.steps:,} random steps, and no time limit is declared"
            yield finding("never-ends", evidence)
        return
    if len(lengths) >= MIN_EPISODES and set(lengths[1:]) == {1}:
        if lengths[0] > 1:
            later = f"each of the {len(lengths) - 1:,} after a reset had one step"
            yield finding("reset-does-not-restart", f"the first episode had {lengths[0]} steps, {later}")
        else:
            yield finding("one-step-episodes", f"each of {len(lengths):,} episodes ended at its first step")
    both = sum(episode.terminated and episode.truncated for episode in record.episodes)
    if both:
        evidence = f"{both:,} of {len(lengths):,} episodes ended both terminated and truncated"
        yield finding("flags-together", evidence)


def _check_ends(record: PlayRecord, time_limit: int | None) -> Findings:
    """Report time limits that are reported as terminated, and time limits that are not declared."""
    if not record.episodes:
        return
    count = len(record.episodes)
    terminated = Counter(episode.length for episode in record.episodes if episode.terminated)  # length -> episodes
    longest = max(terminated, default=0)
    at_longest = terminated[longest]
    if at_longest == count >= MIN_EPISODES and longest > 1:
        evidence = f"all {count:,} random episodes ended by terminated, each at step {longest}; the observation"
        if record.shows_time:
            yield finding("time-limit-as-terminated", f"{evidence} shows the time", NOTE)
        else:
            yield finding("time-limit-as-terminated", f"{evidence} does not show the time", FAULT)
    elif (
        longest >= MIN_PEAK_LENGTH
        and at_longest >= max(MIN_EPISODES, PEAK_FRACTION * count)
        and longest == max(episode.length for episode in record.episodes)
    ):
        evidence = f"{at_longest:,} of {count:,} random episodes ended by terminated at step {longest}"
        yield finding("time-limit-as-terminated", f"{evidence}, and none is longer")
    truncated = [
        episode.length
        for episode in record.episodes
        if episode.truncated and not episode.terminated and episode.length != time_limit
    ]
    if truncated:
        first, last = min(truncated), max(truncated)
        steps = f"all at step {first}" if first == last else f"at steps {first} to {last}"
        declared = "no time limit is declared" if time_limit is None else f"the declared limit is {time_limit:,}"
        yield finding("hidden-time-limit", f"{len(truncated):,} episodes were truncated, {steps}; {declared}")


def _check_growth(record: PlayRecord) -> Findings:
    """Report infos that are large or grow, memory of the process that grows, and printed output."""
    sizes = record.info_sizes
    if sizes:
        tenth = max(1, len(sizes) // 10)
        early = float(np.mean(sizes[:tenth]))
        late = float(np.mean(sizes[-tenth:]))
        if max(sizes) > 3 * min(sizes) + KIB and _rises(sizes):
            yield finding("info-grows", f"about {min(sizes):,} bytes at first, {max(sizes):,} later")
        elif min(early, late) > MAX_INFO_BYTES:
            yield finding("info-large", f"about {late / KIB:,.0f} KiB at each step")
    resident = record.resident[len(record.resident) // 5 :]  # without the first fifth, in which caches are filled
    if len(resident) >= 10:
        start, first = resident[0]
        end, last = resident[-1]
        middle = resident[len(resident) // 2][1]
        if last - first > LEAK_BYTES and last - middle > LATE_FRACTION * (last - first):
            evidence = f"{(last - first) / MIB:,.0f} MiB in {end - start:,} random steps, and still growing"
            yield finding("resident-memory-grows", evidence)
    if record.printed > record.steps:
        yield finding("prints", f"about {record.printed / record.steps:,.0f} bytes at each step")


def _rises(sizes: list[int]) -> bool:
    """Whether more than half of the sizes are larger than the one before."""
    rises = sum(later > earlier for earlier, later in pairwise(sizes))
    return rises > 0.5 * (len(sizes) - 1)
