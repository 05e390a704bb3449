"""Checkpoints: plain data, whole or not at all, between two iterations only; a sidecar says what each is worth."""

import os
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Checkpoint as LightningCheckpoint
from lightning.pytorch.plugins.io import CheckpointIO

from agents.base import Agent
from agents.experience.segments import SEGMENTS, prune
from agents.loading import read_checkpoint
from trainer_callbacks.evaluate import Evaluate
from utils.run_dir import RunDir, read_json, relink, write_json


class AtomicIO(CheckpointIO):
    """Writes beside the target, syncs, renames. (Lightning's own stages in $TMPDIR: half of 60 kills left rubbish.)"""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        temporary = Path(f"{path}.{os.getpid()}.tmp")
        try:
            with open(temporary, "wb") as file:
                torch.save(checkpoint, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = True) -> dict[str, Any]:
        return read_checkpoint(Path(path))

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink()


class Checkpoint(LightningCheckpoint):
    """`epoch=NN.ckpt` with each evaluation (or on its own cadence) and always at the end; `last` and `best` are links.

    Lightning runs subclasses of its Checkpoint behind all other callbacks, so this epoch's evaluation is known.
    """

    def __init__(self, run: RunDir, evaluate: Evaluate, every: int | None) -> None:
        self.run, self.evaluate, self.every = run, evaluate, every
        self.best, self._saved = float("-inf"), -1

    def on_train_batch_end(
        self, trainer: L.Trainer, agent: L.LightningModule, outputs: Any, batch: Any, index: int
    ) -> None:
        assert isinstance(agent, Agent)
        if not agent.epoch_ended:
            return
        evaluated = self.evaluate.epoch == agent.epoch
        if evaluated if self.every is None else agent.epoch % self.every == 0 or (evaluated and self._improves()):
            self.save(trainer, agent)

    def on_train_end(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        assert isinstance(agent, Agent)
        if self._saved != agent.progress["iterations"] and agent.progress["iterations"]:
            self.save(trainer, agent)

    def _improves(self) -> bool:
        return self.evaluate.mean > self.best

    def save(self, trainer: L.Trainer, agent: Agent) -> None:
        evaluated = self.evaluate.epoch == agent.epoch
        improves = evaluated and self._improves()
        self.best = self.evaluate.mean if improves else self.best
        self._saved = agent.progress["iterations"]
        path = self.run.checkpoints / f"epoch={agent.epoch:02d}.ckpt"
        trainer.save_checkpoint(path, weights_only=False)
        sidecar = path.with_suffix(".json")
        score = self.evaluate.mean if evaluated else None
        segments = agent.memory.segment_names()
        facts = {"file": path.name, "epoch": agent.epoch, **agent.progress, "score": score, "segments": segments}
        write_json(sidecar, facts)
        for link in ["last", *(["best"] if improves or not self._has_best() else [])]:
            relink(self.run.checkpoints / f"{link}.ckpt", path)
            relink(self.run.checkpoints / f"{link}.json", sidecar)
        self._drop_segments()

    def _drop_segments(self) -> None:
        """Delete the rows of the replay memory that no checkpoint of the run names any more."""
        told = [read_json(path) for path in self.run.checkpoints.glob("epoch=*.json")]
        if all("segments" in facts for facts in told):  # those of an earlier program do not say
            prune(self.run.checkpoints / SEGMENTS, [name for facts in told for name in facts["segments"]])

    def _has_best(self) -> bool:
        return (self.run.checkpoints / "best.ckpt").exists()

    def state_dict(self) -> dict:
        return {"best": self.best}

    def load_state_dict(self, state: dict) -> None:
        self.best = state["best"]
