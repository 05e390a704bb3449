"""Callbacks that change hyperparameters: ApplySchedules with the env steps, AtPlateau if a metric stops improving."""

import logging
from collections.abc import Callable, Mapping

import lightning as L
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from stride.agents.base import Agent
from stride.agents.experience.collector import WINDOW
from stride.config.metrics import declared
from stride.config.plateau import EVALUATED, Plateau
from stride.config.schedule import FollowKL, Schedule

OPTIMIZER_OPTIONS = {"weight_decay": "weight_decay", "optimizer_eps": "eps"}  # config key: option of torch's optimizer
WINDOW_METRICS = "train/roll/"  # metrics with this beginning are means over the last WINDOW episodes

log = logging.getLogger("stride")


class AtPlateau(Callback):
    """Detects a plateau: `patience` values of a metric without a better one. Exists only with the config key `plateau`.

    ApplySchedules multiplies the scheduled values by `factors`; Stop ends the training once `over` is true.
    This is the only way in which an evaluation can influence what is learnt.
    """

    def __init__(self, config: Plateau, exported: Callable[[], Mapping[str, float]]) -> None:
        """`exported()` returns the row of the iteration just done, {} if none was due."""
        self.config = config
        self._exported = exported
        self._falling = declared(config.metric).better == "down"
        self.factors = dict.fromkeys(config.scale, 1.0)  # by config key: {"policy_lr": 0.25}
        self.best: float | None = None
        self.waited = 0  # values since the best one or the last plateau
        self.plateaus = 0  # how many there were so far
        self.over = False
        self._missing = 0  # consecutive rows that should contain the metric and do not

    def on_train_batch_end(self, trainer: L.Trainer, agent: Agent, *rest: object) -> None:  # type: ignore[override]
        row, metric = self._exported(), self.config.metric
        if metric in row:
            self._missing = 0
            # a lucky mean of the few first episodes would be hard to beat: wait for a full window
            full = not metric.startswith(WINDOW_METRICS) or row.get("train/roll/episodes", 0) >= WINDOW
            if full and self._is_plateau(row[metric]):
                self._act(agent.progress["env_steps"])
        elif self._should_be_in(row):
            self._missing += 1
            if self._missing == self.config.patience:
                stage = metric.partition("/")[0] + "/"
                present = ", ".join(name for name in row if name.startswith(stage) and declared(name).may_steer)
                log.warning(f"plateau: no {metric} in {self._missing} rows, so it has no effect; available: {present}")

    def _is_plateau(self, value: float) -> bool:
        """Count the value; return whether it is the last of `patience` values in a row that were not better."""
        if self.best is None:
            better = value == value  # false for NaN
        else:
            better = (self.best - value if self._falling else value - self.best) > self.config.min_delta
        if better:
            self.best = value
        self.waited = 0 if better else self.waited + 1
        return self.waited >= self.config.patience

    def _act(self, env_steps: int) -> None:
        """Do what the config says for a plateau (scale values, or end the training), and log it."""
        config = self.config
        best = "a number" if self.best is None else f"{self.best:g}"
        self.plateaus += 1
        self.waited = 0
        description = f"plateau at {env_steps:,} env steps, no better than {best} {config.patience} times in a row"
        description += f" in {config.metric}"
        if config.scale and (config.times is None or self.plateaus <= config.times):
            self.factors = {key: self.factors[key] * factor for key, factor in config.scale.items()}
            changes = [f"{key} x {factor:g} from now on" for key, factor in self.factors.items()]
            log.info(f"{description}: {', '.join(changes)}")
        elif config.then == "stop":
            self.over = True
            log.info(f"{description}: the training ends")

    def _should_be_in(self, row: Mapping[str, float]) -> bool:
        """Return whether the row ought to contain the metric: that of an evaluation only if there was one, others only
        after the first update."""
        if self.config.metric.startswith(EVALUATED):
            return "val/roll/episodes" in row
        return row.get("train/clock/updates", 0) > 0

    def on_train_start(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        """Continue a run that a plateau had ended: who resumes it wants more training."""
        self.over = False

    def state_dict(self) -> dict:
        return {
            "metric": self.config.metric,
            "best": self.best,
            "factors": dict(self.factors),
            "waited": self.waited,
            "plateaus": self.plateaus,
        }

    def load_state_dict(self, state: dict) -> None:
        """Restore what still applies, if the config now has another metric or scales other keys."""
        self.factors |= {key: float(state["factors"][key]) for key in self.factors if key in state["factors"]}
        self.plateaus = int(state["plateaus"])
        if state["metric"] == self.config.metric:
            self.best = state["best"]
            self.waited = int(state["waited"])


class ApplySchedules(Callback):
    """Before each iteration, writes the present values of hyperparameters to `agent.live` and into the optimizers."""

    def __init__(self, plateau: AtPlateau | None = None) -> None:
        """`plateau`: its factors multiply the values."""
        self._plateau = plateau
        self._schedules: dict[str, Schedule] = {}
        self._constants: dict[str, float] = {}

    def on_train_start(self, trainer: L.Trainer, agent: Agent) -> None:  # type: ignore[override]
        self._schedules = agent.config.schedules()  # found once: about six of the fifty fields
        values = {name: vars(agent.config)[name] for name in agent.config.driven() if name not in self._schedules}
        # the agent itself writes a learning rate that follows the KL divergence
        self._constants = {name: value for name, value in values.items() if not isinstance(value, FollowKL)}

    def on_train_batch_start(self, trainer: L.Trainer, agent: Agent, *rest: object) -> None:  # type: ignore[override]
        values = dict(self._constants)
        for name, schedule in self._schedules.items():
            values[name] = schedule.at(agent.progress["env_steps"], agent.config.max_timesteps)
        factors = self._plateau.factors if self._plateau else {}
        live = vars(agent.live)
        for name, value in values.items():
            value *= factors.get(name, 1.0)
            if isinstance(live[name], Tensor):  # a CUDA graph reads this tensor on the device; fill_ does not wait
                live[name].fill_(value)
            else:
                live[name] = value
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = agent.live.policy_lr
                if "lr_scale" in group:
                    group["lr"] = agent.live.policy_lr * group["lr_scale"]
                for name, option in OPTIMIZER_OPTIONS.items():
                    if name in values and option in group:
                        group[option] = live[name]
