"""Does a run repeat? Trains its first iterations again from the stored config and seed, and compares.

    python -m scripts.verify_run @last                 up to its earliest checkpoint
    python -m scripts.verify_run RUN --iterations 50   up to the last checkpoint among the first 50 iterations

Compared are the rows of metrics.csv, and at the checkpoint everything a run consists of: weights, optimizer, where
every world and episode stands, counters. Exit code 0 when identical or the same within tolerance, 1 when not.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback

from agents.algorithms import build_agent
from agents.base import Agent
from agents.playing.loading import read_checkpoint
from config.loader import from_plain
from config.metrics import load_metrics
from config.schema import Config
from envs_gym.make import make_envs
from report.metrics_csv import MetricsCsv, read_csv
from scripts.plain_tree import Difference, differences
from scripts.usage import parser_of
from trainer_callbacks.checkpoint import Checkpoint
from trainer_callbacks.evaluate import Evaluate
from trainer_callbacks.export_metrics import ExportMetrics
from trainer_callbacks.resume import host_facts
from trainer_callbacks.schedule import ApplySchedules
from trainer_callbacks.session import build_trainer
from trainer_callbacks.stop import Stop
from utils import checkpoint_set, entry
from utils.run_dir import RunDir
from utils.user_error import UserError

TOLERANCE = 1e-5
COMPARED = ("state_dict", "optimizer_states", "stride", "callbacks")
STEPS, ITERATIONS = "train/clock/env_steps", "train/clock/iterations"  # the closing test's row has no iterations


class Verdict(NamedTuple):
    """identical, same within tolerance, or different; and why."""

    word: str
    lines: list[str]


def main(argv: list[str]) -> int:
    """Exit code."""
    parser = parser_of(__doc__)
    parser.add_argument("run", help="@last, an id, or a folder")
    parser.add_argument("--iterations", type=int, default=0, help="compare at the last checkpoint among so many")
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    options = parser.parse_args(argv)
    verdict = verify(RunDir.find(options.run), options.iterations, options.tolerance)
    print("\n".join([*verdict.lines, verdict.word]))
    return 0 if verdict.word != "different" else 1


def verify(run: RunDir, iterations: int, tolerance: float) -> Verdict:
    path = compared_checkpoint(run, iterations)
    sidecar = checkpoint_set.facts_of(path)
    facts = run.facts()
    if facts.get("resumed") and any(again.get("changed") for again in facts["resumed"]):
        raise UserError(f"{run.id} was resumed with other settings; only what one config made can be repeated")
    if facts.get("parent"):
        raise UserError(f"{run.id} is a fork of {facts['parent']['run']}; verify that one")
    warnings = [f"warning: {key} was {then}, is {now}" for key, then, now in drift(sidecar)]
    config = from_plain(facts["config"], run.id)
    if config.env_backend == "auto":
        config = replace(config, env_backend=facts.get("env_backend", "gym"))
    with scratch():
        again = repeated(config, facts.get("goal"), sidecar["iterations"])
        mine, theirs = (unfolded(each, path.name, config) for each in (run, again))
        found = differences(part(mine), part(theirs))
        rows = differences(told(run, sidecar["exported"]), told(again, sidecar["exported"]))
    where = f"{run.id}, its first {sidecar['iterations']} iterations ({sidecar['env_steps']:,} env steps)"
    lines = [where, *warnings, *(f"  {d.name} {d.words}" for d in [*rows, *found][:5])]
    return Verdict(word(rows + found, tolerance), lines)


def word(found: list[Difference], tolerance: float) -> str:
    if not found:
        return "identical"
    return "same within tolerance" if all(d.size <= tolerance for d in found) else "different"


def compared_checkpoint(run: RunDir, iterations: int) -> Path:
    """The earliest checkpoint, or the last within so many iterations."""
    paths = [run.checkpoints / f"{stem}.ckpt" for stem in checkpoint_set.names(run.checkpoints)]
    within = [path for path in paths if checkpoint_set.facts_of(path)["iterations"] <= iterations]
    if not paths or (iterations and not within):
        least = checkpoint_set.facts_of(paths[0])["iterations"] if paths else 0
        raise UserError(f"{run.id} has no checkpoint" + (f" before iteration {least}" if paths else ""))
    return within[-1] if within else paths[0]


def drift(sidecar: dict[str, Any]) -> list[tuple[str, Any, Any]]:
    """Versions and the CPU where they are not what they were: then equal bits are not promised."""
    now = {**host_facts()["versions"], "cpu": host_facts()["cpu"]}
    then = {**sidecar.get("versions", {}), "cpu": sidecar.get("cpu")}
    return [(key, then.get(key), now[key]) for key in now if then.get(key) != now[key]]


def part(state: dict[str, Any]) -> dict[str, Any]:
    return {name: state[name] for name in COMPARED}


def unfolded(run: RunDir, name: str, config: Config) -> dict[str, Any]:
    """A checkpoint with the rows of its replay memory; which checkpoint wrote which of them is a matter of time."""
    state = read_checkpoint(run.checkpoints / name)
    remembered = state["stride"]["parts"]["memory"]
    if remembered.get("segments"):
        envs = make_envs(config, config.n_envs)
        memory = build_agent(config, envs).memory
        memory.save_in(run.checkpoints / checkpoint_set.SEGMENTS)
        memory.load_state_dict(remembered)
        remembered["segments"] = memory.columns_written()
        envs.close()
    return state


def told(run: RunDir, env_steps: int) -> list[dict[str, float]]:
    """The rows up to there, without what tells of wall time."""
    wall = {name for name, metric in load_metrics().items() if metric.wall_time}
    rows = [row for row in read_csv(run.metrics_csv) if row.get(STEPS, 0) <= env_steps and ITERATIONS in row]
    return [{k: v for k, v in row.items() if k not in wall and not k.startswith("test/")} for row in rows]


@contextmanager
def scratch() -> Iterator[None]:
    """A runs folder of its own, gone afterwards."""
    before = os.environ.get("STRIDE_RUNS")
    with tempfile.TemporaryDirectory(prefix="verify-") as folder:
        os.environ["STRIDE_RUNS"] = folder
        try:
            yield
        finally:
            os.environ.pop("STRIDE_RUNS")
            if before is not None:
                os.environ["STRIDE_RUNS"] = before


class Enough(Callback):
    """Ends the repetition behind the iteration that is compared."""

    def __init__(self, iterations: int) -> None:
        self.iterations = iterations

    def on_train_batch_end(
        self, trainer: L.Trainer, agent: L.LightningModule, outputs: object, batch: object, index: int
    ) -> None:
        assert isinstance(agent, Agent)
        trainer.should_stop |= agent.progress["iterations"] >= self.iterations


def repeated(config: Config, goal: float | None, iterations: int) -> RunDir:
    """The run from its beginning, up to and including that iteration and its checkpoint."""
    torch.set_num_threads(config.torch_threads)
    agent = build_agent(config, make_envs(config, config.n_envs))
    run = RunDir.create(config.env_id, config.variant, config.seed, {"env_id": config.env_id})
    agent.memory.save_in(run.checkpoints / checkpoint_set.SEGMENTS)
    evaluate = Evaluate(config, lambda n: make_envs(config, n))
    checkpoint = Checkpoint(run, evaluate, replace(config, checkpoint_minutes=None), {})
    export = ExportMetrics(evaluate, [MetricsCsv(run.metrics_csv)])
    stop = Stop(config, goal, evaluate.test, lambda: export.row)
    build_trainer([ApplySchedules(), evaluate, export, stop, Enough(iterations), checkpoint]).fit(agent)
    export.end(None)
    evaluate.close()
    agent.collector.envs.close()
    return run


if __name__ == "__main__":
    entry.run(main)
