"""What is done where a metric gets no better: keys are scaled down or up, then the training ends.

The one thing by which an evaluation steers what is learnt; a run without the key `plateau` has none of it.
"""

import logging
from collections.abc import Callable, Mapping

import lightning as L
from lightning.pytorch.callbacks import Callback

from stride.agents.base import Agent
from stride.agents.experience.collector import WINDOW
from stride.config.metrics import declared
from stride.config.plateau import EVALUATED, Plateau

ROLLING = "train/roll/"  # means over the last WINDOW episodes

log = logging.getLogger("stride")


class AtPlateau(Callback):
    """Looks at each row; ApplySchedules multiplies by `factors`, Stop ends the training once it is `over`."""

    def __init__(self, config: Plateau, exported: Callable[[], Mapping[str, float]]) -> None:
        """`exported`: the row of the iteration just done, {} where none was due."""
        self.config, self._exported = config, exported
        self._falling = declared(config.metric).better == "down"
        self.factors = dict.fromkeys(config.scale, 1.0)
        self.best: float | None = None
        self.waited = self.plateaus = 0  # values since the best one or the last plateau; plateaus so far
        self.over = False
        self._missing = 0  # rows in a row in which the metric should have been

    def on_train_batch_end(
        self, trainer: L.Trainer, agent: L.LightningModule, outputs: object, batch: object, index: int
    ) -> None:
        assert isinstance(agent, Agent)
        row, metric = self._exported(), self.config.metric
        if metric in row:
            self._missing = 0
            # of a few first episodes one lucky mean would be hard to beat
            full = not metric.startswith(ROLLING) or row.get("train/roll/episodes", 0) >= WINDOW
            if full and self._is_plateau(row[metric]):
                self._act(agent.progress["env_steps"])
        elif self._should_be_in(row):
            self._missing += 1
            if self._missing == self.config.patience:
                log.warning(self._never(row))

    def _is_plateau(self, value: float) -> bool:
        """Whether this value is the last of so many that were no better; NaN never is."""
        gained = -1.0 if self.best is None else self.best - value if self._falling else value - self.best
        if gained > self.config.min_delta or (self.best is None and value == value):
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return self.waited >= self.config.patience

    def _act(self, env_steps: int) -> None:
        config, best = self.config, "a number" if self.best is None else f"{self.best:g}"
        self.plateaus, self.waited = self.plateaus + 1, 0
        told = (
            f"plateau at {env_steps:,} env steps, {config.patience} in a row no better than {best} in {config.metric}"
        )
        if config.scale and (config.times is None or self.plateaus <= config.times):
            self.factors = {key: self.factors[key] * factor for key, factor in config.scale.items()}
            log.info(f"{told}: {', '.join(f'{key} x {now:g} from now on' for key, now in self.factors.items())}")
        elif config.then == "stop":
            self.over = True
            log.info(f"{told}: the training ends")

    def _should_be_in(self, row: Mapping[str, float]) -> bool:
        """Rows without an evaluation hold none of its metrics, and before the first update nothing was learnt."""
        if self.config.metric.startswith(EVALUATED):
            return "val/roll/episodes" in row
        return row.get("train/clock/updates", 0) > 0

    def _never(self, row: Mapping[str, float]) -> str:
        stage = self.config.metric.partition("/")[0] + "/"
        there = ", ".join(name for name in row if name.startswith(stage) and declared(name).may_steer)
        return f"plateau: no {self.config.metric} in {self._missing} rows, so nothing follows; there are {there}"

    def on_train_start(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        """Who goes on with a run that a plateau ended wants more of it: patience begins anew."""
        self.over = False

    def state_dict(self) -> dict:
        state = {"metric": self.config.metric, "best": self.best, "factors": dict(self.factors)}
        return {**state, "waited": self.waited, "plateaus": self.plateaus}

    def load_state_dict(self, state: dict) -> None:
        """Where the config names another metric now, or scales other keys, only what is still meant goes on."""
        self.factors |= {key: float(state["factors"][key]) for key in self.factors if key in state["factors"]}
        self.plateaus = int(state["plateaus"])
        if state["metric"] == self.config.metric:
            self.best, self.waited = state["best"], int(state["waited"])
