"""Checkpoints: plain data, complete or not at all, between two iterations only; a sidecar has the score of each.

How a set of file, sidecar and links is committed, chosen and thinned out lives in runstore/checkpoint_set.py.
"""

import hashlib
import logging
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.callbacks import Checkpoint as LightningCheckpoint
from lightning.pytorch.plugins.io import CheckpointIO

from stride.agents.base import Agent
from stride.agents.experience.segments import delete_unnamed
from stride.agents.trained.loading import read_checkpoint
from stride.config.schema import Config
from stride.runstore import checkpoint_set, run_files, run_lock
from stride.runstore.run_dir import RunDir
from stride.runstore.run_log import NOTE
from stride.trainer_callbacks.evaluate import Evaluate
from stride.utils.user_error import NumbersError

log = logging.getLogger("stride")

ALLOWANCE, FRACTION = 0.2, 0.01  # saving may take this many seconds, and this fraction of the time
TIES = 40  # parts of the budget: in each of them one more checkpoint with the best score replaces the older one


class Ownership(Callback):
    """Checks that the run is still this process's to write in: LockLostError before an iteration is reported.

    A process that was halted, or cut off from a shared folder, may have been taken for dead by another machine, which
    trains the run now. It comes before all callbacks that report; Onward and checkpoints check, too.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, *_: object) -> None:
        run_lock.check_now_and_then(self.folder)

    def on_train_end(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        run_lock.check(self.folder)


class HashingFile:
    """A file that knows the size and the hash of what was written to it; torch writes strictly forwards."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.size = 0
        self.sha256 = hashlib.sha256()
        self.error: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            self.file.write(data)
        except OSError as error:  # torch would say "unexpected pos" instead of "no space left"
            self.error = error
            raise
        self.sha256.update(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        self.file.flush()


class AtomicIO(CheckpointIO):
    """Writes beside the target, syncs, renames. (Lightning's own stages in $TMPDIR: half of 60 kills left rubbish.)"""

    def __init__(self) -> None:
        self.written: dict[str, Any] = {}  # size and hash of the last file

    def save_checkpoint(self, checkpoint: dict[str, object], path: str | Path, storage_options: object = None) -> None:
        with run_files.replacing(Path(path), sync_name=False) as file:  # checkpoint_set.seal syncs the folder
            hashing = HashingFile(file)
            try:
                torch.save(checkpoint, hashing)  # type: ignore[arg-type]  # write and flush are all it asks
            except RuntimeError as error:
                if hashing.error is not None:
                    raise hashing.error from error
                raise
            run_lock.check(Path(path).parent.parent)  # the last moment before the file has its name
        self.written = {"size": hashing.size, "sha256": hashing.sha256.hexdigest()}

    def load_checkpoint(
        self, path: str | Path, map_location: object = None, weights_only: bool | None = True
    ) -> dict[str, Any]:
        return read_checkpoint(Path(path))

    def remove_checkpoint(self, path: str | Path) -> None:
        run_files.remove(Path(path))


class Checkpoint(LightningCheckpoint):
    """`epoch=NN` with each evaluation (or on its own cadence), `step=N` by the clock on the wall and at the end.

    With evaluations: always with one that is the best so far, with others while saving takes a hundredth of the time.
    Among equal scores the newest is best, to a fortieth of the budget: a run that scores 500 each time is not saved
    each time; and if the clock on the wall decided that, `best` would be another one on another machine.
    Lightning runs subclasses of its Checkpoint behind all other callbacks, so this iteration's evaluation is known.
    The best score so far is read off the sidecar of `best`, not remembered: what is not on the disk is not best.
    """

    def __init__(
        self,
        run: RunDir,
        evaluate: Evaluate,
        config: Config,
        facts: Mapping[str, object],
        on_saved: Callable[[Path, Mapping[str, object]], None] = lambda path, facts: None,
    ) -> None:
        """`facts`: what every sidecar says beside its own clock, score and hash. `on_saved` is called with every set
        that is complete and linked."""
        self.run = run
        self.folder = run.checkpoints
        self.evaluate = evaluate
        self.config = config
        self.facts = dict(facts)
        self.on_saved = on_saved
        self.best = -math.inf  # score of `best`
        self.best_steps = 0  # its env steps
        self.saved = {"iterations": 0, "env_steps": 0}
        self._started_at = self._saved_at = time.monotonic()
        self._spent = 0.0  # seconds of all saves
        self._price = 0.0  # seconds of the last one

    def on_train_start(self, trainer: L.Trainer, agent: Agent) -> None:  # type: ignore[override]
        self._started_at = self._saved_at = time.monotonic()
        if agent.progress["iterations"]:  # resumed: that state is on the disk
            self.saved = dict(agent.progress)
            stem = checkpoint_set.target(self.folder / "best.ckpt")
            path = self.folder / f"{stem}.ckpt"
            if stem and not checkpoint_set.fault(path):
                self.best = checkpoint_set.score_of(path)
                self.best_steps = checkpoint_set.facts_of(path)["env_steps"]
            self._complete_links(agent)
            self._thin_out()  # the process before may have died before it did

    def _complete_links(self, agent: Agent) -> None:
        """Link the state that the run goes on from, where the process before died between its sidecar and the links."""
        for stem, facts in checkpoint_set.known(self.folder).items():
            path = self.folder / f"{stem}.ckpt"
            score = checkpoint_set.score_of(path)
            if facts["iterations"] != agent.progress["iterations"]:
                continue
            if not checkpoint_set.target(self.folder / "last.ckpt"):  # the first save was the last one, too
                checkpoint_set.point(path, ("last",))
            if self._surpasses(score, facts["env_steps"]) or self.best == -math.inf:
                checkpoint_set.point(path, ("best",))
                self.best = score
                self.best_steps = facts["env_steps"]

    def on_train_batch_end(self, trainer: L.Trainer, agent: Agent, *rest: object) -> None:  # type: ignore[override]
        if self.is_due(agent):
            self.save(trainer, agent)

    def is_due(self, agent: Agent) -> bool:
        """Whether the state after the iteration just done is to be saved."""
        minutes = self.config.checkpoint_minutes
        every = self.config.checkpoint_freq_epochs
        if minutes is not None and time.monotonic() - self._saved_at >= 60 * minutes:
            return True
        if self._improves(agent):
            return True
        if every is not None:
            return agent.epoch_ended and agent.epoch % every == 0
        # one more save, as long as the last, must stay within the time that saving may take
        allowed = ALLOWANCE + FRACTION * (time.monotonic() - self._started_at)
        return self.evaluate.evaluated(agent) and self._spent + self._price <= allowed

    def on_train_end(self, trainer: L.Trainer, agent: Agent) -> None:  # type: ignore[override]
        if self.saved["iterations"] != agent.progress["iterations"]:
            self.save(trainer, agent)

    def _improves(self, agent: Agent) -> bool:
        """Whether the present weights were evaluated, and are best."""
        evaluated = self.evaluate.evaluated(agent)
        return evaluated and self._surpasses(self.evaluate.mean, agent.progress["env_steps"])

    def _surpasses(self, score: float, env_steps: int) -> bool:
        """Whether this is best: a better score than that of `best`, or the same in a later part of the budget."""
        if score != self.best:
            return score > self.best and math.isfinite(score)
        budget = self.config.max_timesteps
        return math.isfinite(score) and env_steps * TIES // budget > self.best_steps * TIES // budget

    def finish(self, test_score: float, goal: float | None) -> None:
        """After the closing test, -inf where there was none: the last checkpoint becomes best where it scores no less
        than `best`, or reached the goal in that test. Its score is the test's, where no evaluation came to it.
        """
        path = self.folder / f"{checkpoint_set.target(self.folder / 'last.ckpt')}.ckpt"
        facts = checkpoint_set.facts_of(path)
        score = checkpoint_set.score_of(path)
        if score == -math.inf:
            score = test_score
            facts["score_episodes"] = self.config.test_episodes
        is_best = score >= self.best or (goal is not None and test_score >= goal)
        if is_best and math.isfinite(score) and facts.get("iterations") == self.saved["iterations"]:
            checkpoint_set.seal(path, {**facts, "score": score}, ("best", "last"))
            self._thin_out()

    def save(self, trainer: L.Trainer, agent: Agent) -> None:
        """Write the state between two iterations as a set, link it as `last` (and `best`), then thin out older ones.

        NumbersError before a byte is written where a weight is not finite (nan_guard: off does not look). OSError where
        the disk has no space: the sets before it stay complete and linked. LockLostError where another process owns the
        run by now. Takes as long as a sync of the disk.
        """
        start = time.monotonic()
        run_lock.check(self.run.path)
        if self.config.nan_guard != "off":
            check_finite(agent)
        steps = agent.progress["env_steps"]
        improves = self._improves(agent)
        stem = f"epoch={agent.epoch:02d}" if agent.epoch_ended else f"step={steps}"
        path = self.folder / f"{stem}.ckpt"
        run_files.sync(self.run.metrics_csv)  # the rows up to here are no younger than the state
        trainer.save_checkpoint(path, weights_only=False)
        assert isinstance(trainer.strategy.checkpoint_io, AtomicIO)
        facts: dict[str, Any] = {
            "epoch": agent.epoch,
            **agent.progress,
            "score": None,
            "segments": agent.memory.segment_names(),
        }
        note = ""
        if self.evaluate.evaluated(agent) and math.isfinite(self.evaluate.mean):
            facts |= {"score": self.evaluate.mean, "score_episodes": self.config.eval_episodes}
            note = f", evaluation {self.evaluate.mean:g}"
        links = ("best", "last") if improves or self.best == -math.inf else ("last",)  # unevaluated, the newest is best
        checkpoint_set.seal(path, {**facts, **trainer.strategy.checkpoint_io.written, **self.facts}, links)
        if improves:
            self.best = self.evaluate.mean
            self.best_steps = steps
        self.saved = dict(agent.progress)
        self._saved_at = time.monotonic()
        self._thin_out()
        self.on_saved(path, {**facts, "best": "best" in links})
        self._price = time.monotonic() - start
        self._spent += self._price
        agent.seconds["save"] += self._price
        log.log(NOTE, f"checkpoint {stem} ({' and '.join(links)}) at {steps:,} steps{note}")

    def _thin_out(self) -> None:
        """Delete sets beyond those that the config keeps, and rows of the replay memory that no checkpoint names."""
        remaining = checkpoint_set.prune(
            self.folder, self.config.checkpoint_keep_last, self.config.checkpoint_keep_best
        )
        segments = [name for facts in remaining.values() for name in facts.get("segments", [])]
        delete_unnamed(self.folder / checkpoint_set.SEGMENTS, segments)


def check_finite(agent: Agent) -> None:
    """NumbersError if any weight or statistic is non-finite: such a state is never written."""
    for name, value in agent.state_dict().items():
        if value.is_floating_point() and not value.isfinite().all():
            raise NumbersError(
                f"weights: {name} is not a number after iteration {agent.progress['iterations']} "
                f"({agent.progress['env_steps']:,} env steps); no checkpoint was saved"
            )
