"""When a training is over: the budget is spent, a threshold is reached and confirmed, or a person says so."""

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
from stride.trainer_callbacks.plateau import AtPlateau

TESTED, TEST_EPISODES = "test/roll/ep_rew/mean", "test/roll/episodes"

log = logging.getLogger("stride")


def threshold(setting: bool | float, goal: float | None) -> float | None:
    """The return an early stop waits for: true is the goal, false is never, a number is itself."""
    if isinstance(setting, bool):
        return goal if setting else None
    return float(setting)


def unheeded(config: Config, goal: float | None) -> list[str]:
    """A line for each threshold that is set and can never be reached: nothing is void in silence."""
    lines = []
    if config.eval_freq_epochs is None and threshold(config.early_stop_on_eval_threshold, goal) is not None:
        lines.append(f"evaluation is off (eval_freq_epochs: null): the goal of {goal:g} does not stop this run early")
    if config.early_stop_on_train_threshold is True and goal is None:
        lines.append("early_stop_on_train_threshold is true, but no goal is known (spec.goal): it stops nothing")
    return lines


class Stop(Callback):
    """Ends the training between two iterations; `reason` says why, "" while it runs.

    A threshold reached in evaluation counts once `test` (fresh episodes) confirms it; else training goes on.
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
        """`exported`: the row of the iteration just done, {} where none was due.

        `closing`: a resumed run whose training was over when its process died only needs its end told.
        `pause_at`: env steps; the first iteration that ends with as many is the last one for now.
        """
        self.budget, self.patience, self.goal = config.max_timesteps, config.early_stop_patience, goal
        self.train_threshold = threshold(config.early_stop_on_train_threshold, goal)
        self.eval_threshold = threshold(config.early_stop_on_eval_threshold, goal)
        self.test, self.tested, self.test_episodes = test, dict[str, float](), config.test_episodes
        self.exported, self.pause_at = exported, pause_at
        self.reason = ""
        self.streak = {"train": 0, "val": 0}
        self.interrupts, self.closing, self.plateau = interrupts or Interrupts(), closing, plateau
        self._steps = 0

    @property
    def halted(self) -> bool:
        """Whether it stops for now, to go on another time: by a signal, or where it was to pause."""
        return bool(self.interrupts.number) or self.reason == PAUSED

    def count(self, row: Mapping[str, float]) -> None:
        """How often in a row each threshold was reached."""
        full = row.get("train/roll/episodes", 0) >= WINDOW
        if "train/roll/ep_rew/mean" in row and self.train_threshold is not None and full:
            reached = row["train/roll/ep_rew/mean"] >= self.train_threshold
            self.streak["train"] = self.streak["train"] + 1 if reached else 0
        if "val/roll/episodes" in row and self.eval_threshold is not None:
            # an evaluation of which not every episode ended has no mean, and reached nothing
            reached = row.get("val/roll/ep_rew/mean", math.nan) >= self.eval_threshold
            self.streak["val"] = self.streak["val"] + 1 if reached else 0

    def on_train_batch_end(
        self, trainer: L.Trainer, agent: L.LightningModule, outputs: object, batch: object, index: int
    ) -> None:
        assert isinstance(agent, Agent)
        self.interrupts.iteration_done()
        self.count(self.exported())
        self.reason = self._why(agent)
        trainer.should_stop = bool(self.reason)

    def _why(self, agent: Agent) -> str:
        steps, before = agent.progress["env_steps"], self._steps
        self._steps = steps
        if self.interrupts.number:
            return INTERRUPTED
        if self._reached("val", self.eval_threshold) and self._confirmed(agent):
            reached = self.goal is not None and self.tested.get(TESTED, -math.inf) >= self.goal
            return "goal reached" if reached else "evaluation return reached"
        if self._reached("train", self.train_threshold):
            return "training return reached"
        if self.plateau and self.plateau.over:
            return "plateau reached"
        # the next iteration takes as much as this one did; the budget is never overspent
        if 2 * steps - before > self.budget:
            return "budget spent"
        # last: a run that is over has nothing to go on with
        return PAUSED if self.pause_at is not None and steps >= self.pause_at else ""

    def _reached(self, name: str, limit: float | None) -> bool:
        return limit is not None and self.streak[name] >= self.patience  # a resumed run may have no limit any more

    def _confirmed(self, agent: Agent) -> bool:
        if not self.test_episodes:
            return True
        self.tested = dict(self.test(agent.policy))
        mean = self.tested.get(TESTED, math.nan)  # without a mean, as not every episode ended, nothing is confirmed
        if self.eval_threshold is not None and mean >= self.eval_threshold:
            return True
        number = f"{self.tested.get(TEST_EPISODES, 0):.0f} of " if math.isnan(mean) else ""
        gave = "do not count" if number else f"gave {mean:.1f}"
        fresh = f"{number}{self.test_episodes} fresh episodes {gave}"
        log.info(f"evaluation reached {self.eval_threshold:g}, {fresh}: training goes on")
        self.tested, self.streak["val"] = {}, 0
        return False

    def on_train_start(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        """From here on an iteration is under way, which a signal waits for; the training may be over already, or stand
        where it was to pause: something stopped it there before it could say so. One that had said so goes on all the
        same, with more to do."""
        assert isinstance(agent, Agent)
        steps, iterations = agent.progress["env_steps"], agent.progress["iterations"]
        self._steps = steps - steps // max(1, iterations)
        if not (self.closing and self.reason):
            if self.reason:
                self.streak = {name: count if count < self.patience else 0 for name, count in self.streak.items()}
            self.tested = {}
            self.reason = self._why(agent)
        self._steps = steps
        trainer.should_stop = bool(self.reason)
        self.interrupts.listen()
        self.interrupts.patient = True

    def state_dict(self) -> dict:
        reason = "" if self.reason in (INTERRUPTED, PAUSED) else self.reason
        return {"streak": dict(self.streak), "reason": reason, "tested": dict(self.tested)}

    def load_state_dict(self, state: dict) -> None:
        self.streak = {name: state["streak"][name] for name in self.streak}
        self.reason, self.tested = state["reason"], dict(state["tested"])
