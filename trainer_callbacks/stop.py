"""The callback that ends a training: the budget is spent, a return reached a threshold, or a person stops it."""

import logging
import math
from collections.abc import Callable, Mapping

import lightning as L
from lightning.pytorch.callbacks import Callback

from stride.agents.base import Agent
from stride.agents.experience.collector import WINDOW, Policy
from stride.config.schema import Config
from stride.runstore.outcome import INTERRUPTED, PAUSED
from stride.trainer_callbacks.interrupt import Interrupts
from stride.trainer_callbacks.schedule import AtPlateau

TEST_MEAN, TEST_EPISODES = "test/roll/ep_rew/mean", "test/roll/episodes"

log = logging.getLogger("stride")


def threshold(setting: bool | float, goal: float | None) -> float | None:
    """Return the return that an early stop waits for: the goal for true, None (never) for false, else the number."""
    if isinstance(setting, bool):
        return goal if setting else None
    return float(setting)


def ignored_thresholds(config: Config, goal: float | None) -> list[str]:
    """Return a line for each key without effect, or whose effect depends on the machine: none is ignored silently."""
    lines = []
    if config.eval_freq_epochs is None and threshold(config.early_stop_on_eval_threshold, goal) is not None:
        lines.append(f"evaluation is off (eval_freq_epochs: null): the run does not stop early at the goal of {goal:g}")
    if config.eval_freq_epochs is None and goal is None and config.test_episodes:
        lines.append("evaluation is off and there is no goal (spec.goal): the final weights are not tested")
    if config.eval_timeout_seconds is not None:
        lines.append("eval_timeout_seconds is set: evaluations, and so this run, may depend on the machine's speed")
    if config.early_stop_on_train_threshold is True and goal is None:
        lines.append("early_stop_on_train_threshold is true, but there is no goal (spec.goal): it has no effect")
    return lines


class Stop(Callback):
    """Ends the training between two iterations; `reason` says why, and is "" while it runs.

    If evaluations reach the threshold, `test` plays new episodes; training ends only if they reach it, too.
    """

    def __init__(
        self,
        config: Config,
        goal: float | None,
        test: Callable[[Policy], Mapping[str, float]],
        exported: Callable[[], Mapping[str, float]] = dict,
        interrupts: Interrupts | None = None,
        closing: bool = False,
        plateau: AtPlateau | None = None,
        pause_at: int | None = None,
    ) -> None:
        """`test(policy)` returns the metrics of a test. `exported()` returns the present iteration's row, {} if none.

        `closing`: a resumed run whose training was complete when its process died: only test and report are missing.
        `pause_at`: env steps; the training pauses after the first iteration that reaches this number.
        """
        self.config = config
        self.goal = goal
        self.test = test
        self.exported = exported
        self.interrupts = interrupts or Interrupts()
        self.closing = closing
        self.plateau = plateau
        self.pause_at = pause_at
        self.thresholds = {
            "train": threshold(config.early_stop_on_train_threshold, goal),
            "val": threshold(config.early_stop_on_eval_threshold, goal),
        }
        self.streak = {"train": 0, "val": 0}  # consecutive rows that reached their threshold
        self.tested: dict[str, float] = {}  # metrics of the test that confirmed the end, {} if there was none
        self.reason = ""
        self._steps_before = 0  # env steps before the present iteration

    @property
    def halted(self) -> bool:
        """Whether the training was interrupted (by a signal, or at `pause_at`) and can be continued later."""
        return bool(self.interrupts.number) or self.reason == PAUSED

    def count(self, row: Mapping[str, float]) -> None:
        """Update `streak` with this row."""
        # a row counts for "train" once its mean is over a full window of episodes, for "val" if it has an evaluation
        complete = {
            "train": row.get("train/roll/episodes", 0) >= WINDOW and "train/roll/ep_rew/mean" in row,
            "val": "val/roll/episodes" in row,
        }
        for name, limit in self.thresholds.items():
            if limit is not None and complete[name]:
                # an evaluation whose episodes did not all end has no mean, and did not reach the threshold
                reached = row.get(f"{name}/roll/ep_rew/mean", math.nan) >= limit
                self.streak[name] = self.streak[name] + 1 if reached else 0

    def is_due(self, agent: Agent) -> bool:
        """Return whether training ends after this iteration for a reason that needs no row: signal, budget, pause."""
        return bool(self.interrupts.number or self._end_of_steps(agent))

    def on_train_batch_start(self, trainer: L.Trainer, agent: Agent, *rest: object) -> None:  # type: ignore[override]
        self._steps_before = agent.progress["env_steps"]

    def on_train_batch_end(self, trainer: L.Trainer, agent: Agent, *rest: object) -> None:  # type: ignore[override]
        self.interrupts.iteration_done()
        self.count(self.exported())
        self.reason = self._reason_to_stop(agent)
        trainer.should_stop = bool(self.reason)

    def _reason_to_stop(self, agent: Agent) -> str:
        """Return why the training ends now, "" if it continues; plays a test if evaluations reached the threshold."""
        if self.interrupts.number:
            return INTERRUPTED
        if self._reached("val") and self._confirmed(agent):
            reached = self.goal is not None and self.tested.get(TEST_MEAN, -math.inf) >= self.goal
            return "goal reached" if reached else "evaluation return reached"
        if self._reached("train"):
            return "training return reached"
        if self.plateau and self.plateau.over:
            return "plateau reached"
        return self._end_of_steps(agent)  # last: a better reason is reported even if the budget is spent, too

    def _end_of_steps(self, agent: Agent) -> str:
        steps = agent.progress["env_steps"]
        # the next iteration takes as many steps as this one did; a run never exceeds its budget
        if steps + (steps - self._steps_before) > self.config.max_timesteps:
            return "budget spent"
        return PAUSED if self.pause_at is not None and steps >= self.pause_at else ""

    def _reached(self, name: str) -> bool:
        """Return whether early_stop_patience rows in a row reached the threshold; False if there is none."""
        return self.thresholds[name] is not None and self.streak[name] >= self.config.early_stop_patience

    def _confirmed(self, agent: Agent) -> bool:
        """Play a test and return whether it reaches the threshold of evaluations, too; True if tests are off."""
        limit, episodes = self.thresholds["val"], self.config.test_episodes
        if not episodes:
            return True
        self.tested = dict(self.test(agent.policy))
        mean = self.tested.get(TEST_MEAN, math.nan)  # NaN, if not every episode ended, confirms nothing
        if limit is not None and mean >= limit:
            return True
        result = f"{episodes} fresh episodes gave {mean:.1f}"
        if math.isnan(mean):
            result = f"{self.tested.get(TEST_EPISODES, 0):.0f} of {episodes} fresh episodes do not count"
        log.info(f"evaluation reached {limit:g}, but {result}: training continues")
        self.tested = {}
        self.streak["val"] = 0
        return False

    def on_train_start(self, trainer: L.Trainer, agent: Agent) -> None:  # type: ignore[override]
        """Decide whether a resumed training ends at once, and let signals wait for iterations from now on.

        It ends at once if the earlier process died after the last iteration and before it wrote the end. If the end was
        written (`reason` is loaded), the person asks for more: counts that led to that end start again from 0.
        """
        steps, iterations = agent.progress["env_steps"], agent.progress["iterations"]
        self._steps_before = steps - steps // max(1, iterations)
        if not (self.closing and self.reason):
            if self.reason:
                patience = self.config.early_stop_patience
                self.streak = {name: count if count < patience else 0 for name, count in self.streak.items()}
            self.tested = {}
            self.reason = self._reason_to_stop(agent)
        self._steps_before = steps
        trainer.should_stop = bool(self.reason)
        self.interrupts.listen()
        self.interrupts.patient = True

    def state_dict(self) -> dict:
        reason = "" if self.reason in (INTERRUPTED, PAUSED) else self.reason
        return {"streak": dict(self.streak), "reason": reason, "tested": dict(self.tested)}

    def load_state_dict(self, state: dict) -> None:
        self.streak = {name: state["streak"][name] for name in self.streak}
        self.reason = state["reason"]
        self.tested = dict(state["tested"])
