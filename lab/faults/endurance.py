"""A long training in one process: do memory, descriptors, threads or files grow?

    python -m lab.faults endurance --seconds 180 --record

PPO, DQN and SAC on the fused engine, and PPO on Gymnasium's worlds, one after the other, each with frequent
evaluations; what they hold is read from /proc after a quarter of the time and at its end, then SIGTERM ends them.
"""

import os
import random
import signal
import time
from pathlib import Path
from typing import NamedTuple

from lab.faults.rig import Child, last_run, leftovers, start
from lab.faults.signals import wait_until

TRAININGS = {
    "PPO, fused": ("CartPole-v1:ppo", "eval_freq_epochs=10"),
    "PPO, Gymnasium's worlds": ("CartPole-v1:ppo", "env_backend=gym", "eval_freq_epochs=10"),
    "DQN, fused": ("CartPole-v1:dqn", "buffer_size=20000", "eval_freq_epochs=10"),
    "SAC, fused": ("Pendulum-v1:sac", "buffer_size=20000", "eval_freq_epochs=10"),
}
ENDLESS = ("-q", "max_timesteps=1e12", "early_stop_on_eval_threshold=false", "checkpoint_minutes=0.1")
MORE = 32.0  # MiB that allocators may take between the two looks


class Held(NamedTuple):
    """What a process holds."""

    mebibytes: float
    descriptors: int
    threads: int
    checkpoints: int

    def grew(self, since: "Held") -> bool:
        """Beyond what allocators and a checkpoint under way explain."""
        return (
            self.mebibytes > since.mebibytes + MORE
            or self.descriptors > since.descriptors + 1
            or self.threads > since.threads
        )


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    lines, good = [], True
    for name, words in TRAININGS.items():
        line, held = endured(name, (*words, *ENDLESS), counts["seconds"], folder / name.replace(" ", "-"))
        print(line, flush=True)
        lines.append(line)
        good &= held
    return lines, good


def endured(name: str, words: tuple[str, ...], seconds: int, root: Path) -> tuple[str, bool]:
    """A line of what it held early and late, and whether that is the same."""
    child = start(words, root)
    wait_until(lambda: not child.lives() or ((run := last_run(root)) is not None and run.metrics_csv.exists()))
    time.sleep(seconds / 4)  # what only fills at first is full by then
    early = looked(child, root)
    time.sleep(3 * seconds / 4)
    late = looked(child, root)
    began = time.monotonic()
    os.kill(child.pid, signal.SIGTERM)
    ended = child.wait()
    run = last_run(root)
    assert run is not None, ended.said
    left = leftovers(root)
    steps = run.facts()["outcome"]["env_steps"]
    size = run.metrics_csv.stat().st_size / steps * 1e6 / 1e3
    good = not late.grew(early) and ended.code == 143 and not left
    held = ("memory in MiB", "descriptors", "threads", "checkpoints")
    grown = ", ".join(f"{what} {a:.0f} -> {b:.0f}" for what, a, b in zip(held, early, late, strict=True))
    line = f"{name}, {steps:,} env steps in {seconds} s: {grown}, metrics.csv {size:.0f} kB per million steps; "
    line += f"SIGTERM: exit code {ended.code} after {time.monotonic() - began:.1f} s, {len(left)} leftovers"
    return line if good else f"{line}: **it grew, or did not end well**", good


def looked(child: Child, root: Path) -> Held:
    """What /proc says of it, and its folder."""
    process = Path("/proc") / str(child.pid)
    words = (process / "status").read_text().split()
    run = last_run(root)
    return Held(
        int(words[words.index("VmRSS:") + 1]) / 1024,
        len([*(process / "fd").iterdir()]),
        int(words[words.index("Threads:") + 1]),
        len([*run.checkpoints.glob("*.ckpt")]) if run else 0,
    )
