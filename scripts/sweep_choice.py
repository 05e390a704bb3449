"""Who goes on in a search, and where to: the rules of utils/search_rules.py applied to what the journal holds.

Each step is one line of the journal, from which the next follows, whoever takes it and whenever: a search that was
killed between any two of them goes on as if it had not been.
"""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import Any

from config.search import Search
from utils.search_journal import PRUNED, Journal, Trial
from utils.search_rules import forks, perturbed, promoted


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
            if not (self._evolve(trials) if self._search.pbt else self._climb(trials)):
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

    def _evolve(self, trials: Sequence[Trial]) -> bool:
        """A member of the population that is behind is sent on; where none is, one of the worst is replaced."""
        if sum(each.parent is None for each in trials) < self._search.trials:
            return self._propose()
        for before, bound in pairwise((0, *self._search.targets)):
            behind = [each for each in trials if each.alive and each.born < bound and bound not in each.values]
            if behind:
                parents = {each.parent for each in behind if each.born == before}  # whose state is still to be copied
                free = [each.number for each in behind if not each.under_way and each.number not in parents]
                if free:
                    self._journal.send(free[0], bound)
                return bool(free)
            if bound < self._search.budget and self._replace(bound, trials):
                return True
        return False

    def _replace(self, bound: int, trials: Sequence[Trial]) -> bool:
        """One of the worst, if it lives, gives way to a fork of the best, which is written down before that is told."""
        for fork in forks(self._at(bound, trials)):
            if trials[fork.loser].alive:
                if not any(each.loser == fork.loser for each in trials):
                    after = min(target for target in self._search.targets if target > bound)
                    values = self._perturbed(trials[fork.best].params, len(trials))
                    self._journal.add(values, after, parent=fork.best, loser=fork.loser, born=bound)
                self._journal.tell(fork.loser, PRUNED)
                return True
        return False

    def _perturbed(self, params: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Numbers up or down, which is a function of the search's seed, the new trial and the key; choices stay."""
        found = dict(params)
        for space in self._search.spaces:
            if not space.choices:
                word = f"{self._search.seeds[0]} {number} {space.key}"
                more = hashlib.sha256(word.encode()).digest()[0] % 2 == 1
                found[space.key] = perturbed(params[space.key], space, more)
        return found

    def _propose(self) -> bool:
        self._journal.propose(self._search.targets[0])
        return True

    def _at(self, bound: int, trials: Sequence[Trial]) -> dict[int, float]:
        """The values of all that have been there, higher the better."""
        return {each.number: self._search.signed(each.values[bound]) for each in trials if bound in each.values}
