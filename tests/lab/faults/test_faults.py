"""Each fault script as it is called, with few counts: its faults strike, nothing is lost to them, and it says so.

docs/reliability.md holds the full counts; `make soak` takes the larger ones here.
"""

import os
import re
import runpy
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from lab.faults import fuzz, record
from lab.faults.__main__ import SCENARIOS, scenario_function
from lab.faults.fuzz import Watch
from lab.faults.rig import start

LIMIT = 900  # seconds
COUNTS = {  # the least with which a script shows something, and | more
    "audience": "--windows 1|4 --limit 0",  # what a monitor costs is measured by hand
    "circumstances": "--references 1|2 --environments 1|3 --limits 1|5 --stops 1|2 --resumes 1 --cases 1|16",
    "damage": "--flips 2|20 --cuts 2|10",
    "disk": "--levels 1|3",
    "door": "",
    "endurance": "--seconds 3|30",
    "environments": "--faults 1|8",
    "folder": "--cases 3|8 --each 2",
    "fuzz": "--commands 4|30 --ids 6|60 --words 40|300",
    "hostile": "--files 3|12",
    "hosts": "--races 2|20 --stale 1|5",
    "inspector": "--runs 3|12",
    "kill": "--trials 2|14 --groups 1",
    "leaks": "--fills 1|20",
    "monitor": "--reads 3000 --kills 4|10 --replacements 5|20 --steps 250000",
    "nan": "--runs 6|54",
    "nodes": "--kills 1|2",
    "pauses": "--trials 3|12",
    "races": "--processes 4|12 --lookups 500|2000 --trainings 2",
    "signals": "--trials 1|7 --groups 1|4",
    "trackers": "--pairs 1 --steps 2048|8192",
}
BY_HAND = ("circumstances", "nodes", "signals", "trackers")


def test_each_fault_has_its_counts_and_says_what_it_plants():
    assert [*COUNTS] == [*SCENARIOS] == sorted(SCENARIOS)
    assert all(callable(plants) and about for plants, about in map(scenario_function, SCENARIOS))


def called(name: str, words: list[str]) -> int:
    """`python -m lab.faults NAME WORDS` in this process."""
    sys.argv[1:] = [name, *words]
    with pytest.raises(SystemExit) as left:
        runpy.run_module("lab.faults", run_name="__main__", alter_sys=True)
    return int(left.value.code or 0)


def scripts():
    """Every script with the least, and with more of it by hand, as those are that take minutes."""
    for name in COUNTS:
        yield pytest.param(name, False, id=f"{name}-least", marks=[pytest.mark.soak] if name in BY_HAND else [])
        yield pytest.param(name, True, id=f"{name}-more", marks=pytest.mark.soak)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "more"), [*scripts()])
def test_nothing_is_lost_to_a_planted_fault(name, more, tmp_path):
    """Forked from a process that has trained before: a cold start is not what is tried here."""
    if name == "nodes":
        pytest.importorskip("ray", reason="pip install 'stride-rl[cluster]'")
    before = record.PAGE.read_bytes()
    words = re.sub(r"(\d+)\|(\d+)", r"\2" if more else r"\1", COUNTS[name])
    child = start(words.split(), tmp_path / "runs", main=partial(called, name))
    ended = child.wait(LIMIT)
    if "a tmpfs could not be mounted here" in ended.said and name == "disk":
        pytest.skip("mounting a small tmpfs needs root")
    counts = re.findall(r"\*\*([\d,]+) of ([\d,]+)\*\*", ended.said)
    assert ended.code == 0, ended.said[-6000:]
    assert all(right in (total, "0") and total != "0" for right, total in counts), ended.said[-6000:]
    assert record.PAGE.read_bytes() == before, "it recorded what nobody asked it to"


# ---- what the fuzzers watch


@pytest.fixture
def watch(tmp_path, monkeypatch):
    for name in ("mine", "secret", "elsewhere"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret" / "key").write_text("x")
    monkeypatch.chdir(tmp_path)
    return Watch((tmp_path / "mine",), tmp_path / "secret")


def refuse():
    print("error: no")
    return 2


@pytest.mark.parametrize(("act", "wrong"), [
    (refuse, ""),
    (lambda: 0, ""),
    (lambda: Path("mine/x").write_text(""), ""),
    (lambda: print("error: no") or print("error: twice") or 2, "2 lines"),
    (lambda: print("error: " + "x" * 300) or 2, "too long"),
    (lambda: 3, "exit code 3"),
    (lambda: [][0], "IndexError"),
    (lambda: Path("elsewhere/x").write_text("x"), "write"),
    (lambda: Path("mine/link").symlink_to("../elsewhere/x") or Path("mine/link").write_text("x"), "write"),
    (lambda: Path("mine/link").symlink_to("../secret/key") or Path("mine/link").read_text(), "read"),
    (lambda: os.rename("secret/key", "mine/key"), "os.rename"),
    (lambda: os.mkdir("elsewhere/y"), "os.mkdir"),
    (lambda: os.symlink("x", "elsewhere/y"), "os.symlink"),
    (lambda: os.system("true"), "os.system"),
    (lambda: time.sleep(600), "hangs"),
])  # fmt: skip
def test_what_should_not_be_is_seen(act, wrong, watch, monkeypatch):
    monkeypatch.setattr(fuzz, "LIMIT", 0.3 if wrong == "hangs" else 60)
    result = watch.call(act)
    assert wrong in result.wrong if wrong else result.wrong == ""
