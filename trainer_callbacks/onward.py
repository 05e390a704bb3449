"""The callback that runs iterations itself, without Lightning's loop, while no other callback has anything to do.

It saves the time that Lightning's loop takes around each batch, which matters where an iteration takes microseconds.
"""

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
    """Runs the next iterations until one to which a callback has to react; it is the first of all callbacks.

    Lightning and the other callbacks see only that last iteration. Rows, checkpoints, schedules, stops and signals are
    the same as if Lightning ran each iteration.
    """

    def __init__(self, folder: Path, starting: Sequence[Callback], due: Sequence[Callable[[Agent], bool]]) -> None:
        """`folder`: the run's. `starting`: callbacks whose on_train_batch_start is called before each iteration.
        `due`: functions that say whether a callback has to react to the iteration just done."""
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
    """Return whether the callback or module overrides a hook of each batch; then Lightning must run each iteration."""
    own = vars(hooked)  # Lightning's LambdaCallback stores its hooks in the instance
    return any(name in own or getattr(type(hooked), name) is not getattr(base, name) for name in BATCH_HOOKS)
