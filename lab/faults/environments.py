"""Worlds that raise, leave, hang, die or answer what they should not: named at once, never counted, nobody left behind.

    python -m lab.faults environments

In training (PPO and DQN, Gymnasium's worlds, in the process itself), in evaluation and the closing test, in playing and
publishing, where worlds are made, and in AsyncEnv's worker processes. A world that hangs is ended by Ctrl-C or by
step_timeout; one that dies takes the process along, and the next reader says so. Every run then resumes to the bits of
the run in which nothing went wrong.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from lab.faults.rig import REPLAY, TINY, Ended, amounts_to, evenly, faults, finish, last_run, leftovers, start, told
from lab.faults.worlds import (
    ANSWERS,
    DIES,
    ENV_ID,
    FAULTS,
    HANGS,
    HARMLESS,
    MAKING,
    RAISES,
    SPINS,
    UNSOUND,
    VARIABLE,
    Fault,
)  # fmt: skip
from stride.commands import run_play, run_publish
from stride.envs_gym.async_env import AsyncEnv
from stride.envs_gym.gym_env import EnvError
from stride.runstore.run_fate import died
from stride.utils.durable_file import read_json
from stride.utils.provenance import PROJECT

MODULE = f"lab.faults.worlds:{ENV_ID}"
# workers=0: `auto` makes a world before those that train, to time it, and worlds are counted here
CHANGED = (f"env_id={MODULE}", "spec={}", "env_backend=gym", "workers=0")
AGENTS = {"ppo": (*TINY, *CHANGED), "dqn": (*REPLAY, *CHANGED)}
WORDS = AGENTS["ppo"]
WORLD, WORKER_WORLD = 2, 3  # which goes wrong; world 3 is the second of worker 1
# worlds 0 to 3 train, 4 was asked what it is
EVALUATED, TESTED = Fault(world=5, at=3, seeded=3), Fault(world=8, at=20)
TIMEOUT = 2.0
LIMIT = "step_timeout=0.5"
COUNTED = (*UNSOUND, "pays a number in words", "ends in words", "raises", "calls sys.exit", "raises KeyboardInterrupt")
PLAYING: dict[str, tuple[Callable[[list[str]], int], tuple[str, ...]]] = {
    "counting": (run_play.command, ("--headless", "--episodes", "3")),
    "watching": (run_play.command, ("--headless", "--episodes", "2", "--video", "VIDEO")),
    "publishing": (run_publish.command, ("--dry-run", "FOLDER")),
}
NAMED = re.compile(rf"^error: .*(world|environment) {WORLD}\b")


class Trial(NamedTuple):
    """One thing that goes wrong in one training."""

    agent: str
    what: str
    where: Fault
    words: tuple[str, ...] = ()


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    chosen = evenly(FAULTS, counts["faults"])
    wanted: dict[str, dict[str, object]] = {}
    for agent, words in AGENTS.items():
        ended = finish(words, folder / agent)
        straight = last_run(folder / agent)
        assert ended.code == 0 and straight is not None, ended.said
        wanted[agent] = amounts_to(straight)
    training = [Trial(agent, what, {"world": WORLD}) for what in chosen for agent in AGENTS if what not in SPINS]
    training += [Trial("ppo", what, {"world": WORLD}, (LIMIT,)) for what in chosen if what in (*HANGS, *SPINS)]
    counted = evenly(COUNTED, counts["faults"])
    # one class evaluates all agents, so one of them will do
    evaluated = [Trial("ppo", what, where) for what in counted for where in (EVALUATED, TESTED)]
    lines: list[str] = []
    good, orphans = True, 0
    for name, trials in (("in training", training), ("in evaluation and the closing test", evaluated)):
        right = 0
        for place, trial in enumerate(trials):
            verdict, left = trained(trial, folder / f"{len(lines)}-{place}", wanted[trial.agent])
            right, orphans = right + (verdict == "right"), orphans + left
            if verdict != "right" or left:
                print(f"{trial.what}, {trial.agent}, {name}: {verdict}, {left} processes left", flush=True)
        good = good and right == len(trials)
        lines.append(
            f"{name}: **{right} of {len(trials)}** ended as they should (exit code 1, status failed, 1 line with the "
            "world and its file and line wherever the process lives on), and resumed to the bits of the run in which "
            "nothing went wrong"
        )
    making = evenly(MAKING, len(chosen))
    made = sum(unmade(what, folder / f"making-{place}") for place, what in enumerate(making))
    lines.append(f"where worlds are made: **{made} of {len(making)}** one line, exit code 1 and a run that failed")
    played = [(what, how) for what in counted for how in PLAYING]
    right = sum(misplayed(what, how, folder) for what, how in played)
    lines.append(f"in playing, filming and publishing: **{right} of {len(played)}** named, exit code 1, no verdict")
    workable = [what for what in chosen if what in (*RAISES, *HANGS, *DIES, *ANSWERS)]
    named, abandoned = pooled(workable, folder)
    lines += [
        f"in AsyncEnv's workers: **{named} of {len(workable)}** ended by an error that names world {WORKER_WORLD}; "
        f"{abandoned} processes left, nor when their parent is killed while a world hangs; {orphans} processes left "
        "by trainings",
        f"a world that {', '.join(chosen)}",
    ]
    good = good and made == len(making) and right == len(played) and named == len(workable)
    return lines, good and not orphans and not abandoned


def trained(trial: Trial, root: Path, wanted: dict[str, object]) -> tuple[str, int]:
    """ "right", or what is wrong where that happens; and how many processes live on."""
    told = root.parent / f"{root.name}.told"
    fault: Fault = {"what": trial.what, "process": "MainProcess", "told": str(told), **trial.where}
    words = (*AGENTS[trial.agent], *trial.words)
    child = start(words, root, lambda: os.environ.update({VARIABLE: json.dumps(fault)}))
    interrupted = trial.what in HANGS and not trial.words
    while child.lives() and not (interrupted and told.exists()):
        time.sleep(0.01)
    began = time.monotonic()
    if interrupted:
        os.kill(child.pid, signal.SIGINT)
    ended = child.wait()
    seconds, left = time.monotonic() - began, len(living(child.pid))
    if not told.exists():
        return f"it never happened: {ended.said[-300:]}", left
    if problem := misled(trial, ended, seconds) or mistold(trial, root):
        return f"{problem}: {ended.said[-500:]}", left
    run = last_run(root)
    if run is None or faults(run):
        return "a broken checkpoint", left
    again = finish(["--resume", "@last", "-q"], root)
    # a run in which nothing went wrong was finished: there is nothing to resume
    if again.code and trial.what not in HARMLESS:
        return f"resume ended with {again.code}: {again.said[-300:]}", left
    got = amounts_to(run)
    differing = [name for name in wanted if name != "files" and got[name] != wanted[name]]
    litter = leftovers(root)
    shutil.rmtree(root)
    return f"differs in {', '.join(differing)}" if differing else f"leftovers {litter}" if litter else "right", left


def misled(trial: Trial, ended: Ended, seconds: float) -> str:
    """What a person at the terminal would miss; "" for nothing."""
    dead = {name: code if code >= 0 else 128 - code for name, code in DIES.items()}
    hung = dict.fromkeys(() if trial.words else HANGS, 130)
    code = {**dead, **hung, **dict.fromkeys(HARMLESS, 0)}.get(trial.what, 1)
    if ended.code != code:
        return f"exit code {ended.code} instead of {code}"
    if trial.what in DIES or trial.what in HARMLESS:
        return ""
    if trial.what in hung:
        return "" if seconds < 5 else f"took {seconds:.1f} s"
    said = told(ended.said)
    line = said[-1]
    if len(said) > 1 or not line.isprintable() or not line.startswith("error: "):
        return "not one line"
    if trial.where["world"] == WORLD and not NAMED.match(line):
        return "its world is not named"
    return "" if trial.what in UNSOUND or re.search(r"worlds\.py:\d+\)", line) else "its file and line are not named"


def mistold(trial: Trial, root: Path) -> str:
    """What who reads the run next would not be told; "" for nothing."""
    run = last_run(root)
    facts = read_json(run.config_json) if run else {}
    status = {**dict.fromkeys(DIES, "running"), **dict.fromkeys(HARMLESS, "finished")}.get(trial.what, "failed")
    status = "interrupted" if trial.what in HANGS and not trial.words else status
    if facts.get("status") != status:
        return f"status {facts.get('status')} instead of {status}"
    if trial.what not in DIES or run is None:
        return ""
    return "" if "died" in died(run, facts) else "nobody says that it died"


def unmade(what: str, root: Path) -> bool:
    """Whether worlds that cannot be made are one line, and a run that says so."""
    told = str(root.parent / f"{root.name}.told")
    fault = Fault(what=what, world="every", process="MainProcess", told=told)
    ended = finish(WORDS, root, lambda: os.environ.update({VARIABLE: json.dumps(fault)}))
    said = ended.said.strip().split("\n")
    good = ended.code == 1 and len(said) == 1 and bool(re.match(r"error: .*\(.*worlds\.py:\d+\); traceback", said[0]))
    run = last_run(root)
    good = good and said[0].isprintable() and run is not None and run.facts()["status"] == "failed"
    if not good:
        print(f"{what}: exit code {ended.code}: {ended.said[-500:]}", flush=True)
    return good


def misplayed(what: str, how: str, folder: Path) -> bool:
    """Whether it is named where episodes are counted, and counted by nobody."""
    main, given = PLAYING[how]
    places = {"VIDEO": str(folder / "film.mp4"), "FOLDER": str(folder / "published")}
    words = ["--run-id", "@last", *(places.get(word, word) for word in given)]
    fault = Fault(what=what, world="every", at=5, process="MainProcess", told=str(folder / "play.told"))
    ended = start(words, folder / "ppo", lambda: os.environ.update({VARIABLE: json.dumps(fault)}), main).wait()
    errors = [line for line in ended.said.split("\n") if line.startswith("error: ")]
    last = ended.said.strip().split("\n")[-1]
    good = ended.code == 1 and errors == [last] and last.isprintable()
    good = good and "mean " not in ended.said and "Traceback" not in ended.said and not (folder / "published").exists()
    if not good:
        print(f"{what}, {how}: exit code {ended.code}: {ended.said[-700:]}", flush=True)
    return good


def living(group: int) -> list[int]:
    """Processes of that group, zombies not counted."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, its_group = path.read_text().rpartition(")")[2].split()[:3]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(its_group) == group and state not in "ZX":
            found.append(int(path.parent.name))
    return found


def pooled(chosen: list[str], folder: Path) -> tuple[int, int]:
    """How many faults in workers were named, and how many processes are left; in a process of its own each time."""
    command = [sys.executable, "-c", "from lab.faults.environments import pool_each; pool_each()"]
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "process_group": 0}
    with subprocess.Popen([*command, str(folder), *chosen], cwd=PROJECT, **options) as driver:
        answers = [json.loads(line) for line in driver.stdout or ()]
    named, left = 0, len(gone(lambda: living(driver.pid)))
    for answer in answers:
        left += answer["left"]
        good = f"world {WORKER_WORLD}" in answer["said"] and answer["said"].isprintable()
        named += good
        if not good or answer["left"]:
            print(f"{answer['what']}, in a worker: {answer['said']!r}, {answer['left']} workers left", flush=True)
    with subprocess.Popen([*command, str(folder), "hangs", "for ever"], cwd=PROJECT, **options) as driver:
        while not (folder / "hangs.told").exists():
            time.sleep(0.01)
        driver.kill()
    return named, left + len(gone(lambda: living(driver.pid)))


def gone(ask: Callable[[], list[int]], seconds: float = 10.0) -> list[int]:
    """What `ask` still finds after so long."""
    deadline = time.monotonic() + seconds
    while (found := ask()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def pool_each() -> None:
    """What happens to AsyncEnv for each of the faults on the command line, a line of JSON each."""
    folder, *chosen = sys.argv[1:]
    for_ever = chosen[-1] == "for ever"
    for what in chosen[: len(chosen) - for_ever]:
        told = Path(folder) / f"{what}.told"
        told.unlink(missing_ok=True)
        fault = Fault(what=what, world=WORKER_WORLD % 2, process="stride-worker-1", told=str(told))
        os.environ[VARIABLE] = json.dumps(fault)
        env = AsyncEnv(MODULE, 4, workers=2, timeout=1000.0 if for_ever else TIMEOUT)
        said = "nothing went wrong"
        try:
            env.reset(1)
            for _ in range(200):
                env.step(env._action)
        except EnvError as error:
            said = str(error)
        left = gone(lambda: [pid for pid in env.pids if pid in living(os.getpgid(0))])  # noqa: B023
        env.close()
        print(json.dumps({"what": what, "said": said if told.exists() else "it never happened", "left": len(left)}))
