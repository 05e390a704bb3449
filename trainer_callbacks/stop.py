"""When a training is over: the budget is spent, a threshold is reached and confirmed, or a person stops it."""

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
    """The return an early stop waits for: true is the goal, false is never, a number is itself."""
    if isinstance(setting, bool):
        return goal if setting else None
    return float(setting)


def ignored_thresholds(config: Config, goal: float | None) -> list[str]:
    """A line for each key that will have no effect, or not the same on every machine: none is ignored silently."""
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

        `closing`: a resumed run whose training was over when its process died only needs its end.
        `pause_at`: env steps; the first iteration that ends with as many is the last one for now.
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
        self.streak = {"train": 0, "val": 0}  # rows one after the other that reached their threshold
        self.tested: dict[str, float] = {}
        self.reason = ""
        self._steps = 0  # env steps before the present iteration

    @property
    def halted(self) -> bool:
        """Whether it stops for now, to go on another time: by a signal, or where it was to pause."""
        return bool(self.interrupts.number) or self.reason == PAUSED

    def count(self, row: Mapping[str, float]) -> None:
        """Count the rows that reach a threshold one after the other."""
        complete = {
            "train": row.get("train/roll/episodes", 0) >= WINDOW and "train/roll/ep_rew/mean" in row,
            "val": "val/roll/episodes" in row,
        }
        for name, limit in self.thresholds.items():
            if limit is not None and complete[name]:
                # an evaluation of which not every episode ended has no mean, and reached nothing
                reached = row.get(f"{name}/roll/ep_rew/mean", math.nan) >= limit
                self.streak[name] = self.streak[name] + 1 if reached else 0

    def is_due(self, agent: Agent) -> bool:
        """Whether the training ends after the iteration just done, of which there is no row."""
        return bool(self.interrupts.number or self._end_of_steps(agent))

    def on_train_batch_start(self, trainer: L.Trainer, agent: Agent, *rest: object) -> None:  # type: ignore[override]
        self._steps = agent.progress["env_steps"]

    def on_train_batch_end(self, trainer: L.Trainer, agent: Agent, *rest: object) -> None:  # type: ignore[override]
        self.interrupts.iteration_done()
        self.count(self.exported())
        self.reason = self._reason_to_stop(agent)
        trainer.should_stop = bool(self.reason)

    def _reason_to_stop(self, agent: Agent) -> str:
        if self.interrupts.number:
            return INTERRUPTED
        if self._reached("val") and self._confirmed(agent):
            reached = self.goal is not None and self.tested.get(TEST_MEAN, -math.inf) >= self.goal
            return "goal reached" if reached else "evaluation return reached"
        if self._reached("train"):
            return "training return reached"
        if self.plateau and self.plateau.over:
            return "plateau reached"
        return self._end_of_steps(agent)  # last: a run that is over has nothing to go on with

    def _end_of_steps(self, agent: Agent) -> str:
        steps = agent.progress["env_steps"]
        # the next iteration takes as much as this one did; the budget is never overspent
        if steps + (steps - self._steps) > self.config.max_timesteps:
            return "budget spent"
        return PAUSED if self.pause_at is not None and steps >= self.pause_at else ""

    def _reached(self, name: str) -> bool:
        """Often enough; a resumed run may have no threshold any more."""
        return self.thresholds[name] is not None and self.streak[name] >= self.config.early_stop_patience

    def _confirmed(self, agent: Agent) -> bool:
        """Whether fresh episodes reach the threshold of evaluations, too."""
        limit, episodes = self.thresholds["val"], self.config.test_episodes
        if not episodes:
            return True
        self.tested = dict(self.test(agent.policy))
        mean = self.tested.get(TEST_MEAN, math.nan)  # NaN, as not every episode ended, confirms nothing
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
        """From here on an iteration is under way, which a signal waits for. The training may be over already, or be
        where it was to pause: something stopped it there before it could say so. One that had said so goes on all the
        same, with more to do."""
        steps, iterations = agent.progress["env_steps"], agent.progress["iterations"]
        self._steps = steps - steps // max(1, iterations)
        if not (self.closing and self.reason):
            if self.reason:
                patience = self.config.early_stop_patience
                self.streak = {name: count if count < patience else 0 for name, count in self.streak.items()}
            self.tested = {}
            self.reason = self._reason_to_stop(agent)
        self._steps = steps
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
