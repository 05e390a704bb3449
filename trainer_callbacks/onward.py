"""Iterations between which no callback has anything to do follow one another without Lightning's loop around each."""

from collections.abc import Callable, Sequence
from itertools import repeat
from pathlib import Path

import lightning as L
from lightning.pytorch.callbacks import Callback

from stride.agents.base import Agent
from stride.runstore import run_lock

BATCH_HOOKS = ("on_train_batch_start", "on_train_batch_end")
Hooked = L.Callback | L.LightningModule


class Onward(Callback):
    """The first of all callbacks: makes the next iterations itself, up to one to which a callback reacts.

    So Lightning and the other callbacks see that last one only. Rows, checkpoints, schedules, stops and signals are
    those of a training in which Lightning makes each iteration.
    """

    def __init__(self, folder: Path, starting: Sequence[Callback], due: Sequence[Callable[[Agent], bool]]) -> None:
        """`starting`: callbacks that begin each iteration. `due`: whether one of them has to react to the last one."""
        self._folder = folder
        self._starting = starting
        self._due = due
        self._ticks = repeat(0)

    def on_train_batch_end(self, trainer: L.Trainer, agent: Agent, *rest: object) -> None:  # type: ignore[override]
        if hooks_batches(agent, L.LightningModule):
            return
        while not (trainer.should_stop or any(is_due(agent) for is_due in self._due)):
            run_lock.check_now_and_then(self._folder)
            for callback in self._starting:
                callback.on_train_batch_start(trainer, agent, None, 0)
            agent.training_step(self._ticks)


def hooks_batches(hooked: Hooked, base: type[Hooked] = L.Callback) -> bool:
    """Whether it is called around each batch, which must be one iteration then."""
    own = vars(hooked)  # where Lightning's LambdaCallback has its hooks
    return any(name in own or getattr(type(hooked), name) is not getattr(base, name) for name in BATCH_HOOKS)
