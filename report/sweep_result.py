"""What a search came to, in figures and in words: what was spent, the best three with both scores, a block to paste."""

import statistics
from typing import Any, NamedTuple

from stride.config.general import is_general
from stride.config.search import Search
from stride.runstore.run_facts import ENOUGH, few
from stride.utils.typography import score


class Finalist(NamedTuple):
    """One of the best trials, on seeds that the search has not seen."""

    trial: int
    words: tuple[str, ...]
    """its overrides"""
    search: float
    """what it came to in the search"""
    confirmed: tuple[float, ...]
    """what its values come to on each fresh seed that ended well"""
    solved: int
    episodes: int = ENOUGH
    """fewest of a test that solved it"""

    @property
    def mean(self) -> float:
        return statistics.fmean(self.confirmed) if self.confirmed else float("nan")


class SweepResult(NamedTuple):
    """All figures of a search."""

    env_steps: int
    """of all its trials"""
    full_env_steps: int
    """what as many trainings to the end would have taken"""
    trials: dict[str, int]
    """how many ended in each way"""
    fresh_seeds: tuple[int, ...]
    finalists: tuple[Finalist, ...]
    """the best confirmed first"""

    def plain(self) -> dict[str, Any]:
        """For result.json."""
        return {**self._asdict(), "finalists": [each._asdict() for each in self.finalists]}

    def lines(self, search: Search) -> list[str]:
        """For people."""
        counts = ", ".join(f"{number} {state}" for state, number in self.trials.items())
        runs = search.trials * len(search.seeds)
        spent = (
            f"{self.env_steps:,} env steps, {100 * self.env_steps / self.full_env_steps:.0f} % of {runs} full trainings"
        )
        told = [f"  trial {each.trial}: {self.figures(each)}   {' '.join(each.words)}" for each in self.finalists]
        return [f"  {counts}; {spent}", *told, "", *self._block(search, self.finalists[0])]

    def figures(self, one: Finalist) -> str:
        """`search 500.0, confirmed 487.2 (seeds 1, 2, 3: 461.5 .. 500.0; 3 of 3 solved)`"""
        found = f"search {score(one.search)}"
        if not one.confirmed:
            return f"{found}, not confirmed"
        seeds = ", ".join(map(str, self.fresh_seeds))
        spread = f"{score(min(one.confirmed))} .. {score(max(one.confirmed))}"
        solved = f"{one.solved} of {len(self.fresh_seeds)} solved{few([one.episodes])}"
        return f"{found}, confirmed {score(one.mean)} (seeds {seeds}: {spread}; {solved})"

    def _block(self, search: Search, one: Finalist) -> list[str]:
        """A variant for the environment's file."""
        env_id, _, variant = search.variant.rpartition(":")
        parent = f"algo_id: {variant}" if is_general(search.variant) else f"_inherit_: {variant}"
        head = [f"# {env_id}, {search.metric}: {self.figures(one)}", f"{variant}_{search.name}:", f"  {parent}"]
        values = [word.partition("=")[::2] for word in (*search.fixed, *one.words)]
        return [*head, *(f"  {key}: {value}" for key, value in values)]
