"""The result of a hyperparameter search as data and as text: its cost, the best trials, a block of YAML to paste."""

import math
import statistics
from typing import Any, NamedTuple

from stride.config.general import is_general
from stride.config.search import Search
from stride.runstore.run_facts import FULL_TEST_EPISODES, few
from stride.utils.typography import score


class Finalist(NamedTuple):
    """One of the best trials, trained again on seeds that the search did not use."""

    trial: int
    words: tuple[str, ...]
    """its overrides: ("policy_lr=0.001",)"""
    search: float
    """its score in the search"""
    confirmed: tuple[float, ...]
    """its score on each new seed whose training finished"""
    solved: int
    """number of new seeds that solved the task"""
    episodes: int = FULL_TEST_EPISODES
    """smallest number of episodes in the tests that solved it"""

    @property
    def mean(self) -> float:
        return statistics.fmean(self.confirmed) if self.confirmed else math.nan


class SweepResult(NamedTuple):
    """The figures of a search."""

    env_steps: int
    """sum over all trials"""
    full_env_steps: int
    """sum if each trial had been trained to the end of its budget"""
    trials: dict[str, int]
    """number of trials by how they ended"""
    fresh_seeds: tuple[int, ...]
    """the seeds on which finalists were trained again"""
    finalists: tuple[Finalist, ...]
    """best confirmed score first"""

    def plain(self) -> dict[str, Any]:
        """Return the content of result.json."""
        return {**self._asdict(), "finalists": [finalist._asdict() for finalist in self.finalists]}

    def lines(self, search: Search) -> list[str]:
        """Return the lines that the search prints at its end."""
        counts = ", ".join(f"{count} {state}" for state, count in self.trials.items())
        trainings = search.trials * len(search.seeds)
        percent = 100 * self.env_steps / self.full_env_steps
        lines = [f"  {counts}; {self.env_steps:,} env steps, {percent:.0f} % of {trainings} full trainings"]
        lines += [
            f"  trial {finalist.trial}: {self.figures(finalist)}   {' '.join(finalist.words)}"
            for finalist in self.finalists
        ]
        return [*lines, "", *self._block(search, self.finalists[0])]

    def figures(self, finalist: Finalist) -> str:
        """Return `search 500.0, confirmed 487.2 (seeds 1, 2, 3: 461.5 .. 500.0; 3 of 3 solved)`."""
        search_score = f"search {score(finalist.search)}"
        if not finalist.confirmed:
            return f"{search_score}, not confirmed"
        seeds = ", ".join(map(str, self.fresh_seeds))
        spread = f"{score(min(finalist.confirmed))} .. {score(max(finalist.confirmed))}"
        solved = f"{finalist.solved} of {len(self.fresh_seeds)} solved{few([finalist.episodes])}"
        return f"{search_score}, confirmed {score(finalist.mean)} (seeds {seeds}: {spread}; {solved})"

    def _block(self, search: Search, finalist: Finalist) -> list[str]:
        """Return a variant in YAML, to paste into config/environments/<env>.yaml."""
        env_id, _, variant = search.variant.rpartition(":")
        parent = f"algo_id: {variant}" if is_general(search.variant) else f"_inherit_: {variant}"
        lines = [f"# {env_id}, {search.metric}: {self.figures(finalist)}", f"{variant}_{search.name}:", f"  {parent}"]
        for override in (*search.fixed, *finalist.words):
            key, _, value = override.partition("=")
            lines.append(f"  {key}: {value}")
        return lines
