"""Measures the shipped variants: trains each on several seeds, plays 100 fresh episodes, writes docs/results.

    python -m lab.evidence CartPole --seeds 5      every variant with CartPole in its name, seeds 1 to 5
    python -m lab.evidence :ppo --seeds 20         all variants whose name begins with ppo; what is there is kept
    python -m lab.evidence ALE/Pong-v5:ppo --group pong --set max_timesteps=1e6
    python -m lab.evidence --seeds 0               docs/results.md and the curves again, nothing is trained

A variant's file grows seed by seed: after an interruption the same command goes on, with --group also in the middle of
a training. A seed whose training fails is written down with its last line, and tried again by the next call. With --set
and by the general settings of an algorithm the results are not those of a shipped variant: they go to another folder
and say so.
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import stride.agents.algorithms  # noqa: F401  # makes every algorithm's keys known
from lab.evidence.bands import text
from lab.evidence.file import Evidence, configured, file_stem, named
from lab.evidence.report import write_results
from stride.commands.usage import parser_of
from stride.config import bands
from stride.config.general import is_general
from stride.config.listing import list_environments
from stride.config.schema import Config
from stride.runstore.many.process_pool import Finished, run_all
from stride.runstore.run_dir import runs_root
from stride.utils.durable_file import read_json
from stride.utils.provenance import PROJECT
from stride.utils.typography import duration, score
from stride.utils.user_error import UserError, nearest

RESULTS = PROJECT / "docs" / "results"


class Job(NamedTuple):
    variant: str
    seed: int
    config: Config


def main(argv: list[str]) -> int:
    given = parse(argv)
    usual = runs_root() / "evidence" if given.set or is_general(given.pattern) else RESULTS
    folder, failed = given.out or usual, 0
    if given.seeds:
        files, seeds = {}, range(given.first, given.first + given.seeds)
        for variant in select(given.pattern):
            config = configured(variant, given.set)
            path = folder / f"{file_stem(variant)}.json"
            files[variant] = Evidence.begin(path, variant, config, given.set)
        failed = train(files, folder, seeds, given.workers, given.group)
    page = write_results(folder)
    if folder == RESULTS:
        bands.FILE.write_text(text(RESULTS), encoding="utf-8")
    print(f"\n  {os.path.relpath(page)}")
    return 1 if failed else 0


def parse(argv: list[str]) -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("pattern", nargs="?", default="", help="ENV:VARIANT or a part of it; ENV:ALGORITHM")
    parser.add_argument("--seeds", type=int, default=5, metavar="N", help="how many seeds (default 5)")
    parser.add_argument("--first", type=int, default=1, metavar="N", help="the first of them (default 1)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, metavar="N", help="trainings side by side")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="of the files (default docs/results, FOLDER.md)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a key, for a trial")
    parser.add_argument("--group", default="", help="of the trainings: what it holds already is gone on with")
    given = parser.parse_args(argv)
    if given.workers < 1:
        raise UserError(f"--workers takes a number from 1 on, not {given.workers}")
    for word in given.set:
        if word.partition("=")[0] == "seed":
            raise UserError("--set seed: --first and --seeds choose the seeds")
    return given


def select(pattern: str) -> list[str]:
    """The shipped ENV:VARIANT of that name, else those that contain it, else ENV:ALGORITHM by general settings."""
    shipped = [f"{row.env}:{row.variant}" for row in list_environments()]
    found = named(pattern, shipped)
    if not found and is_general(pattern):
        return [pattern]
    if not found:
        raise UserError(f"no shipped variant matches {pattern!r}{nearest(pattern, shipped)}")
    return found


def train(files: Mapping[str, Evidence], folder: Path, seeds: Sequence[int], workers: int, group: str = "") -> int:
    """Trains what is missing, variant by variant, and keeps every seed as soon as it is there. -> seeds that failed"""
    done = {(name, each["seed"]) for name, evidence in files.items() for each in evidence.finished()}
    wanted = [(name, seed) for name in files for seed in seeds]
    missing = [each for each in wanted if each not in done]  # so who failed is trained again
    jobs = [Job(name, seed, configured(name, files[name].overrides)) for name, seed in missing]
    group = group or f"evidence-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    kept = f", {len(wanted) - len(jobs)} are already there" if len(jobs) < len(wanted) else ""
    print(f"  {len(jobs)} seeds to train{kept}; group {group}", flush=True)
    ended_jobs, failed, began = list[Job](), 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="stride-evidence-") as records:
        paths = [Path(records, f"{index}.json") for index in range(len(jobs))]
        commands = []
        for job, path in zip(jobs, paths, strict=True):
            words = [job.variant, str(job.seed), group, str(path), *files[job.variant].overrides]
            commands.append([sys.executable, "-m", "lab.evidence.seed", *words])
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
    """Time left at the present speed in steps of the budgets; runs that solve their task early shorten it."""
    budgets, done = (sum(job.config.max_timesteps for job in some) for some in (jobs, ended))
    left = duration(seconds * (budgets - done) / done)
    return f"  {duration(seconds)}  {len(ended)} of {len(jobs)} seeds done; {left} left at most"


def result(job: Job, record: Path, ended: Finished) -> dict[str, Any]:
    if ended.returncode == 0 and record.is_file():
        found: dict[str, Any] = read_json(record)
        return found
    lines = ended.output_tail.strip().splitlines() or ["no word"]
    return {"seed": job.seed, "status": "failed", "code": ended.returncode, "line": lines[-1]}


def outcome(record: dict[str, Any]) -> str:
    if record["status"] != "finished":
        return f"FAILED: {record['line']}"
    reached = record["final"].get("mean")
    exact = f", exactly {record['final']['exact']:.4f}" if "exact" in record["final"] else ""
    what = "nothing" if reached is None else score(reached)
    spent = f"{record['env_steps']:,} steps in {duration(record['seconds'])}"
    return f"{'solved' if record['solved'] else 'not solved'}, {what}{exact}, {spent}"
