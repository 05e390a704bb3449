"""Hyperparameters that change: with the clock by their schedules, and where a metric gets no better (`plateau`)."""

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

OPTIONS = {"weight_decay": "weight_decay", "optimizer_eps": "eps"}  # of an optimizer, beside its rate
ROLLING = "train/roll/"  # means over the last WINDOW episodes

log = logging.getLogger("stride")


class AtPlateau(Callback):
    """Looks at each row; ApplySchedules multiplies by `factors`, Stop ends the training once it is `over`.

    The one thing by which an evaluation steers what is learnt; a run without the key `plateau` has none of it.
    """

    def __init__(self, config: Plateau, exported: Callable[[], Mapping[str, float]]) -> None:
        """`exported`: the row of the iteration just done, {} where none was due."""
        self.config = config
        self._exported = exported
        self._falling = declared(config.metric).better == "down"
        self.factors = dict.fromkeys(config.scale, 1.0)
        self.best: float | None = None
        self.waited = 0  # values since the best one or the last plateau
        self.plateaus = 0  # so far
        self.over = False
        self._missing = 0  # rows in a row in which the metric should have been

    def on_train_batch_end(self, trainer: L.Trainer, agent: Agent, *rest: object) -> None:  # type: ignore[override]
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
                stage = metric.partition("/")[0] + "/"
                present = ", ".join(name for name in row if name.startswith(stage) and declared(name).may_steer)
                log.warning(f"plateau: no {metric} in {self._missing} rows, so it has no effect; available: {present}")

    def _is_plateau(self, value: float) -> bool:
        """Whether this value is the last of `patience` that were no better; NaN never is better."""
        if self.best is None:
            better = value == value
        else:
            better = (self.best - value if self._falling else value - self.best) > self.config.min_delta
        if better:
            self.best = value
        self.waited = 0 if better else self.waited + 1
        return self.waited >= self.config.patience

    def _act(self, env_steps: int) -> None:
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
        """Rows without an evaluation hold none of its metrics, and before the first update nothing was learnt."""
        if self.config.metric.startswith(EVALUATED):
            return "val/roll/episodes" in row
        return row.get("train/clock/updates", 0) > 0

    def on_train_start(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        """Who goes on with a run that a plateau ended wants more of it: patience begins anew."""
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
        """Where the config names another metric now, or scales other keys, only what still applies goes on."""
        self.factors |= {key: float(state["factors"][key]) for key in self.factors if key in state["factors"]}
        self.plateaus = int(state["plateaus"])
        if state["metric"] == self.config.metric:
            self.best = state["best"]
            self.waited = int(state["waited"])


class ApplySchedules(Callback):
    """Writes the present values where the agent reads them; the optimizer's rate, decay and eps follow."""

    def __init__(self, plateau: AtPlateau | None = None) -> None:
        """`plateau`: values are multiplied by its factors."""
        self._plateau = plateau
        self._schedules: dict[str, Schedule] = {}
        self._constants: dict[str, float] = {}

    def on_train_start(self, trainer: L.Trainer, agent: Agent) -> None:  # type: ignore[override]
        self._schedules = agent.config.schedules()  # looked for once: half a dozen fields of fifty
        values = {name: vars(agent.config)[name] for name in agent.config.driven() if name not in self._schedules}
        # a rate that follows the KL divergence is the agent's to write
        self._constants = {name: value for name, value in values.items() if not isinstance(value, FollowKL)}

    def on_train_batch_start(self, trainer: L.Trainer, agent: Agent, *rest: object) -> None:  # type: ignore[override]
        values = dict(self._constants)
        for name, schedule in self._schedules.items():
            values[name] = schedule.at(agent.progress["env_steps"], agent.config.max_timesteps)
        factors = self._plateau.factors if self._plateau else {}
        live = vars(agent.live)
        for name, value in values.items():
            value *= factors.get(name, 1.0)
            if isinstance(live[name], Tensor):  # a graph reads it on its device; nobody waits
                live[name].fill_(value)
            else:
                live[name] = value
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = agent.live.policy_lr
                if "lr_scale" in group:
                    group["lr"] = agent.live.policy_lr * group["lr_scale"]
                for name, option in OPTIONS.items():
                    if name in values and option in group:
                        group[option] = live[name]
