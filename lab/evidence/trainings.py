"""Trains seeds of several variants side by side, each in its own process, and writes each record into its file.

ways.py and sensitivity.py use it. This module does not import torch: the processes do (seed.py).
"""

import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import stride.agents.algorithms  # noqa: F401  # makes every algorithm's keys known
from lab.evidence.file import Evidence, configured, file_stem
from stride.config.schema import Config
from stride.runstore.many.process_pool import Finished, run_all
from stride.utils.durable_file import read_json
from stride.utils.typography import duration, score


class Job(NamedTuple):
    variant: str
    seed: int
    config: Config


def train(files: Mapping[str, Evidence], folder: Path, seeds: Sequence[int], workers: int) -> int:
    """Train the seeds that are not finished, `workers` at a time, and return how many failed.

    `files`: variant -> its evidence, which gets a seed's record as soon as that ends and is then written to `folder`.
    """
    done = {(name, stored["seed"]) for name, evidence in files.items() for stored in evidence.finished()}
    wanted = [(name, seed) for name in files for seed in seeds]
    missing = [pair for pair in wanted if pair not in done]  # so a seed that failed is trained again
    jobs = [Job(name, seed, configured(name, files[name].overrides)) for name, seed in missing]
    group = f"evidence-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    already_done = f", {len(wanted) - len(jobs)} are already there" if len(jobs) < len(wanted) else ""
    print(f"  {len(jobs)} seeds to train{already_done}; group {group}", flush=True)
    ended_jobs, failed, began = list[Job](), 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stride-evidence-") as records:
        paths = [Path(records, f"{index}.json") for index in range(len(jobs))]
        commands = []
        for job, path in zip(jobs, paths, strict=True):
            arguments = [job.variant, str(job.seed), group, str(path), *files[job.variant].overrides]
            commands.append([sys.executable, "-m", "lab.evidence.seed", *arguments])
        for ended in run_all(commands, workers):
            job, record = jobs[ended.index], result(jobs[ended.index], paths[ended.index], ended)
            ended_jobs.append(job)
            failed += record["status"] != "finished"
            files[job.variant].seeds[job.seed] = record
            files[job.variant].write(folder / f"{file_stem(job.variant)}.json")
            print(f"  {job.variant} seed {job.seed}: {outcome(record)}", flush=True)
            print(progress(jobs, ended_jobs, time.monotonic() - began), flush=True)
    return failed


def progress(jobs: Sequence[Job], ended: Sequence[Job], seconds: float) -> str:
    """Return a line with the time left, at the present number of env steps per second.

    It is an upper bound: a run that solves its task early does not spend its whole budget.
    """
    budgets, done = (sum(job.config.max_timesteps for job in group) for group in (jobs, ended))
    left = duration(seconds * (budgets - done) / done)
    return f"  {duration(seconds)}  {len(ended)} of {len(jobs)} seeds done; {left} left at most"


def result(job: Job, record: Path, ended: Finished) -> dict[str, Any]:
    """Return the record that a job's process wrote; if it failed, one with its exit code and last line."""
    if ended.returncode == 0 and record.is_file():
        finished_record: dict[str, Any] = read_json(record)
        return finished_record
    lines = ended.output_tail.strip().splitlines() or ["no word"]
    return {"seed": job.seed, "status": "failed", "code": ended.returncode, "line": lines[-1]}


def outcome(record: dict[str, Any]) -> str:
    """Return a line about a record: "solved, 498, 20,480 steps in 12 s"."""
    if record["status"] != "finished":
        return f"FAILED: {record['line']}"
    reached = record["final"].get("mean")
    exact = f", exactly {record['final']['exact']:.4f}" if "exact" in record["final"] else ""
    score_text = "nothing" if reached is None else score(reached)
    spent = f"{record['env_steps']:,} steps in {duration(record['seconds'])}"
    return f"{'solved' if record['solved'] else 'not solved'}, {score_text}{exact}, {spent}"
