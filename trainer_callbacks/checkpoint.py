"""The callback that decides when to save a checkpoint, and writes it atomically between two iterations.

A checkpoint holds plain data (numbers, texts, tensors) and is complete or absent. Its sidecar, a .json file beside it,
has its clock, score and hash. runstore/checkpoint_set.py commits, selects and deletes these sets.
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

FREE_SAVE_SECONDS, MAX_SAVE_SHARE = 0.2, 0.01  # saving may take 0.2 seconds plus 1 % of the training time
TIE_PARTS = 40  # parts of the budget; with equal scores `best` is replaced once in each part


class Ownership(Callback):
    """Checks that this process still owns the run; raises LockLostError before an iteration is reported.

    If a process was suspended, or lost contact with a shared folder, another machine may take it for dead and train the
    run itself. This callback comes before all that report; Onward and checkpoints check, too.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, *_: object) -> None:
        run_lock.check_now_and_then(self.folder)

    def on_train_end(self, trainer: L.Trainer, agent: L.LightningModule) -> None:
        run_lock.check(self.folder)


class HashingFile:
    """A file for torch.save that counts the bytes written and hashes them; torch never seeks back."""

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
    """How Lightning writes a checkpoint: to a file beside the target, which is synced and then renamed.

    Lightning's own version writes to $TMPDIR first: in a test with 60 kills half of them left files there.
    """

    def __init__(self) -> None:
        self.written: dict[str, Any] = {}  # size and sha256 of the last file

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
    """Saves `epoch=NN.ckpt` after evaluations (or every checkpoint_freq_epochs), `step=N.ckpt` by time and at the end.

    An evaluation that is the best so far is always saved; others only while saving takes about 1 % of the time.
    Among equal scores the newest is best, but `best` changes only once in TIE_PARTS of the budget: so a run that scores
    500 each time is not saved each time. Wall time does not decide that, or `best` would depend on the machine.
    Lightning runs subclasses of its Checkpoint after all other callbacks, so this iteration's evaluation is known.
    After a resume the best score is read from the sidecar of `best`: a score that is not on disk does not count.
    """

    def __init__(
        self,
        run: RunDir,
        evaluate: Evaluate,
        config: Config,
        facts: Mapping[str, object],
        on_saved: Callable[[Path, Mapping[str, object]], None] = lambda path, facts: None,
    ) -> None:
        """`facts`: entries of every sidecar, beside its clock, score and hash. `on_saved(path, facts)` is called after
        each save, when file, sidecar and links are complete."""
        self.run = run
        self.folder = run.checkpoints
        self.evaluate = evaluate
        self.config = config
        self.facts = dict(facts)
        self.on_saved = on_saved
        self.best = -math.inf  # score of `best`
        self.best_steps = 0  # env steps of `best`
        self.saved = {"iterations": 0, "env_steps": 0}  # clock of the last checkpoint
        self._started_at = self._saved_at = time.monotonic()
        self._all_saves = 0.0  # seconds of all saves
        self._last_save = 0.0  # seconds of the last save

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
            self._thin_out()  # the previous process may have died between a save and this

    def _complete_links(self, agent: Agent) -> None:
        """Link the checkpoint that the run continues from, if the process died between its sidecar and its links."""
        for stem, facts in checkpoint_set.known(self.folder).items():
            path = self.folder / f"{stem}.ckpt"
            score = checkpoint_set.score_of(path)
            if facts["iterations"] != agent.progress["iterations"]:
                continue
            if not checkpoint_set.target(self.folder / "last.ckpt"):  # it was the first save: no link existed yet
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
        allowed = FREE_SAVE_SECONDS + MAX_SAVE_SHARE * (time.monotonic() - self._started_at)
        return self.evaluate.evaluated(agent) and self._all_saves + self._last_save <= allowed

    def on_train_end(self, trainer: L.Trainer, agent: Agent) -> None:  # type: ignore[override]
        if self.saved["iterations"] != agent.progress["iterations"]:
            self.save(trainer, agent)

    def _improves(self, agent: Agent) -> bool:
        """Return whether the present weights were evaluated and their score makes them `best`."""
        evaluated = self.evaluate.evaluated(agent)
        return evaluated and self._surpasses(self.evaluate.mean, agent.progress["env_steps"])

    def _surpasses(self, score: float, env_steps: int) -> bool:
        """Return whether this score is better than that of `best`, or equal and in a later part of the budget."""
        if score != self.best:
            return score > self.best and math.isfinite(score)
        budget = self.config.max_timesteps
        return math.isfinite(score) and env_steps * TIE_PARTS // budget > self.best_steps * TIE_PARTS // budget

    def finish(self, test_score: float, goal: float | None) -> None:
        """Decide, after the closing test, whether the last checkpoint becomes `best`.

        It does if its score is at least that of `best`, or if the test reached the goal. Its score is that of its
        evaluation, else `test_score`, the mean return of the closing test (-inf if there was none).
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
        """Write a checkpoint and its sidecar, link it as `last` (and `best`), then delete older ones.

        NumbersError if a weight is not finite, before a byte is written (not checked with nan_guard: off).
        OSError if the disk is full: earlier checkpoints stay complete and linked.
        LockLostError if another process owns the run now. Takes as long as a sync of the disk.
        """
        start = time.monotonic()
        run_lock.check(self.run.path)
        if self.config.nan_guard != "off":
            check_finite(agent)
        steps = agent.progress["env_steps"]
        improves = self._improves(agent)
        stem = f"epoch={agent.epoch:02d}" if agent.epoch_ended else f"step={steps}"
        path = self.folder / f"{stem}.ckpt"
        run_files.sync(self.run.metrics_csv)  # a checkpoint must never be on disk without the rows before it
        trainer.save_checkpoint(path, weights_only=False)
        assert isinstance(trainer.strategy.checkpoint_io, AtomicIO)
        facts: dict[str, Any] = {
            "epoch": agent.epoch,
            **agent.progress,
            "score": None,
            "segments": agent.memory.segment_names(),
        }
        remark = ""
        if self.evaluate.evaluated(agent) and math.isfinite(self.evaluate.mean):
            facts |= {"score": self.evaluate.mean, "score_episodes": self.config.eval_episodes}
            remark = f", evaluation {self.evaluate.mean:g}"
        # while nothing was evaluated, the newest checkpoint is best
        links = ("best", "last") if improves or self.best == -math.inf else ("last",)
        checkpoint_set.seal(path, {**facts, **trainer.strategy.checkpoint_io.written, **self.facts}, links)
        if improves:
            self.best = self.evaluate.mean
            self.best_steps = steps
        self.saved = dict(agent.progress)
        self._saved_at = time.monotonic()
        self._thin_out()
        self.on_saved(path, {**facts, "best": "best" in links})
        self._last_save = time.monotonic() - start
        self._all_saves += self._last_save
        agent.seconds["save"] += self._last_save
        log.log(NOTE, f"checkpoint {stem} ({' and '.join(links)}) at {steps:,} steps{remark}")

    def _thin_out(self) -> None:
        """Delete checkpoints beyond those that the config keeps, and replay memory files that no sidecar names."""
        remaining = checkpoint_set.prune(
            self.folder, self.config.checkpoint_keep_last, self.config.checkpoint_keep_best
        )
        segments = [name for facts in remaining.values() for name in facts.get("segments", [])]
        delete_unnamed(self.folder / checkpoint_set.SEGMENTS, segments)


def check_finite(agent: Agent) -> None:
    """Raise NumbersError if any weight or statistic is non-finite: such a state is never written."""
    for name, value in agent.state_dict().items():
        if value.is_floating_point() and not value.isfinite().all():
            raise NumbersError(
                f"weights: {name} is not a number after iteration {agent.progress['iterations']} "
                f"({agent.progress['env_steps']:,} env steps); no checkpoint was saved"
            )
