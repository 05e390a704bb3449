"""train.py as a person types it, in this process and in a folder of its own; and what its last checkpoint holds."""

import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from lab.gpu.parts import Machine
from stride.agents.trained.loading import read_checkpoint
from stride.commands import train
from stride.runstore.run_dir import RunDir, list_runs

CONFIG = "CartPole-v1:ppo"  # whose learning rate and clip range run down: what a graph must not freeze
SHORT = ("eval_freq_epochs=null", "test_episodes=0", "early_stop_on_eval_threshold=false")
ROWS = 64 * 32  # of a rollout
ROLLOUT = ("n_envs=64", "n_steps=32", "n_epochs=4", "batch_size=0.25")


@contextmanager
def runs_folder() -> Iterator[Path]:
    """Where the runs of the block lie; they go with it."""
    with tempfile.TemporaryDirectory(prefix="stride-gpu-") as folder:
        os.environ["STRIDE_RUNS"] = folder
        yield Path(folder)


def trained(machine: Machine, engine: str, iterations: int, *changes: str) -> RunDir:
    """A new run of so many iterations."""
    return _run([CONFIG, *SHORT, *ROLLOUT, *_where(machine, engine), _budget(iterations), *changes])


def resumed(run: RunDir, machine: Machine, engine: str, iterations: int) -> RunDir:
    """The run gone on with, to so many iterations in all."""
    return _run(["--resume", run.id, *_where(machine, engine), _budget(iterations)])


def _where(machine: Machine, engine: str) -> list[str]:
    return [f"device={machine.device}", f"engine={engine}"]


def _budget(iterations: int) -> str:
    return f"max_timesteps={iterations * ROWS}"


def _run(given: list[str]) -> RunDir:
    """What the command has trained; RuntimeError where it fails, which has said why."""
    before = {each.id for each in list_runs()}
    with redirect_stdout(io.StringIO()):  # the result line of each
        code = train.command([*given, "-q"])
    if code:
        raise RuntimeError(f"train.py {' '.join(given)}: exit code {code}")
    new = [each for each in list_runs() if each.id not in before]
    return new[0] if new else RunDir.find(given[given.index("--resume") + 1])


def state_of(run: RunDir) -> dict[str, Any]:
    """All that its last checkpoint holds of the training: weights, moments, worlds, counters."""
    held = read_checkpoint((run.checkpoints / "last.ckpt").resolve())
    return {"weights": held["state_dict"], "optimizer": held["optimizer_states"], **held["stride"]["parts"]}
