"""Hyperparameters that change with the clock, set as the first thing of every iteration."""

from typing import Any

import lightning as L
from lightning.pytorch.callbacks import Callback

from agents.base import Agent


class ApplySchedules(Callback):
    """Writes the present values where the agent reads them; the optimizer's learning rate follows policy_lr."""

    def on_train_batch_start(self, trainer: L.Trainer, agent: L.LightningModule, batch: Any, index: int) -> None:
        assert isinstance(agent, Agent)
        config = agent.config
        for name, schedule in config.schedules().items():
            setattr(agent.live, name, schedule.at(agent.progress["env_steps"], config.max_timesteps))
        for optimizer in trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = agent.live.policy_lr
