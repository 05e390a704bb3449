"""Damaged runs in the inspector: each in every room, beside a sound run that must be shown as before.

python -m lab.faults inspector --runs 10000        (all kinds of damage there are; fewer: drawn by chance)
"""

import os
import random
import shutil
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

from lab.faults.damaged_runs import kinds
from lab.faults.rig import TINY, finish, last_run
from lab.faults.watch import ANYTHING
from stride.inspector.compare import compare
from stride.inspector.rooms import Rooms
from stride.inspector.table import runs_table
from stride.utils.user_error import UserError

SECRET = "sesame-4711"
SLOW = 5.0  # seconds
ROOMS: dict[str, Callable[[Rooms, str, str], str]] = {
    "overview": lambda rooms, run, sound: rooms.overview(run),
    "compare": lambda rooms, run, sound: compare([rooms.runs.look_into(each) for each in (sound, run)]),
    "episode": lambda rooms, run, sound: rooms.episode(run, "best", 0, "greedy", 5),
    "videos": lambda rooms, run, sound: rooms.videos(run),
    "report": lambda rooms, run, sound: rooms.report(run),
    "model": lambda rooms, run, sound: rooms.model(run),
}


def run(counts: dict[str, int], draw: random.Random, folder: Path) -> tuple[list[str], bool]:
    ended = finish((*TINY, "video_freq_epochs=2"), folder / "runs")
    sound = last_run(folder / "runs")
    assert ended.code == 0 and sound is not None, ended.said
    os.environ["STRIDE_RUNS"] = str(sound.path.parent)
    secret = folder / "secret"
    secret.write_text(SECRET)
    rooms = Rooms(folder / "lent")
    rooms.folder.mkdir()
    for look in ROOMS.values():
        look(rooms, sound.id, sound.id)  # what is imported once takes its time here
    row = runs_table(rooms.runs.page()).partition("<tbody>")[2].partition("</tr>")[0]
    known = kinds(secret)
    names = draw.sample(sorted(known), min(counts["runs"], len(known)))
    calls, wrong, shown = 0, [], 0
    for name in names:
        damaged = sound.path.with_name("20990101-000000-damaged")  # the newest by its name
        shutil.copytree(sound.path, damaged, symlinks=True)
        known[name](damaged)
        before = tree(damaged)
        table = runs_table(rooms.runs.page())
        listed = damaged.name in table
        if row not in table or not (listed or name.startswith(("config.json missing", "checkpoints missing"))):
            wrong.append(f"{name}: the table of runs lacks a row")
        shown += "badge damaged" in table
        for room, look in ROOMS.items():
            calls += 1
            wrong += [f"{name} in {room}: {what}" for what in looked(partial(look, rooms, damaged.name, sound.id))]
        if tree(damaged) != before:
            wrong.append(f"{name}: the run was written to")
        shutil.rmtree(damaged)
    lines = [
        f"{calls} room calls: {len(names)} damaged runs x {', '.join(ROOMS)}: **{len(wrong)} wrong**: no exception but "
        "the one line, none over 5 s, nothing read or written elsewhere",
        f"{len(names)} times the table went on for all others; {shown} of these runs shown as damaged, with the reason",
    ]
    return lines + wrong[:20], not wrong


def looked(look: Callable[[], str]) -> list[str]:
    """What is wrong with a room's answer: a page, or a UserError of one line."""
    began, wrong = time.monotonic(), []
    try:
        page = look()
    except UserError as error:
        page = str(error)
        if len(page.splitlines()) != 1 or len(page) > 600:
            wrong.append(f"not one line: {page[:200]!r}")
    except ANYTHING as error:
        traceback.print_exc()
        return [f"{type(error).__name__}: {error}"[:200]]
    if SECRET in page or "<script" in page:
        wrong.append("shows what it must not")
    seconds = time.monotonic() - began
    return wrong + ([f"took {seconds:.1f} s"] if seconds > SLOW else [])


def tree(folder: Path) -> list[tuple[str, int, int]]:
    found = ((path, path.lstat()) for path in folder.rglob("*"))
    return sorted((str(path), stat.st_size, stat.st_mtime_ns) for path, stat in found)
