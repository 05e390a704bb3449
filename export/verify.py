"""Compares an exported file with Stride's own player on observations of real episodes.

The difference of two numbers is |a - b|, divided by |b| where |b| is above 1: float32 has only about 7 digits.
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
    """An exported file gives other results than the policy."""


class Sample(NamedTuple):
    """An observation of the environment, and the player's results for it."""

    obs: Any
    is_first: bool
    answer: dict[str, np.ndarray]
    """by port name: the action, and "probability" or "q" where actions are choices"""


class Likeness(NamedTuple):
    """How much the results of a file differ from the player's."""

    observations: int
    episodes: int
    worst: float
    are_choices: bool
    """whether actions are integers (choices), which must be equal"""


def samples(loaded: LoadedRun, face: Face, observations: int = OBSERVATIONS, seed: int = SEED) -> list[Sample]:
    """Play greedy episodes 0, 1, .. of a seed and return their first observations with the player's results."""
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


def compare(run: Run, face: Face, references: list[Sample]) -> Likeness:
    """Run the file on all samples in order; DifferenceError, with the observation's number, for a difference too large.

    The file's own memory goes on from sample to sample, so this also checks policies with a memory.
    """
    state, worst = face.empty(), 0.0
    are_choices = references[0].answer[ACTION].dtype.kind in "iub"
    for sample_index, sample in enumerate(references):
        answer = run(face.inputs_for(sample.obs, state, sample.is_first))
        state = face.next_state(answer)
        for name, wanted in sample.answer.items():
            distance = difference(answer[name][0], wanted)
            allowed = 0 if are_choices and name == ACTION else TOLERANCE
            if not distance <= allowed:
                raise DifferenceError(
                    f"at observation {sample_index + 1} of {len(references):,} its {name} is {shown(answer[name][0])}, "
                    f"the policy's {shown(wanted)}: they differ by {distance:.2g}, allowed is {allowed:g}"
                )
            worst = max(worst, distance)
    return Likeness(len(references), sum(sample.is_first for sample in references), worst, are_choices)


def difference(mine: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest difference of two numbers at one place; inf for other shapes or non-finite numbers."""
    a, b = np.asarray(mine, np.float64).ravel(), np.asarray(wanted, np.float64).ravel()
    if a.shape != b.shape or not (np.isfinite(a) & np.isfinite(b)).all():
        return float("inf")
    return float((np.abs(a - b) / np.maximum(1, np.abs(b))).max(initial=0))


def shown(numbers: np.ndarray) -> str:
    """Return the first four numbers as text, for a message."""
    flat_values = np.asarray(numbers).ravel()
    return f"[{', '.join(f'{x:.7g}' for x in flat_values[:4])}{', ..' if len(flat_values) > 4 else ''}]"
