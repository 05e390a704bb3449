"""The trials of a hyperparameter search, which Optuna proposes, and the journal file that stores them (`stride sweep`).

Each line of the journal is written at once, so a killed search continues from its last line. The journal also has each
trial's value at every rung (a number of env steps at which trials are compared). Trials below the best ones pause at a
rung. Optuna gets their final state when the search is over, but their values guide the next proposals. No torch.
"""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from stride.config.extras import NEEDS_OPTUNA
from stride.config.search import Space
from stride.utils.user_error import UserError

RUNNING, COMPLETE, PRUNED, FAILED = "RUNNING", "COMPLETE", "PRUNED", "FAIL"  # Optuna's names of states


class Trial(NamedTuple):
    """A trial as the journal stores it."""

    number: int
    state: str
    params: dict[str, Any]
    values: dict[int, float]
    """the metric's value at each rung it has reached: {env steps: value}"""
    bound: int
    """the env steps up to which it is to train now"""
    runs: Sequence[str] = ()
    """ids of its runs, one for each seed"""

    @property
    def alive(self) -> bool:
        return self.state == RUNNING

    @property
    def last(self) -> float:
        """The value at its highest rung."""
        return self.values[max(self.values)]

    @property
    def under_way(self) -> bool:
        """Whether it was sent to a rung that it has not reached yet."""
        return self.alive and self.bound not in self.values


class NoLock:
    """Replaces Optuna's lock file, which would stay locked for half a minute after its owner is killed."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


class Journal:
    """The trials of one search. Only the process that holds the lock of the search's folder may write the file."""

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
        """All trials, in the order of their numbers, which count from 0."""
        return [
            Trial(trial.number, trial.state.name, trial.params, dict(trial.intermediate_values), **trial.user_attrs)
            for trial in self._study.get_trials(deepcopy=False)
        ]

    def propose(self, bound: int) -> None:
        """Add a new trial, to be trained to `bound` env steps."""
        number = len(self._study.get_trials(deepcopy=False))
        params = grid(self._spaces)[number] if self._method == "grid" else self._asked(number)
        trial_fields = {"params": params, "distributions": self._ranges, "user_attrs": {"bound": bound}}
        self._study.add_trial(self._frozen(RUNNING, **trial_fields))

    def send(self, number: int, bound: int) -> None:
        """Record that a trial goes on to `bound` env steps."""
        self._live(number).set_user_attr("bound", bound)

    def reached(self, number: int, bound: int, value: float, runs: Sequence[str]) -> None:
        """Record that a trial reached `bound` with this value."""
        live_trial = self._live(number)
        live_trial.set_user_attr("runs", [*runs])
        live_trial.report(value, bound)

    def tell(self, number: int, state: str, value: float | None = None) -> None:
        """Record a trial's final state; call it once per trial."""
        self._study.tell(number, value, self._optuna.trial.TrialState[state])

    def _asked(self, number: int) -> dict[str, Any]:
        """Return parameters that the sampler proposes after all results so far; its seed depends on `number`.

        The sampler gets the last value of each trial as a complete result, whatever its rung. If it got pruned trials
        with their rungs, it would rate any trial at a higher rung above all at lower ones.
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
        """Return Optuna's object for a running trial, also if another process asked for it."""
        return self._optuna.trial.Trial(self._study, self._study.get_trials(deepcopy=False)[number]._trial_id)

    def _range(self, space: Space) -> Any:
        """Return the parameter's range as Optuna's distribution."""
        kinds = self._optuna.distributions
        if space.choices:
            return kinds.CategoricalDistribution(space.choices)
        if space.whole:
            return kinds.IntDistribution(int(space.low), int(space.high), log=space.log, step=int(space.step or 1))
        return kinds.FloatDistribution(space.low, space.high, log=space.log, step=space.step)


def grid(spaces: Sequence[Space]) -> list[dict[str, Any]]:
    """Return all combinations of choices as {key: choice}; the last parameter changes fastest."""
    keys = [space.key for space in spaces]
    return [dict(zip(keys, choices, strict=True)) for choices in product(*(space.choices for space in spaces))]
