"""Hyperparameters that change with the clock, set as the first thing of every iteration."""

from types import SimpleNamespace

import lightning as L
from lightning.pytorch.callbacks import Callback
from torch import Tensor

from agents.base import Agent
from config.schedule import Schedule


class ApplySchedules(Callback):
    """Writes the present values where the agent reads them; the optimizer's learning rate follows policy_lr."""

    def __init__(self) -> None:
        self._schedules: dict[str, Schedule] = {}

    def on_train_start(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        assert isinstance(agent, Agent)
        self._schedules = agent.config.schedules()  # looked for once: half a dozen fields of fifty

    def on_train_batch_start(self, trainer: L.Trainer, agent: L.LightningModule, batch: object, index: int) -> None:
        assert isinstance(agent, Agent)
        config = agent.config
        for name, schedule in self._schedules.items():
            put(agent.live, name, schedule.at(agent.progress["env_steps"], config.max_timesteps))
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = agent.live.policy_lr


def put(live: SimpleNamespace, name: str, value: float) -> None:
    """Set a number, in place where it lies on a device, for a graph that reads it there; nobody waits."""
    now = vars(live)[name]
    if isinstance(now, Tensor):
        now.fill_(value)
    else:
        setattr(live, name, value)
