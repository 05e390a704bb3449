"""An exported file beside the project's own player, on what it meets in real episodes.

The difference of two numbers is |a - b|, in units of b where |b| is above 1: float32 has no more digits.
"""

from itertools import count
from typing import Any, NamedTuple

import numpy as np

from stride.agents.trained.episode import episode_steps, start_of
from stride.agents.trained.loading import LoadedRun
from stride.export.ports import ACTION, Face, Run

OBSERVATIONS, SEED = 1000, 0
TOLERANCE = 1e-5


class DifferenceError(ArithmeticError):
    """A file that does not do what the policy does."""


class Sample(NamedTuple):
    """An observation as it came, and what the player made of it."""

    obs: Any
    is_first: bool
    answer: dict[str, np.ndarray]
    """the action, and what it was chosen by"""


class Likeness(NamedTuple):
    """How far a file is from the player."""

    observations: int
    episodes: int
    worst: float
    chosen: bool
    """whether actions are choices, which have to be equal"""


def samples(loaded: LoadedRun, face: Face, observations: int = OBSERVATIONS, seed: int = SEED) -> list[Sample]:
    """The first observations of greedy episodes 0, 1, .. of a seed."""
    score_names = [port.name for port in face.outputs if port.name in ("probability", "q")]
    env = loaded.make_env()
    collected: list[Sample] = []
    try:
        for episode_index in count():
            for moment in episode_steps(env, loaded.agent, start_of(seed, episode_index), "greedy"):
                score_values = {name: moment.opinion.distribution[name] for name in score_names}
                collected.append(
                    Sample(moment.obs, moment.step == 1, {ACTION: np.asarray(moment.choice.action), **score_values})
                )
                if len(collected) == observations:
                    return collected
    finally:
        env.close()
    raise AssertionError("episodes do not run out")


def compare(run: Run, face: Face, known: list[Sample]) -> Likeness:
    """How far the file is from the player; DifferenceError, with the observation, where it is too far."""
    state, worst = face.empty(), 0.0
    chosen = known[0].answer[ACTION].dtype.kind in "iub"
    for sample_index, sample in enumerate(known):
        answer = run(face.fed(sample.obs, state, sample.is_first))
        state = face.handed_on(answer)
        for name, wanted in sample.answer.items():
            distance = difference(answer[name][0], wanted)
            allowed = 0 if chosen and name == ACTION else TOLERANCE
            if not distance <= allowed:
                raise DifferenceError(
                    f"at observation {sample_index + 1} of {len(known):,} its {name} is {shown(answer[name][0])}, the "
                    f"policy's {shown(wanted)}: they differ by {distance:.2g}, allowed is {allowed:g}"
                )
            worst = max(worst, distance)
    return Likeness(len(known), sum(sample.is_first for sample in known), worst, chosen)


def difference(mine: np.ndarray, wanted: np.ndarray) -> float:
    """The largest difference of a pair; infinite where a value is non-finite."""
    a, b = np.asarray(mine, np.float64).ravel(), np.asarray(wanted, np.float64).ravel()
    if a.shape != b.shape or not (np.isfinite(a) & np.isfinite(b)).all():
        return float("inf")
    return float((np.abs(a - b) / np.maximum(1, np.abs(b))).max(initial=0))


def shown(numbers: np.ndarray) -> str:
    """The first few."""
    flat_values = np.asarray(numbers).ravel()
    return f"[{', '.join(f'{x:.7g}' for x in flat_values[:4])}{', ..' if len(flat_values) > 4 else ''}]"
