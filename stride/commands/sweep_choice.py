"""Who goes on in a search, and where to: the rules of config/search_rules.py applied to what the journal holds.

Each step is one line of the journal, from which the next follows, whoever takes it and whenever: a search that was
killed between any two of them goes on as if it had not been.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise

from stride.config.search import Search
from stride.config.search_rules import promoted
from stride.runstore.many.search_journal import Journal, Trial


class Choice:
    """What is to be begun next."""

    def __init__(self, search: Search, journal: Journal) -> None:
        self._search, self._journal = search, journal

    def next(self, flown: Collection[tuple[int, int]]) -> Trial | None:
        """A trial that is to go to its bound and, as trial and bound, is not among `flown`; None: wait, or all is done.

        Those that a stopped search left under way come first.
        """
        while True:
            trials = self._journal.trials
            waiting = [each for each in trials if each.under_way and (each.number, each.bound) not in flown]
            if waiting:
                return waiting[0]
            if not self._climb(trials):
                return None

    def _climb(self, trials: Sequence[Trial]) -> bool:
        """The best that may go on is sent, from the highest rung down, else there is a new trial; False: neither."""
        for rung, above in [*pairwise(self._search.targets)][::-1]:
            gone = {each.number for each in trials if not each.alive or each.bound > rung}
            number = promoted(self._at(rung, trials), gone, self._search.factor)
            if number is not None:
                self._journal.send(number, above)
                return True
        return len(trials) < self._search.trials and self._propose()

    def _propose(self) -> bool:
        self._journal.propose(self._search.targets[0])
        return True

    def _at(self, bound: int, trials: Sequence[Trial]) -> dict[int, float]:
        """The values of all that have been there, higher the better."""
        return {each.number: self._search.signed(each.values[bound]) for each in trials if bound in each.values}
