"""The result of a search, as figures and as text: what was spent, the best three with both scores, a block to paste."""

import math
import statistics
from typing import Any, NamedTuple

from stride.config.general import is_general
from stride.config.search import Search
from stride.runstore.run_facts import FULL_TEST_EPISODES, few
from stride.utils.typography import score


class Finalist(NamedTuple):
    """One of the best trials, on seeds that the search has not used."""

    trial: int
    words: tuple[str, ...]
    """its overrides"""
    search: float
    """its score in the search"""
    confirmed: tuple[float, ...]
    """the score on each fresh seed that ended well"""
    solved: int
    episodes: int = FULL_TEST_EPISODES
    """fewest of a test that solved it"""

    @property
    def mean(self) -> float:
        return statistics.fmean(self.confirmed) if self.confirmed else math.nan


class SweepResult(NamedTuple):
    """All figures of a search."""

    env_steps: int
    """of all its trials"""
    full_env_steps: int
    """of as many complete trainings"""
    trials: dict[str, int]
    """how many ended in each way"""
    fresh_seeds: tuple[int, ...]
    finalists: tuple[Finalist, ...]
    """the best confirmed first"""

    def plain(self) -> dict[str, Any]:
        """As plain data, for result.json."""
        return {**self._asdict(), "finalists": [finalist._asdict() for finalist in self.finalists]}

    def lines(self, search: Search) -> list[str]:
        """As lines of text."""
        counts = ", ".join(f"{count} {state}" for state, count in self.trials.items())
        trainings = search.trials * len(search.seeds)
        percent = 100 * self.env_steps / self.full_env_steps
        lines = [f"  {counts}; {self.env_steps:,} env steps, {percent:.0f} % of {trainings} full trainings"]
        lines += [f"  trial {one.trial}: {self.figures(one)}   {' '.join(one.words)}" for one in self.finalists]
        return [*lines, "", *self._block(search, self.finalists[0])]

    def figures(self, finalist: Finalist) -> str:
        """`search 500.0, confirmed 487.2 (seeds 1, 2, 3: 461.5 .. 500.0; 3 of 3 solved)`"""
        search_score = f"search {score(finalist.search)}"
        if not finalist.confirmed:
            return f"{search_score}, not confirmed"
        seeds = ", ".join(map(str, self.fresh_seeds))
        spread = f"{score(min(finalist.confirmed))} .. {score(max(finalist.confirmed))}"
        solved = f"{finalist.solved} of {len(self.fresh_seeds)} solved{few([finalist.episodes])}"
        return f"{search_score}, confirmed {score(finalist.mean)} (seeds {seeds}: {spread}; {solved})"

    def _block(self, search: Search, finalist: Finalist) -> list[str]:
        """A variant for the environment's file."""
        env_id, _, variant = search.variant.rpartition(":")
        parent = f"algo_id: {variant}" if is_general(search.variant) else f"_inherit_: {variant}"
        lines = [f"# {env_id}, {search.metric}: {self.figures(finalist)}", f"{variant}_{search.name}:", f"  {parent}"]
        for override in (*search.fixed, *finalist.words):
            key, _, value = override.partition("=")
            lines.append(f"  {key}: {value}")
        return lines
