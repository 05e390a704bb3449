"""Hyperparameters that change with the clock, set as the first thing of every iteration."""

from types import SimpleNamespace

import lightning as L
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from stride.agents.base import Agent
from stride.config.schedule import Schedule
from stride.trainer_callbacks.plateau import AtPlateau


class ApplySchedules(Callback):
    """Writes the present values where the agent reads them; the optimizer's learning rate follows policy_lr."""

    def __init__(self, plateau: AtPlateau | None = None) -> None:
        """`plateau`: by whose factors values are multiplied."""
        self._plateau, self._schedules, self._constants = plateau, dict[str, Schedule](), dict[str, float]()

    def on_train_start(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        assert isinstance(agent, Agent)
        self._schedules = agent.config.schedules()  # looked for once: half a dozen fields of fifty
        self._constants = {n: vars(agent.config)[n] for n in agent.config.driven() if n not in self._schedules}

    def on_train_batch_start(self, trainer: L.Trainer, agent: L.LightningModule, batch: object, index: int) -> None:
        assert isinstance(agent, Agent)
        config = agent.config
        for name, schedule in self._schedules.items():
            put(agent.live, name, schedule.at(agent.progress["env_steps"], config.max_timesteps) * self._factor(name))
        for name, value in self._constants.items():
            put(agent.live, name, value * self._factor(name))
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = agent.live.policy_lr

    def _factor(self, name: str) -> float:
        return self._plateau.factors.get(name, 1.0) if self._plateau else 1.0


def put(live: SimpleNamespace, name: str, value: float) -> None:
    """Set a number, in place where it lies on a device, for a graph that reads it there; nobody waits."""
    now = vars(live)[name]
    if isinstance(now, Tensor):
        now.fill_(value)
    else:
        setattr(live, name, value)
