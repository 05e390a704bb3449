"""CartPole-v1 trained on the device until 100 fresh episodes reach 475, seeds 1 to 20, each begun as a person would.

Then the first of them again, alone: how long that takes from the start of its process, and to the same env step.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.gpu.parts import Found, Machine
from stride.runstore.run_dir import RunDir
from stride.utils.cores import cores
from stride.utils.provenance import PROJECT

CONFIG, GOAL = "CartPole-v1:ppo", 475
SEEDS = range(1, 21)
MOST = 10  # at once: they share one GPU
LAST = 3.0  # seconds kept for the end
WANTED = 8.0  # seconds of a command at most


def check(machine: Machine, seconds: float) -> Iterator[Found]:
    """Some seeds at once; those that time does not allow are null, which is no failure."""
    until, seeds = time.monotonic() + seconds - LAST, SEEDS[:1] if machine.small else SEEDS
    at_once = max(1, min(MOST, cores() - 1, len(seeds)))
    waiting, running = [*seeds], dict[int, Training]()
    found: dict[str, Any] = dict.fromkeys(map(str, seeds))
    with tempfile.TemporaryDirectory(prefix="stride-gpu-") as folder:
        while (waiting or running) and time.monotonic() < until:
            while waiting and len(running) < at_once:
                seed = waiting.pop(0)
                running[seed] = Training(machine, seed, Path(folder, str(seed)))
            for seed in [seed for seed, each in running.items() if each.ended]:
                found[str(seed)] = running.pop(seed).result()
                yield answer(found, at_once)
            time.sleep(0.05)
        for each in running.values():
            each.stop()
        found_alone = alone(machine, seeds[0], Path(folder, "alone"), until)
    yield answer(found, at_once, found_alone)


def alone(machine: Machine, seed: int, folder: Path, until: float) -> dict[str, Any] | None:
    """A seed that shares the device with nobody; None where time did not allow it."""
    training = Training(machine, seed, folder)
    while time.monotonic() < until:
        if training.ended:
            return training.result()
        time.sleep(0.05)
    training.stop()
    return None


class Training:
    """A command that is under way."""

    def __init__(self, machine: Machine, seed: int, folder: Path) -> None:
        self.folder, self.began = folder, time.monotonic()
        engine = "auto" if machine.small else machine.engines[-1]
        words = [CONFIG, "-q", f"seed={seed}", f"device={machine.device}", f"engine={engine}", f"spec.goal={GOAL}"]
        environment = os.environ | {"STRIDE_RUNS": str(folder)}
        self.process = subprocess.Popen(
            [sys.executable, str(PROJECT / "train.py"), *words],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()

    def result(self) -> dict[str, Any]:
        """Seconds are those of the command, others beside it."""
        seconds, errors = time.monotonic() - self.began, self.process.communicate()[1]
        if self.process.returncode:
            return {"solved": False, "seconds": round(seconds, 2), "error": errors.strip()[-300:]}
        [run] = [each for each in self.folder.iterdir() if not each.is_symlink() and (each / "config.json").is_file()]
        facts = RunDir(run).facts()
        told = facts["outcome"]
        kept = {name: told[name] for name in ("solved", "test_mean", "env_steps")}
        return {**kept, "seconds": round(seconds, 2), "training_seconds": told["seconds"], "engine": facts["engine"]}


def answer(found: dict[str, Any], at_once: int, alone: dict[str, Any] | None = None) -> Found:
    """Wrong is a seed that ended below the goal, or failed, or took other steps alone than beside others."""
    ended = {seed: each for seed, each in found.items() if each}
    solved = [each for each in ended.values() if each["solved"]]
    failures = [f"seed {seed}: {each.get('error') or each}" for seed, each in ended.items() if not each["solved"]]
    line = f"{len(solved)} of {len(ended)} seeds solved, of {len(found)}"
    figures: dict[str, Any] = {"config": CONFIG, "goal": GOAL, "at_once": at_once}
    figures |= {"solved": len(solved), "ended": len(ended)}
    if solved:
        steps, seconds = (statistics.median(each[name] for each in solved) for name in ("env_steps", "seconds"))
        figures |= {"median_env_steps": steps, "median_seconds": seconds}
        line += f", {steps:,.0f} env steps, {seconds:.1f} s (medians, {at_once} at once)"
    if alone:
        in_time, beside = alone["solved"] and alone["seconds"] <= WANTED, next(iter(found.values()))
        figures["alone"] = {**alone, "wanted_seconds": WANTED, "in_time": in_time}
        line += f"; alone {alone['seconds']:.1f} s, wanted are {WANTED:.0f}"
        if beside and alone.get("env_steps") != beside.get("env_steps"):
            failures.append(f"alone the first seed took other env steps: {alone.get('env_steps')}")
    return Found(line, {**figures, "seeds": dict(found)}, failures if ended else None)
