"""The trials of a search and who proposes them: Optuna, by ask and tell, with its journal as the one thing kept.

Each line of the journal is written at once, so a search that was killed goes on from its last. What a trial came to at
the rungs is in it, too: whoever proposes the next trial learns from those that rest, which are told only when the
search is over, once. No torch.
"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from stride.config.extras import NEEDS_OPTUNA
from stride.config.search import Space
from stride.utils.user_error import UserError

RUNNING, COMPLETE, PRUNED, FAILED = "RUNNING", "COMPLETE", "PRUNED", "FAIL"  # as Optuna calls them


class Trial(NamedTuple):
    """A trial as the journal has it."""

    number: int
    state: str
    params: dict[str, Any]
    values: dict[int, float]
    """what it came to, by the env steps it was to reach"""
    bound: int
    """the env steps it was last sent to"""
    runs: Sequence[str] = ()
    """ids, one for each seed"""

    @property
    def alive(self) -> bool:
        return self.state == RUNNING

    @property
    def last(self) -> float:
        """The value at its farthest rung."""
        return self.values[max(self.values)]

    @property
    def under_way(self) -> bool:
        """Whether it was sent somewhere and has not been heard of since."""
        return self.alive and self.bound not in self.values


class NoLock:
    """In place of Optuna's own lock, which outlives who is killed by half a minute."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


class Journal:
    """Trials of one search; its file has one writer, who holds the folder's lock."""

    def __init__(self, folder: Path, spaces: Sequence[Space], method: str, maximize: bool, seed: int) -> None:
        try:
            import optuna
            import optuna.storages.journal
        except ImportError as error:
            raise UserError(NEEDS_OPTUNA) from error
        self._optuna: Any = optuna
        self._optuna.logging.set_verbosity(optuna.logging.ERROR)
        self._spaces, self._method, self._seed = spaces, method, seed
        self._ranges = {space.key: self._range(space) for space in spaces}
        self._direction = "maximize" if maximize else "minimize"
        backend = self._optuna.storages.journal.JournalFileBackend(str(folder / "journal.log"), NoLock())
        self._study: Any = self._optuna.create_study(
            storage=self._optuna.storages.JournalStorage(backend), study_name=folder.name, direction=self._direction,
            load_if_exists=True,
        )  # fmt: skip

    @property
    def trials(self) -> list[Trial]:
        """In the order of their numbers, which count from 0."""
        return [
            Trial(trial.number, trial.state.name, trial.params, dict(trial.intermediate_values), **trial.user_attrs)
            for trial in self._study.get_trials(deepcopy=False)
        ]

    def propose(self, bound: int) -> None:
        """One more trial."""
        number = len(self._study.get_trials(deepcopy=False))
        params = grid(self._spaces)[number] if self._method == "grid" else self._asked(number)
        trial_fields = {"params": params, "distributions": self._ranges, "user_attrs": {"bound": bound}}
        self._study.add_trial(self._frozen(RUNNING, **trial_fields))

    def send(self, number: int, bound: int) -> None:
        """It goes on to so many env steps."""
        self._live(number).set_user_attr("bound", bound)

    def reached(self, number: int, bound: int, value: float, runs: Sequence[str]) -> None:
        """It is where it was sent to."""
        live_trial = self._live(number)
        live_trial.set_user_attr("runs", [*runs])
        live_trial.report(value, bound)

    def tell(self, number: int, state: str, value: float | None = None) -> None:
        """How it ended; said once of a trial."""
        self._study.tell(number, value, self._optuna.trial.TrialState[state])

    def _asked(self, number: int) -> dict[str, Any]:
        """Parameters proposed by the sampler after all results so far; its draws are those of this number, even if the
        search was stopped before it.

        It is told of the last value of each trial, wherever that was: of pruned ones it would take any that came to a
        higher rung for better than all below, and the first to climb are those that came first.
        """
        samplers, seed = self._optuna.samplers, self._seed * 10_007 + number
        sampler = samplers.TPESampler(seed=seed) if self._method == "bayes" else samplers.RandomSampler(seed=seed)
        history = self._optuna.create_study(direction=self._direction, sampler=sampler)
        for trial, stored_trial in zip(self.trials, self._study.get_trials(), strict=True):
            if trial.values:
                trial_fields = {"params": stored_trial.params, "distributions": stored_trial.distributions}
                history.add_trial(self._frozen(COMPLETE, **trial_fields, value=trial.last))
            else:
                history.add_trial(stored_trial)
        proposed: dict[str, Any] = history.ask(self._ranges).params
        return proposed

    def _frozen(self, state: str, **trial_fields: Any) -> Any:
        return self._optuna.trial.create_trial(state=self._optuna.trial.TrialState[state], **trial_fields)

    def _live(self, number: int) -> Any:
        """The trial as it was when it was asked for, by whichever process."""
        return self._optuna.trial.Trial(self._study, self._study.get_trials(deepcopy=False)[number]._trial_id)

    def _range(self, space: Space) -> Any:
        kinds = self._optuna.distributions
        if space.choices:
            return kinds.CategoricalDistribution(space.choices)
        if space.whole:
            return kinds.IntDistribution(int(space.low), int(space.high), log=space.log, step=int(space.step or 1))
        return kinds.FloatDistribution(space.low, space.high, log=space.log, step=space.step)


def grid(spaces: Sequence[Space]) -> list[dict[str, Any]]:
    """Each combination of choices, in the order of the file, the last parameter the fastest."""
    keys = [space.key for space in spaces]
    return [dict(zip(keys, choices, strict=True)) for choices in product(*(space.choices for space in spaces))]
