"""SIGTERM, Ctrl-C and SIGHUP at random moments of every phase: exit code, time to exit, resumed to the bit or not.

    python -m lab.faults signals --trials 50 --groups 24

Phases: building, collecting, updating, evaluating, recording a video, saving, the closing test. In a third of the
trials the phase is made to last (a sleep of 20 s inside it), so that it must be dropped; in another third a second
signal follows at once. Then seed groups: whoever leads one gets SIGTERM, SIGHUP, Ctrl-C or SIGKILL; no training may
outlive it, and `--resume group:NAME` must end in the bits of a group that was never stopped.
"""

import collections
import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from lab.faults.rig import TINY, Call, Ended, amounts_to, at_call, faults, finish, last_run, leftovers, start
from stride.agents.base import Agent
from stride.runstore import run_lock
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.checkpoint import AtomicIO
from stride.trainer_callbacks.evaluate import Evaluate
from stride.trainer_callbacks.video import Video
from stride.utils.cores import SHARE, cores
from stride.utils.durable_file import read_json

PHASES: dict[str, tuple[type, str, int]] = {  # whose method, its name, and in which of its calls the signal comes
    "building": (Agent, "setup", 1),
    "collecting": (Agent, "collect", 9),
    "updating": (Agent, "learn_from", 9),
    "evaluating": (Evaluate, "_play", 4),
    "recording": (Video, "film", 2),
    "saving": (AtomicIO, "save_checkpoint", 4),
    "closing test": (Evaluate, "test", 1),
}
WORDS = (*TINY, "video_freq_epochs=4", "video_max_steps=40")
WITHIN = 5.0
OURS = ("max_timesteps", "eval_freq", "checkpoint_freq")
GROUP = (*(word for word in TINY if word != "-q" and not word.startswith(OURS)),
         "max_timesteps=38400", "eval_freq_epochs=40", "checkpoint_freq_epochs=20")  # fmt: skip
SEEDS = "3,1,2"
LEADERS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT)  # nobody can pass on the first


def pause(phase: str, told: Path, seconds: float) -> None:
    """Have this process tell when it reaches the phase, and stay in it for a while."""

    def late(function: Call, *arguments: object, **options: object) -> object:
        told.write_text("here")
        time.sleep(seconds)
        return function(*arguments, **options)

    at_call(*PHASES[phase], late)


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    trials = counts["trials"]
    ended = finish(WORDS, folder / "straight")
    assert ended.code == 0, ended.said
    straight = last_run(folder / "straight")
    assert straight is not None
    wanted = amounts_to(straight)
    lines, good = [], True
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        found: collections.Counter[str] = collections.Counter()
        slowest = 0.0
        for trial in range(trials):
            phase = list(PHASES)[trial % len(PHASES)]
            manner = ("quick", "long", "twice")[trial // len(PHASES) % 3]  # 21 trials: each phase in each manner
            root = folder / f"{number}-{trial}"
            seconds, ended = stopped(number, phase, manner, draw, root)
            slowest = max(slowest, seconds)
            outcome = judged(ended, seconds, number, root, wanted)
            found[outcome] += 1
            if outcome != "right":
                print(f"{number.name} while {phase}, {manner}: {outcome}: {ended.said[-600:]}", flush=True)
            shutil.rmtree(root, ignore_errors=True)
        right = found["right"]
        good = good and right == trials
        lines.append(
            f"{number.name}: **{right} of {trials}** left with exit code {128 + number} within {WITHIN:g} s (slowest "
            f"{slowest:.1f} s), every checkpoint whole, and resumed to the bits of the run that was never stopped"
        )
    lines.append(f"phases, in turn: {', '.join(PHASES)}; quick, made to last 20 s, and with a second signal at once")
    told, well = groups(counts["groups"], draw, folder)
    return [*lines, *told], good and well


def groups(count: int, draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    """So many seed groups, the signals in turn."""
    os.environ.pop(SHARE, None)  # tests run beside others, but a group of one at a time would say little
    whole = finish((*GROUP, "--seed", SEEDS), folder / "group")
    assert whole.code == 0, whole.said
    wanted = of_seeds(folder / "group")
    tried, right = collections.Counter[signal.Signals](), collections.Counter[signal.Signals]()
    for trial in range(count):
        number = LEADERS[trial % len(LEADERS)]
        root = folder / f"group-{trial}"
        problem = led(number, draw, root, wanted)
        tried[number] += 1
        right[number] += not problem
        if problem:
            print(f"a group, {number.name}: {problem}", flush=True)
        shutil.rmtree(root, ignore_errors=True)
    lines = [
        f"who leads a group of 3 seeds gets {number.name}: **{right[number]} of {tried[number]}** times all its "
        f"trainings ended within {WITHIN:g} s, and `--resume group:NAME` ended in the bits of the group that was never "
        "stopped"
        for number in tried
    ]
    return lines, right == tried


def led(number: int, draw: random.Random, root: Path, wanted: dict[int, dict[str, object]]) -> str:
    """What is wrong with a group whose leader gets the signal; "" for nothing."""
    child = start((*GROUP, "--seed", SEEDS), root)
    workers = min(len(SEEDS.split(",")), cores())
    wait_until(lambda: len(pids(root)) == workers or not child.lives())
    if not child.lives():
        return f"over before {workers} trained at once: {child.wait()}"
    time.sleep(draw.uniform(0.0, 1.5))
    trainings = pids(root)
    os.kill(child.pid, number)
    ended = child.wait()
    began = time.monotonic()
    while alive(trainings) and time.monotonic() < began + WITHIN:
        time.sleep(0.01)
    if left := alive(trainings):
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return f"{len(left)} trainings live on"
    if ended.code not in (128 + number, 0):  # 0: it was quicker
        return f"exit code {ended.code}"
    name = re.search(r"group (\S+):", ended.said)
    assert name is not None
    command = f"--resume group:{name[1]}"
    if number != signal.SIGKILL and ended.code and command not in ended.said.strip().splitlines()[-1]:
        return f"the last line does not say how to go on: {ended.said[-300:]}"
    if any(broken := [faults(run) for run in runs_of(root)]):
        return f"broken: {broken}"
    again = finish(command.split(), root)
    if again.code:
        return f"resume ended with {again.code}: {again.said[-500:]}"
    got = of_seeds(root)
    wrong = [seed for seed in wanted if got.get(seed) != wanted[seed]]
    return f"seeds {wrong} differ" if wrong else f"leftovers {litter}" if (litter := leftovers(root)) else ""


def runs_of(root: Path) -> list[RunDir]:
    return [RunDir(path.parent) for path in root.glob("*/config.json") if not path.parent.is_symlink()]


def of_seeds(root: Path) -> dict[int, dict[str, object]]:
    """What each seed's run amounts to; files are left out, as a stop leaves one more."""
    found = {}
    for run in runs_of(root):
        amount = amounts_to(run)
        found[read_json(run.config_json)["seed"]] = {name: amount[name] for name in ("state", "rows", "increasing")}
    return found


def pids(root: Path) -> list[int]:
    """Who trains under a root just now."""
    return [owner["pid"] for run in runs_of(root) if (owner := run_lock.owner(run.path))]


def alive(processes: list[int]) -> list[int]:
    return [pid for pid in processes if run_lock.identity(pid)]


def wait_until(holds: Callable[[], bool]) -> None:
    patience = time.monotonic() + 120
    while not holds():
        time.sleep(0.01)
        assert time.monotonic() < patience, "it never came"


def stopped(number: int, phase: str, manner: str, draw: random.Random, root: Path) -> tuple[float, Ended]:
    """A run that gets the signal in a phase; the seconds from the signal to its end."""
    told = root.parent / f"{root.name}.told"
    length = {"quick": 0.3, "long": 20.0, "twice": 20.0}[manner]
    child = start(WORDS, root, lambda: pause(phase, told, length))
    patience = time.monotonic() + 60
    while not told.exists():
        time.sleep(0.005)
        assert time.monotonic() < patience, f"{phase} was never reached"
    time.sleep(draw.uniform(0.0, 0.2))
    began = time.monotonic()
    os.kill(child.pid, number)
    if manner == "twice":
        time.sleep(0.1)
        os.kill(child.pid, number)
    ended = child.wait()
    return time.monotonic() - began, ended


def judged(ended: Ended, seconds: float, number: int, root: Path, wanted: dict[str, object]) -> str:
    """ "right", or what is wrong."""
    if ended.code != 128 + number:
        return f"exit code {ended.code}"
    if seconds > WITHIN:
        return f"took {seconds:.1f} s"
    if "Traceback" in ended.said:
        return "a traceback"
    run = last_run(root)
    if run is None:
        return "right"  # it was stopped before there was a run
    if broken := faults(run):
        return f"broken: {broken}"
    again = finish(["--resume", "@last", "-q"], root)
    if again.code:
        return f"resume ended with {again.code}: {again.said[-300:]}"
    got = amounts_to(run)
    wrong = [name for name in wanted if got[name] != wanted[name]]
    if wrong:
        return f"differs in {', '.join(wrong)}"
    litter = leftovers(root)
    return f"leftovers {litter}" if litter else "right"
