"""Checks that PPO learns on the device: CartPole-v1 with 20 seeds until solved, and three variants beside fused_cpu."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab.evidence.ways import WAYS, Comparison, difference, iqm_text
from lab.evidence.ways import Found as Read
from lab.gpu.engines import runs_folder
from lab.gpu.parts import Found, Machine
from stride.runstore.run_dir import RunDir
from stride.utils.provenance import PROJECT
from stride.utils.resources import cores

CONFIG, GOAL = "CartPole-v1:ppo", 475
SEEDS = range(1, 21)
MAX_AT_ONCE = 10  # trainings that share the GPU
END_SECONDS = 3.0  # kept for the end of the check
WANTED_SECONDS = 8.0  # of a training alone


def solving(machine: Machine, seconds: float) -> Iterator[Found]:
    """Train several seeds at once; a seed without time left is null in the file, which is no fault."""
    deadline, seeds = time.monotonic() + seconds - END_SECONDS, SEEDS[:1] if machine.small else SEEDS
    at_once = max(1, min(MAX_AT_ONCE, cores() - 1, len(seeds)))
    results: dict[str, Any] = dict.fromkeys(map(str, seeds))
    with tempfile.TemporaryDirectory(prefix="stride-gpu-") as folder:
        for seed, result in trained(machine, seeds, at_once, Path(folder), deadline):
            results[str(seed)] = result
            yield answer(results, at_once)
        alone = dict(trained(machine, seeds[:1], 1, Path(folder, "alone"), deadline))
    yield answer(results, at_once, alone.get(seeds[0]))


def trained(
    machine: Machine, seeds: Sequence[int], at_once: int, folder: Path, deadline: float
) -> Iterator[tuple[int, dict[str, Any]]]:
    waiting, running = [*seeds], dict[int, Training]()
    while (waiting or running) and time.monotonic() < deadline:
        while waiting and len(running) < at_once:
            seed = waiting.pop(0)
            running[seed] = Training(machine, seed, folder / str(seed))
        for seed in [seed for seed, training in running.items() if training.process.poll() is not None]:
            yield seed, running.pop(seed).result()
        time.sleep(0.05)
    for training in running.values():
        training.process.kill()
        training.process.communicate()


class Training:
    """A training in its own process."""

    def __init__(self, machine: Machine, seed: int, folder: Path) -> None:
        self.folder, self.began = folder, time.monotonic()
        engine = "auto" if machine.small else machine.engines[-1]
        words = [CONFIG, "-q", f"seed={seed}", f"device={machine.device}", f"engine={engine}", f"spec.goal={GOAL}"]
        environment = os.environ | {"STRIDE_RUNS": str(folder)}
        self.process = subprocess.Popen(
            [sys.executable, str(PROJECT / "train.py"), *words],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def result(self) -> dict[str, Any]:
        """Return the outcome; "seconds" are those of the whole command, beside other trainings."""
        seconds, errors = time.monotonic() - self.began, self.process.communicate()[1]
        if self.process.returncode:
            return {"solved": False, "seconds": round(seconds, 2), "error": errors.strip()[-300:]}
        [run] = [path for path in self.folder.iterdir() if not path.is_symlink() and (path / "config.json").is_file()]
        facts = RunDir(run).facts()
        outcome = facts["outcome"]
        kept = {name: outcome[name] for name in ("solved", "test_mean", "env_steps")}
        return {
            **kept,
            "seconds": round(seconds, 2),
            "training_seconds": outcome["seconds"],
            "engine": facts["engine"],
        }


def answer(found: dict[str, Any], at_once: int, alone: dict[str, Any] | None = None) -> Found:
    """Return the result so far; faults are seeds that failed or missed the goal, or took other steps when alone."""
    ended = {seed: run for seed, run in found.items() if run}
    solved = [run for run in ended.values() if run["solved"]]
    failures = [f"seed {seed}: {run.get('error') or run}" for seed, run in ended.items() if not run["solved"]]
    line = f"{len(solved)} of {len(ended)} seeds solved, of {len(found)}"
    figures: dict[str, Any] = {"config": CONFIG, "goal": GOAL, "at_once": at_once}
    figures |= {"solved": len(solved), "ended": len(ended)}
    if solved:
        steps, seconds = (statistics.median(run[name] for run in solved) for name in ("env_steps", "seconds"))
        figures |= {"median_env_steps": steps, "median_seconds": seconds}
        line += f", {steps:,.0f} env steps, {seconds:.1f} s (medians, {at_once} at once)"
    if alone:
        in_time, beside = alone["solved"] and alone["seconds"] <= WANTED_SECONDS, next(iter(found.values()))
        figures["alone"] = {**alone, "wanted_seconds": WANTED_SECONDS, "in_time": in_time}
        line += f"; alone {alone['seconds']:.1f} s, wanted are {WANTED_SECONDS:.0f}"
        if beside and alone.get("env_steps") != beside.get("env_steps"):
            failures.append(f"alone the first seed took other env steps: {alone.get('env_steps')}")
    return Found(line, {**figures, "seeds": dict(found)}, failures if ended else None)


DEVICES = WAYS["devices"]
WANTED = {"cpu": "fused_cpu", "cuda": "fused_gpu"}  # device -> the engine that must have trained


def learning(machine: Machine, seconds: float) -> Iterator[Found]:
    """Train three variants on both devices and compare their results."""
    seeds, failed = range(1, DEVICES.seeds + 1), 0
    for variant, changes in DEVICES.variants.items():
        with runs_folder():
            failed += DEVICES._replace(variants={variant: changes}).train_missing(seeds, max(1, cores() - 1))
        read = DEVICES.read()
        compared = DEVICES.compare(read)
        yield Found(
            f"{len(read)} of {len(DEVICES.variants)} variants learnt by both, {failed} seeds failed",
            {f"{name} {measure}": told_of(each) for (name, measure), each in compared.items()},
            [*differences(compared, read), *([f"{failed} seeds failed"] if failed else [])],
        )


def told_of(found: Comparison) -> dict[str, Any]:
    both = {"fused_cpu": iqm_text(found.first), "fused_gpu": iqm_text(found.second)}
    return {**both, "fused_gpu - fused_cpu": difference(found), "seeds": len(found.first), "same": found.same}


def differences(compared: dict[tuple[str, str], Comparison], read: Read) -> list[str]:
    lines = [f"{variant} {measure} is different" for (variant, measure), each in compared.items() if not each.same]
    taken = {(name, way, record["engine"]) for name, files in read.items()
             for way in WANTED for record in files[way].finished()}  # fmt: skip
    return lines + [f"{name} on {way} was learnt by {engine}" for name, way, engine in sorted(taken)
                    if engine != WANTED[way]]  # fmt: skip
