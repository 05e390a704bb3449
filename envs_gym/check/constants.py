"""check-env's test with constant actions: do actions have any effect, does each part of an action, what do they return.

It plays episodes with one and the same action at every step, and compares them with episodes of random actions.
"""

import hashlib
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

from stride.envs_gym.answers import real
from stride.envs_gym.check.finding import Findings, finding
from stride.envs_gym.check.study import RandomActions, Study, mask_of
from stride.envs_gym.check.world import CheckedWorld, flattened
from stride.utils.statistics import mean_and_deviation
from stride.utils.typography import plain

SEED_COUNTS = ((3, 10), (2, 3), (1, 1))  # (seeds of each constant action, of random ones); the first that time allows
MIN_STEPS = 5  # of an episode, however slow
STEPS, PART_STEPS = 200, 60  # steps of an episode at most; of one that only shows whether a part of the action matters
MAX_ACTIONS, MAX_PARTS = 8, 8  # that are tried
TIME_FRACTION, PART_TIME_FRACTION = 0.2, 0.1  # of the whole check's time: for all episodes; for the parts of actions
MIDDLE, LOW, HIGH, HALF = "middle", "low", "high", "half of high"
MIN_DEVIATIONS = 2.0  # standard deviations by which a constant action must be better than random ones


class PlayedEpisode(NamedTuple):
    """The results of one episode, or of its first steps."""

    digest: bytes  # a hash of all observations, rewards and flags
    total: float  # sum of the rewards
    length: int  # steps
    ended: bool  # whether it ended by itself
    min_reward: float
    max_reward: float


Episodes = list[PlayedEpisode]


def check_constant_actions(study: Study) -> Findings:
    """Play constant and random actions; yield findings about returns, and about actions without effect."""
    with study.world() as world:
        if mask_of(*world.reset(0)) is not None:
            return  # with a mask, a constant action may be illegal
        space = world.env.action_space
        actions = constant_actions(space)
        if not actions:
            return
        for seeds, random_seeds in SEED_COUNTS:
            step_count = study.affordable_steps(TIME_FRACTION, len(actions) * seeds + random_seeds, STEPS)
            if step_count >= PART_STEPS:
                break
        step_count = max(MIN_STEPS, step_count)
        random = [play_episode(world, seed, RandomActions(space, seed), step_count) for seed in range(random_seeds)]
        constant: dict[str, Episodes] = {}
        for name, action in actions.items():
            constant[name] = [play_episode(world, seed, action, step_count) for seed in range(seeds)]
        study.measurements.return_steps = step_count
        yield from _check_returns(study, constant, random)
        if study.repeats:
            yield from _check_effects(study, world, constant, random)


def constant_actions(space: Space) -> dict[str, Any]:
    """Return name -> action; {} for action spaces that Stride does not support."""
    if isinstance(space, Discrete):
        first = int(space.start)
        return {str(action): np.int64(action) for action in range(first, first + min(int(space.n), MAX_ACTIONS))}
    if not isinstance(space, MultiDiscrete | MultiBinary | Box):
        return {}
    lower, upper = _ends(space)
    actions = {LOW: lower, HIGH: upper}
    if isinstance(space, Box):
        middle = (lower / 2 + upper / 2).astype(space.dtype)
        half = (middle / 2 + upper / 2).astype(space.dtype)
        actions = {MIDDLE: middle, **actions, HALF: half}
    return actions


def _ends(space: Space) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and the highest action; -1 and 1 where a box has no bound."""
    if isinstance(space, MultiDiscrete):
        return space.start.copy(), (space.start + space.nvec - 1).astype(space.dtype)
    if isinstance(space, Box):
        lower = np.where(np.isfinite(space.low), space.low, -1)
        upper = np.where(np.isfinite(space.high), space.high, 1)
        return lower.astype(space.dtype), upper.astype(space.dtype)
    shape = space.shape or ()
    return np.zeros(shape, space.dtype), np.ones(shape, space.dtype)


def play_episode(world: CheckedWorld, seed: int, action: Any, step_count: int) -> PlayedEpisode:
    """Play one episode, of at most `step_count` steps, by a constant action or by RandomActions."""
    digest = hashlib.blake2b(digest_size=16)
    rewards: list[float] = []
    finished = False
    observation, info = world.reset(seed)
    while not finished and len(rewards) < step_count:
        chosen_action = action.draw(observation, info) if isinstance(action, RandomActions) else action
        observation, reward, terminated, truncated, info = world.step(chosen_action)
        rewards.append(_value(reward))
        finished = bool(terminated or truncated)
        for _, component in flattened(observation):
            digest.update(np.ascontiguousarray(component).tobytes())
        digest.update(repr((rewards[-1], bool(terminated), bool(truncated))).encode())
    return PlayedEpisode(digest.digest(), sum(rewards), len(rewards), finished, min(rewards), max(rewards))


def _value(reward: Any) -> float:
    """Return the reward; 0 where it is not a finite number (random play has reported that already)."""
    try:
        value = real(reward)
    except TypeError:
        return 0.0
    return value if np.isfinite(value) else 0.0


def _check_returns(study: Study, constant: dict[str, Episodes], random: Episodes) -> Findings:
    """Compare the returns of constant and random actions, over at most STEPS steps of each episode."""
    measurements = study.measurements
    means = {name: mean_and_deviation([e.total for e in episodes])[0] for name, episodes in constant.items()}
    mean_return, deviation = mean_and_deviation([episode.total for episode in random])
    same_in_play = measurements.random_return_std in (None, 0.0)
    measurements.constant_returns = means
    measurements.random_return = mean_return
    has_spread = len(random) > 1  # a single episode has no deviation, and cannot show which action is better
    measurements.random_return_std = deviation if has_spread else None
    all_episodes = sum(constant.values(), random)
    best_name = max(means, key=lambda name: means[name])
    name = f"action {best_name}" if best_name.lstrip("-").isdigit() else f"the constant action {best_name!r}"
    evidence = f"{name} returns {plain(means[best_name])}, random ones {plain(mean_return)}"
    evidence += f" ± {plain(deviation)}" if has_spread else " (one episode)"
    threshold = measurements.reward_threshold
    rewarded = measurements.reward_min or measurements.reward_max
    if not rewarded and not any(episode.min_reward or episode.max_reward for episode in all_episodes):
        step_count = sum(episode.length for episode in all_episodes) + measurements.steps
        yield finding("reward-never-seen", f"every reward was 0 in {step_count:,} steps of random and constant actions")
    elif not _far_enough(all_episodes):
        return
    elif same_in_play and len(constant) > 1 and len({episode.total for episode in all_episodes}) == 1:
        evidence = f"random or constant, each of {len(all_episodes)} episodes returned {all_episodes[0].total:g}"
        yield finding("return-never-differs", evidence)
    elif _cannot_be_beaten(study, constant[best_name], all_episodes):
        yield finding("constant-action-is-best", f"{evidence}; no step had a higher reward, no episode was longer")
    elif threshold is not None and means[best_name] >= threshold:
        yield finding("constant-action-is-best", f"{evidence}; {plain(threshold)} counts as solved")
    elif has_spread and means[best_name] - mean_return > MIN_DEVIATIONS * deviation:
        yield finding("constant-action-beats-random", evidence)


def _far_enough(episodes: Episodes) -> bool:
    """Whether all episodes ended, or had enough steps to judge by: in a slow world only few steps were played."""
    return all(episode.ended or episode.length >= PART_STEPS for episode in episodes)


def _cannot_be_beaten(study: Study, best_name: Episodes, all_episodes: Episodes) -> bool:
    """Whether no policy can be better than these episodes of one constant action.

    True if each of their steps got the highest reward that any step got, and no episode was longer.
    """
    measurements = study.measurements
    most_reward = max(*(episode.max_reward for episode in all_episodes), measurements.reward_max or -np.inf)
    least_reward = min(episode.min_reward for episode in all_episodes)
    if measurements.reward_min is not None:
        least_reward = min(least_reward, measurements.reward_min)
    longest = max(episode.length for episode in all_episodes)
    unbeaten = all(episode.min_reward == most_reward and episode.length == longest for episode in best_name)
    return unbeaten and most_reward > least_reward and most_reward >= 0


def _check_effects(study: Study, world: CheckedWorld, constant: dict[str, Episodes], random: Episodes) -> Findings:
    """Report actions, and parts of actions, without effect. Only called where a seed decides everything else."""
    digests = {name: [episode.digest for episode in episodes] for name, episodes in constant.items()}
    seeds = min(len(episodes) for episodes in constant.values())
    random_digests = [episode.digest for episode in random[:seeds]]
    space = world.env.action_space
    if len(constant) > 1 and all(digest == random_digests for digest in digests.values()):
        if _far_enough(random):
            step_count = sum(episode.length for episode in random[:seeds])
            evidence = f"{len(constant)} constant actions and random ones had the same {step_count} steps"
            yield finding("actions-ignored", f"{evidence}, number for number")
        else:
            yield finding("not-checked", f"whether actions matter: the first {random[0].length} steps do not show it")
        return
    if isinstance(space, Discrete):
        values = list(digests.values())
        alike = [name for name in digests if values.count(digests[name]) > 1]
        if alike:
            evidence = f"of actions {', '.join(digests)} these had the same effect as another: {', '.join(alike)}"
            yield finding("actions-alike", evidence)
        return
    if HALF in digests and digests[HALF] == digests[HIGH] != digests[MIDDLE]:
        evidence = "half of the highest action had the same effect as the highest, number for number"
        yield finding("action-range-clipped", evidence)
    yield from _check_parts(study, world, space)


def _check_parts(study: Study, world: CheckedWorld, space: Space) -> Findings:
    """Report numbers of an action without effect: set one to its lowest and highest value, the others to the middle."""
    lower, upper = _ends(space)
    count = min(lower.size, MAX_PARTS)
    if lower.size < 2:
        return
    middle = (lower / 2 + upper / 2).astype(space.dtype)
    step_count = study.affordable_steps(PART_TIME_FRACTION, 2 * count, PART_STEPS)
    if step_count < MIN_STEPS:
        yield finding("not-checked", "whether each part of the action matters: steps take too long")
        return
    ignored = []
    for index in range(count):
        digests = set()
        for end in (lower, upper):
            action = middle.copy()
            action.flat[index] = end.flat[index]
            digests.add(play_episode(world, 1, action, step_count).digest)
        if len(digests) == 1:
            ignored.append(str(index))
    if ignored and len(ignored) < count:
        evidence = f"nothing depended on action[{', '.join(ignored)}] between its ends, in {step_count} steps"
        yield finding("action-part-ignored", f"{evidence}; {count} of {lower.size} were tried")
