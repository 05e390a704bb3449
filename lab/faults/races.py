"""Many at once: one id, one lock, one link, one folder.

python -m lab.faults races --processes 100 --lookups 100000 --trainings 6
"""

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path

from lab.faults.rig import TINY, faults, finish, leftovers, start
from stride.runstore import run_dir
from stride.runstore.run_dir import RunDir, list_runs
from stride.runstore.run_lock import RunInTrainingError, identity, locked
from stride.utils.durable_file import relink


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    os.environ["STRIDE_RUNS"] = str(folder / "ids")
    parts = [
        one_id(counts["processes"], folder),
        one_lock(counts["processes"], folder),
        one_link(counts["lookups"], folder),
        one_folder(counts["trainings"], folder),
    ]
    return [line for line, _ in parts], all(good for _, good in parts)


def at_once(number: int, work: Callable[[int], str], folder: Path) -> list[str]:
    """What `number` processes that begin in the same instant answer."""
    folder.mkdir(parents=True, exist_ok=True)
    moment = time.time() + 0.5
    pids = []
    for place in range(number):
        pid = os.fork()
        if not pid:
            answer = "died"
            try:
                while time.time() < moment:
                    time.sleep(0.001)
                answer = work(place)
            finally:
                (folder / str(place)).write_text(answer)
                os._exit(0)
        pids.append(pid)
    for pid in pids:
        os.waitpid(pid, 0)
    return [(folder / str(place)).read_text() for place in range(number)]


def one_id(number: int, folder: Path) -> tuple[str, bool]:
    """All want the same id at first: the same second, the same four letters."""

    def create(place: int) -> str:
        letters = iter("aaaa")
        choice, second = run_dir.secrets.choice, "20260101-000000"
        setattr(run_dir.secrets, "choice", lambda options: next(letters, "") or choice(options))  # noqa: B010
        setattr(run_dir.time, "strftime", lambda form: second)  # noqa: B010
        return RunDir.create("CartPole-v1", "ppo", 1, {"place": place}).id

    ids = at_once(number, create, folder / "created")
    owners = [json.loads((folder / "ids" / name / "config.json").read_text())["place"] for name in ids]
    whole = len(set(ids)) == number and owners == list(range(number)) and len(list_runs()) == number
    first = sum(name.endswith("-aaaa") for name in ids)
    litter = leftovers(folder / "ids")
    line = f"{number} processes that want one run id: {len(set(ids))} folders, {first} of that id, each with the "
    return f"{line}config.json of its own process, {len(litter)} leftovers", whole and first == 1 and not litter


def one_lock(number: int, folder: Path) -> tuple[str, bool]:
    """The lock of a process that died stands there; all take it over at once."""
    target = folder / "claimed"
    target.mkdir()
    (target / ".lock").write_text(json.dumps({**identity(os.getpid()), "started": 1}))

    def claim(place: int) -> str:
        try:
            with locked(target):
                patience = time.monotonic() + 60  # until all others have asked
                while len(list((folder / "claims").iterdir())) < number - 1 and time.monotonic() < patience:
                    time.sleep(0.05)
                return "owner"
        except RunInTrainingError:
            return "refused"

    answers = at_once(number, claim, folder / "claims")
    owners, refused = answers.count("owner"), answers.count("refused")
    line = f"{number} processes that take over one stale lock: {owners} owner, {refused} refused"
    return line, owners == 1 and refused == number - 1 and not (target / ".lock").exists()


def one_link(lookups: int, folder: Path) -> tuple[str, bool]:
    """Two writers point @last at one run and another without pause while it is looked up."""
    names = [run.id for run in list_runs()[:2]]
    root = folder / "ids"
    pids = []
    for _ in range(2):
        pid = os.fork()
        if not pid:
            try:
                while True:
                    for name in names:
                        relink(root / run_dir.LAST, root / name)
            finally:
                # a fork must not run on into what its parent does next
                os._exit(0)
        pids.append(pid)
    found = failed = 0
    seen = set()
    for _ in range(lookups):
        try:
            seen.add(RunDir.find("@last").id)
            found += 1
        except ValueError:
            failed += 1
    for pid in pids:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    line = f"{lookups:,} look-ups of @last under two writers: {failed} failed, {len(seen)} runs seen"
    return line, failed == 0 and found == lookups


def one_folder(trainings: int, folder: Path) -> tuple[str, bool]:
    """Whole trainings begun at once under one root, and one more that wants to resume a run in training."""
    root = folder / "trained"
    root.mkdir()
    children = [start((*TINY, f"seed={place}"), root) for place in range(trainings)]
    refusals = 0
    while not refusals:
        live = [path for path in root.glob("*/.lock") if path.parent.name != "@last"]
        if live:
            ended = finish(["--resume", live[0].parent.name, "-q"], root)
            refusals += ended.code == 2 and "is being trained by process" in ended.said
            assert ended.code == 2 or not live[0].exists(), ended.said  # it may have ended meanwhile
        time.sleep(0.01)
    codes = [child.wait().code for child in children]
    os.environ["STRIDE_RUNS"] = str(root)
    runs = list_runs()
    broken = sum(len(faults(run)) for run in runs)
    good = codes == [0] * trainings and len(runs) == trainings and not broken and not leftovers(root)
    line = f"{trainings} trainings at once: {codes.count(0)} ended well in {len(runs)} folders, {broken} broken "
    return f"{line}checkpoints; resuming one of them meanwhile was refused", good
