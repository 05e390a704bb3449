"""When a training is over: the budget is spent, a threshold is reached and confirmed, or a person says so."""

import logging
import signal
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from agents.base import Agent
from agents.experience.collector import WINDOW, Policy
from config.schema import Config

SIGNALS = (signal.SIGINT, signal.SIGTERM)

log = logging.getLogger("stride")


def threshold(setting: bool | float, goal: float | None) -> float | None:
    """The return an early stop waits for: true is the goal, false is never, a number is itself."""
    if isinstance(setting, bool):
        return goal if setting else None
    return float(setting)


class Stop(Callback):
    """Reads the exported rows; ends the training between two iterations. `reason` says why, "" while it runs.

    A threshold reached in evaluation counts once `test` (100 fresh episodes) confirms it; else training goes on.
    """

    def __init__(self, config: Config, goal: float | None, test: Callable[[Policy], Mapping[str, float]]) -> None:
        self.budget, self.patience = config.max_timesteps, config.early_stop_patience
        self.train_threshold = threshold(config.early_stop_on_train_threshold, goal)
        self.eval_threshold = threshold(config.early_stop_on_eval_threshold, goal)
        self.test, self.tested = test, dict[str, float]()
        self.reason = ""
        self.streak = {"train": 0, "val": 0}
        self._evaluated, self.interrupted = False, 0
        self._steps = 0
        self._handlers: dict[int, Any] = {}

    def write(self, row: Mapping[str, float]) -> None:
        """A new row: count how often in a row a threshold was reached."""
        full = row.get("train/roll/episodes", 0) >= WINDOW
        if "train/roll/ep_rew/mean" in row and self.train_threshold is not None and full:
            reached = row["train/roll/ep_rew/mean"] >= self.train_threshold
            self.streak["train"] = self.streak["train"] + 1 if reached else 0
        if "val/roll/ep_rew/mean" in row and self.eval_threshold is not None:
            self._evaluated = True
            reached = row["val/roll/ep_rew/mean"] >= self.eval_threshold
            self.streak["val"] = self.streak["val"] + 1 if reached else 0

    def close(self) -> None:
        """Nothing is held."""

    def on_train_batch_end(
        self, trainer: L.Trainer, agent: L.LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        assert isinstance(agent, Agent)
        self.reason = self._why(agent)
        trainer.should_stop = bool(self.reason)

    def _why(self, agent: Agent) -> str:
        steps, before = agent.progress["env_steps"], self._steps
        self._steps = steps
        if self.interrupted:
            return "interrupted"
        if self._evaluated and self.streak["val"] >= self.patience and self._confirmed(agent):
            return "goal reached"
        if self.streak["train"] >= self.patience:
            return "training return reached"
        # the next iteration takes as much as this one did; the budget is never overspent
        return "budget spent" if 2 * steps - before > self.budget else ""

    def _confirmed(self, agent: Agent) -> bool:
        self._evaluated = False
        self.tested = dict(self.test(agent.policy))
        mean = self.tested.get("test/roll/ep_rew/mean", float("-inf"))
        if self.eval_threshold is not None and mean >= self.eval_threshold:
            return True
        log.info(f"evaluation reached {self.eval_threshold:g}, 100 fresh episodes gave {mean:.1f}: training goes on")
        self.tested, self.streak["val"] = {}, 0
        return False

    def on_train_start(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        """Ctrl-C and SIGTERM end the training after the present iteration, a second one at once.

        Not earlier: Lightning has by now put a handler of its own on SIGTERM, which would raise.
        """
        assert isinstance(agent, Agent)
        self._steps = agent.progress["env_steps"]
        self._handlers = {number: signal.signal(number, self._note) for number in SIGNALS}

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.interrupted = number
        for each in SIGNALS:
            signal.signal(each, signal.default_int_handler)

    def on_train_end(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        self._restore()

    def on_exception(self, trainer: L.Trainer, agent: L.LightningModule, exception: BaseException) -> None:
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}

    def state_dict(self) -> dict:
        return {"streak": dict(self.streak)}

    def load_state_dict(self, state: dict) -> None:
        self.streak = dict(state["streak"])
