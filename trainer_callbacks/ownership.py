"""Whether the run is still this process's to write in: a process that was halted, or cut off from a shared folder, may
have been taken for dead by another machine, which trains the run now."""

from pathlib import Path

import lightning as L
from lightning.pytorch.callbacks import Callback

from stride.runstore import run_lock


class Ownership(Callback):
    """The first callback of all: LockLostError before anything is told of an iteration; checkpoints ask again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(
        self, trainer: L.Trainer, agent: L.LightningModule, outputs: object, batch: object, index: int
    ) -> None:
        run_lock.check_now_and_then(self.folder)

    def on_train_end(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        run_lock.check(self.folder)
