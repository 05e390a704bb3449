"""Worlds that raise, hang, die or answer what they should not: named at once with their number, and nobody left behind.

    python scripts/faults/environments.py

In training (Gymnasium's worlds, in the process itself) and in AsyncEnv's worker processes. In training a world that
hangs is ended by Ctrl-C, and one that dies takes the process along; every run then resumes to the bits of the run in
which nothing went wrong.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from envs_gym.async_env import AsyncEnv
from envs_gym.gym_env import EnvError
from scripts.faults.record import command_line
from scripts.faults.rig import TINY, Ended, amounts_to, faults, finish, last_run, leftovers, start
from scripts.faults.worlds import DIES, ENV_ID, FAULTS, HANGS, VARIABLE

MODULE = f"scripts.faults.worlds:{ENV_ID}"
WORDS = (*TINY, f"env_id={MODULE}", "spec={}", "env_backend=gym")
WORLD, WORKER_WORLD = 2, 3  # which goes wrong; world 3 is the second of worker 1
TIMEOUT = 2.0


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    chosen = FAULTS[: counts["faults"]]
    ended = finish(WORDS, folder / "straight")
    straight = last_run(folder / "straight")
    assert ended.code == 0 and straight is not None, ended.said
    wanted, right, orphans = amounts_to(straight), 0, 0
    for place, what in enumerate(chosen):
        verdict, left = trained(what, folder / f"run{place}", wanted)
        right, orphans = right + (verdict == "right"), orphans + left
        if verdict != "right" or left:
            print(f"{what}, in training: {verdict}, {left} processes left", flush=True)
    named, abandoned = pooled(chosen, folder)
    total = len(chosen)
    lines = [
        f"in training: **{right} of {total}** ended as they should, 1 error line naming world {WORLD} wherever the "
        f"process lives on, and resumed to the bits of the run in which nothing went wrong; {orphans} processes left",
        f"in AsyncEnv's workers: **{named} of {total}** ended by an error that names world {WORKER_WORLD}; "
        f"{abandoned} processes left, nor when their parent is killed while a world hangs",
        f"a world that {', '.join(chosen)}",
    ]
    return lines, right == named == total and not orphans and not abandoned


def trained(what: str, root: Path, wanted: dict[str, Any]) -> tuple[str, int]:
    """ "right", or what is wrong where that happens in the sixth iteration; and how many processes live on."""
    told = root.parent / f"{root.name}.told"
    fault = {"what": what, "world": WORLD, "process": "MainProcess", "told": str(told)}
    child = start(WORDS, root, lambda: os.environ.update({VARIABLE: json.dumps(fault)}))
    while child.lives() and not (what in HANGS and told.exists()):
        time.sleep(0.01)
    began = time.monotonic()
    if what in HANGS:
        os.kill(child.pid, signal.SIGINT)
    ended = child.wait()
    seconds, left = time.monotonic() - began, len(living(child.pid))
    if not told.exists():
        return f"it never happened: {ended.said[-300:]}", left
    if problem := misled(what, ended, seconds):
        return f"{problem}: {ended.said[-500:]}", left
    run = last_run(root)
    if run is None or faults(run):
        return "a broken checkpoint", left
    again = finish(["--resume", "@last", "-q"], root)
    if again.code:
        return f"resume ended with {again.code}: {again.said[-300:]}", left
    got = amounts_to(run)
    differing = [name for name in wanted if name != "files" and got[name] != wanted[name]]
    return f"differs in {', '.join(differing)}" if differing else f"leftovers {x}" if (
        x := leftovers(root)
    ) else "right", left


def misled(what: str, ended: Ended, seconds: float) -> str:
    """What a person at the terminal would miss; "" for nothing."""
    dead = {name: code if code > 0 else 128 - code for name, code in DIES.items()}
    code = {**dead, **dict.fromkeys(HANGS, 130)}.get(what, 1)
    if ended.code != code:
        return f"exit code {ended.code} instead of {code}"
    if what in DIES:
        return ""
    if what in HANGS:
        return "" if seconds < 5 else f"took {seconds:.1f} s"
    said = ended.said.strip().splitlines()
    return "" if len(said) == 1 and said[0].startswith("error: ") and f"world {WORLD}:" in said[0] else "not named"


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


def pooled(chosen: tuple[str, ...], folder: Path) -> tuple[int, int]:
    """How many faults in workers were named, and how many processes are left; in a process of its own each time."""
    command = [sys.executable, "-c", "from scripts.faults.environments import pool_each; pool_each()"]
    options: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "process_group": 0}
    home = Path(__file__).resolve().parent.parent.parent
    with subprocess.Popen([*command, str(folder), *chosen], cwd=home, **options) as driver:
        answers = [json.loads(line) for line in driver.stdout or ()]
    named, left = 0, len(living(driver.pid))
    for answer in answers:
        left += answer["left"]
        good = f"world {WORKER_WORLD}" in answer["said"] and len(answer["said"].splitlines()) == 1
        named += good
        if not good or answer["left"]:
            print(f"{answer['what']}, in a worker: {answer['said']!r}, {answer['left']} workers left", flush=True)
    with subprocess.Popen([*command, str(folder), "hangs", "for ever"], cwd=home, **options) as driver:
        while not (folder / "hangs.told").exists():
            time.sleep(0.01)
        driver.kill()
    return named, left + len(gone(lambda: living(driver.pid)))


def gone(ask: Any, seconds: float = 10.0) -> list[int]:
    """What `ask` still finds after so long."""
    deadline = time.monotonic() + seconds
    while (found := ask()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return list(found)


def pool_each() -> None:
    """What happens to AsyncEnv for each of the faults on the command line, a line of JSON each."""
    folder, *chosen = sys.argv[1:]
    for_ever = chosen[-1] == "for ever"
    for what in chosen[: len(chosen) - for_ever]:
        told = Path(folder) / f"{what}.told"
        told.unlink(missing_ok=True)
        fault = {"what": what, "world": WORKER_WORLD % 2, "process": "stride-worker-1", "told": str(told)}
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


if __name__ == "__main__":
    sys.exit(command_line(__doc__ or "", "environments", "Worlds that go wrong", run, faults=len(FAULTS)))
