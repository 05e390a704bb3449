"""`runs cleanup` deletes what it has shown and nothing else: what a run is, what stays, what happens meanwhile."""

import json
import os
import shutil
import sqlite3
import time
from contextlib import ExitStack
from unittest.mock import Mock

import pytest

from stride.commands import runs, train
from stride.report.group import read_group
from stride.report.group_page import report, write_group
from stride.report.ledger import cleanup
from stride.runstore import run_index, seed_group
from stride.runstore.run_brief import Labels, write_labels
from stride.runstore.run_dir import RunDir
from stride.runstore.run_lock import BOOT_ID_FILE, locked
from stride.runstore.seed_group import GroupPlan, SeedPart, write_plan
from stride.utils import entry
from tests.pretended_run import facts, outcome
from tests.tiny_runs import tiny_run

SOLVED, FAILED = outcome(480.0), outcome(480.0) | {"solved": False}
UNTESTED = FAILED | {"test_mean": None}
RUN = {**facts(1), "status": "finished"}
BEST_YES = "--keep-best", "1", "--yes"


class Runs:
    """Old runs of one variant: the sixth has the best score, the second is solved and tagged."""

    def __init__(self, root):
        self.root, self.open = root, ExitStack()
        self.ids = [self.make(number) for number in range(6)]
        self.best = self.ids[5]
        self.tag(1, "good")

    def make(self, number, name="", mean=None, **more):
        run_id = name or f"2026010{number + 1}-120000-CartPole-v1-ppo-s1-abc{'defghijk'[number]}"
        mean = 10.0 * number if mean is None else mean
        (self.root / run_id / "checkpoints").mkdir(parents=True)
        self.write(run_id, facts(number, **{"status": "finished", "outcome": outcome(mean), **more}), mean)
        return run_id

    def write(self, run_id, run_facts, score):
        path = self.root / run_id
        (path / "config.json").write_text(json.dumps(run_facts))
        os.utime(path / "config.json", (1e9, 1e9))  # a run that has just begun has no lock yet
        (path / "metrics.csv").write_text("train/clock/env_steps,val/roll/ep_rew/mean\n1,nan\n500,3\n")
        (path / "checkpoints" / "best.json").write_text(json.dumps({"score": score}))

    def path(self, number, *names):
        return self.root.joinpath(self.ids[number], *names)

    def facts(self, name):
        return json.loads((self.root / name / "config.json").read_text())

    def change(self, number, score=None, **more):
        run_facts = {**self.facts(self.ids[number]), **more}
        self.write(self.ids[number], run_facts, 10.0 * number if score is None else score)

    def put(self, number, text, *names):
        self.path(number, *names).write_text(text)

    def lend_checkpoints(self, number, other):
        shutil.rmtree(self.path(other, "checkpoints"))
        self.path(other, "checkpoints").symlink_to(self.path(number, "checkpoints"))

    def tag(self, number, tag="keep", note=""):
        write_labels(self.path(number), Labels((tag,) if tag else (), note))

    def last(self, target):
        (self.root / "@last").symlink_to(target)

    def train(self, number, **more):
        """It is under way, in this process."""
        self.change(number, **more)
        self.open.enter_context(locked(self.path(number)))

    def hold(self, number, **claim):
        """Its lock names another process."""
        self.put(number, json.dumps({"pid": 1, "boot": "another", "started": 5, **claim}), ".lock")

    def trial(self, number, over=False, status="finished"):
        """It is one of a search."""
        folder = self.root / "sweeps" / "mine"
        folder.mkdir(parents=True)
        for when, name in enumerate(("journal.log", "result.json")[: 1 + over]):
            (folder / name).touch()
            os.utime(folder / name, (50 + when, 50 + when))
        self.change(number, status=status, group="sweep-mine")

    def vanish(self, number):
        self.path(number).rename(self.root.parent / "moved")

    def relink(self, number):
        self.vanish(number)
        self.path(number).symlink_to(self.root.parent / "moved")

    def equals(self, first, second):
        """Two of one score, better than all others, the second the newer."""
        self.change(0, 99.0, **first)
        self.change(4, 99.0, **second)
        return self

    def elsewhere(self):
        folder = self.root.parent / "elsewhere"
        folder.mkdir()
        (folder / "thesis.txt").write_text("years")
        return folder

    def links(self):
        """A folder that is a link to a run elsewhere, and links in a run that goes."""
        there = self.elsewhere()
        shutil.copytree(self.path(0), there / "run")
        (self.root / "20260101-000000-linked-abcd").symlink_to(there / "run")
        self.path(0, "notes").symlink_to(there)

    def foreign(self, name, config, *folders):
        for folder in ("", *folders):
            (self.root / name / folder).mkdir()
        (self.root / name / "config.json").write_text(json.dumps(config))
        (self.root / name / "notes.txt").write_text("years")


@pytest.fixture
def made(root):
    made = Runs(root)
    with made.open:
        yield made


@pytest.fixture
def answered(monkeypatch):
    """Have something happen when it is asked, and answer."""

    def ask(happens, answer="y"):
        def reply(question):
            happens()
            return answer

        monkeypatch.setattr("builtins.input", reply if answer is not None else Mock(side_effect=EOFError))

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    return ask


@pytest.fixture
def cleaned(capsys):
    def clean(*words):
        code = entry.ended(runs.main, ["cleanup", *(words or ("--keep-best", "1"))])
        return code, *capsys.readouterr()

    return clean


def left(root):
    names = [path.name for path in root.iterdir() if path.is_dir() and not path.is_symlink()]
    return {*names} - {"removed", "sweeps", "groups"}


def no_trace(root):
    return not [path for path in root.iterdir() if path.name.startswith(".")]


DEAD = {"boot": BOOT_ID_FILE.read_text().strip(), "pid": 2**22 + 5}  # the lock of a process that is gone
# what is done before, and which run or folder stays beside the best one
CASES = {
    "tagged": (lambda made: made.tag(2), 2),
    "the last": (lambda made: made.last(made.ids[3]), 3),
    "the link to the last leads nowhere": (lambda made: made.last("../.."), None),
    "in training": (lambda made: made.train(2, status="running"), 2),
    "a lock of a process that is gone": (lambda made: made.hold(2, **DEAD), None),
    "running and dead": (lambda made: made.change(2, status="running"), None),
    "in training on another machine": (lambda made: (made.change(2, status="running"), made.hold(2)), 2),
    "failed": (lambda made: made.change(2, status="failed", failure="no"), None),
    "paused": (lambda made: made.change(2, status="paused"), 2),
    "a trial that waits": (lambda made: made.trial(2, status="paused"), 2),
    "a finished trial of a search under way": (lambda made: made.trial(2), 2),
    "a pruned trial": (lambda made: made.trial(2, over=True, status="paused"), None),
    "a search that nobody has": (lambda made: made.change(2, group="sweep-mine", status="paused"), 2),
    "a search called like a path": (lambda made: made.change(2, group="sweep-../../x", status="paused"), 2),
    "a status of a later version": (lambda made: made.change(2, status="resting"), 2),
    "no config": (lambda made: made.write(made.ids[2], {"status": "finished"}, 1), 2),
    "half a config.json": (lambda made: made.put(2, '{"status"', "config.json"), 2),
    "a damaged best.json": (lambda made: made.put(2, "{", "checkpoints", "best.json"), 2),
    "damaged labels": (lambda made: made.put(2, "[]", "labels.json"), 2),
    "a damaged metrics.csv": (lambda made: made.put(2, "a,b\n1,2\n", "metrics.csv"), 2),
    "no checkpoints": (lambda made: shutil.rmtree(made.path(2, "checkpoints")), 2),
    "a link for checkpoints": (lambda made: made.lend_checkpoints(3, 2), 2),
    "a backup": (lambda made: made.foreign("backup", {**RUN, "outcome": outcome(999.0)}, "checkpoints"), "backup"),
    "a name with a stamp and no run": (lambda made: made.foreign("20260101-120000-x", {}), "20260101-120000-x"),
    "a name with no date": (lambda made: made.foreign("20269999-1-x", RUN, "checkpoints"), "20269999-1-x"),
    "links": (Runs.links, None),
    "the best has no score but a test": (lambda made: made.path(5, "checkpoints", "best.json").unlink(), None),
    "scores that are no numbers": (lambda made: made.change(2, float("inf")), 2),
}
# which one is the best instead
BEST = {
    "the highest score is another's": (lambda made: made.change(2, 99.0), 2),
    "equal, the newer solved": (lambda made: made.equals({"outcome": FAILED}, {"outcome": SOLVED}), 4),
    "equal, the newer tested": (lambda made: made.equals({"outcome": UNTESTED}, {"outcome": FAILED}), 4),
    "equal": (lambda made: made.equals({}, {}), 0),
    "solved before tagged": (lambda made: made.equals({"outcome": FAILED}, {"outcome": SOLVED}).tag(0, "good"), 4),
}


@pytest.mark.parametrize("case", [*CASES, *BEST])
def test_what_stays(case, made, cleaned, snapshot):
    done, stay = (CASES | BEST)[case]
    done(made)
    stay = made.ids[stay] if isinstance(stay, int) else stay
    stays = {stay} if case in BEST else {made.best, stay or made.best}
    before = left(made.root)
    run_facts = {name: made.facts(name) for name in before - stays}
    code, out, err = cleaned("--keep-best", "1", "--dry-run")
    assert code == 0 and left(made.root) == before, err
    assert all((name in out) == (name not in stays) for name in before)
    assert out.splitlines()[-1].partition("; ")[2] == snapshot
    code, out, err = cleaned(*BEST_YES)
    assert code == 0 and left(made.root) == stays, err
    removed = {path.stem: json.loads(path.read_text()) for path in (made.root / "removed").iterdir()}
    assert {name: record["facts"] for name, record in removed.items()} == run_facts
    assert all(record["metrics"]["val/roll/ep_rew/mean"] == 3 for record in removed.values())
    if case == "links":
        assert (made.root.parent / "elsewhere" / "thesis.txt").read_text() == "years"
        assert (made.root / "20260101-000000-linked-abcd" / "config.json").exists()


ASKED = {  # and who stays
    "--keep-best 0": [], "--keep-best 2": [4, 5], "--keep-best 99": range(6), "--keep-recent 9999w": range(6),
    "--keep-recent 0h": [], "--keep-best 1 --filter seed=1-3": [0, 3, 4, 5],
    "--keep-best 1 --filter tag=good": range(6), "--keep-best 0 --filter max_timesteps>1": [],
}  # fmt: skip


@pytest.mark.parametrize("words", ASKED)
def test_what_is_asked_for(words, made, cleaned):
    code, _, err = cleaned(*words.split(), "--yes")
    assert code == 0 and left(made.root) == {made.ids[number] for number in ASKED[words]}, err


@pytest.mark.parametrize("answer", ["n", "", "yess", "no", None])
def test_only_a_yes_deletes(answer, made, answered, cleaned):
    answered(lambda: None, answer)
    before = left(made.root)
    code, _, err = cleaned()
    assert (code, err) == (2, "error: nothing was deleted\n") and left(made.root) == before


def test_a_link_in_the_place_of_the_records_is_refused(made, cleaned):
    there = made.elsewhere()
    (made.root / "removed").symlink_to(there)
    code, _, err = cleaned(*BEST_YES)
    assert code == 0 and err.count("stays: ") == 5 and len(left(made.root)) == 6
    assert [path.name for path in there.iterdir()] == ["thesis.txt"]


def test_no_index_is_believed(made, cleaned, monkeypatch):
    """Edited in place, as an editor does, with or without what an index says otherwise."""
    monkeypatch.setattr(run_index, "REST_NS", -1)
    for number in range(6, 60):
        made.make(0, f"20250101-1200{number:02d}-x-abcd", -1.0)
    made.tag(2, "good")
    assert entry.ended(runs.main, ["list"]) == 0 and (made.root / ".index.sqlite").exists()
    made.put(2, '{"tags": ["keep"], "note": ""}', "labels.json")
    made.put(3, '{"score": 999.0}', "checkpoints", "best.json")
    with sqlite3.connect(made.root / ".index.sqlite") as file:
        file.execute("UPDATE runs SET tags = 'none' WHERE tags = 'good'")
    code, _, err = cleaned(*BEST_YES)
    assert code == 0 and left(made.root) == {made.ids[2], made.ids[3]}, err


# what happens to a run while it is asked, after which it stays, or is away
EVENTS = {
    "tagged": Runs.tag,
    "noted": lambda made, number: made.tag(number, "", "look at this"),
    "begun": Runs.train,
    "begun elsewhere": Runs.hold,
    "finished": lambda made, number: made.change(number, 5.5, outcome=outcome(7.0)),
    "better": lambda made, number: made.change(number, 999.0, outcome=outcome(999.0)),
    "paused": lambda made, number: made.change(number, status="paused"),
    "a row more": lambda made, number: made.path(number, "metrics.csv").open("a").write("900,4\n"),
    "of a search": Runs.trial,
    "damaged": lambda made, number: made.put(number, "{", "config.json"),
    "last": lambda made, number: made.last(made.ids[number]),
    "away": Runs.vanish,
    "linked": Runs.relink,
}


@pytest.mark.parametrize("name", EVENTS)
def test_what_happens_while_it_is_asked_is_heeded(name, made, answered, cleaned):
    """What was shown to go has changed and stays, or is away, where nothing is touched; the others go."""
    run, moved = made.path(2), made.root.parent / "moved"
    answered(lambda: EVENTS[name](made, 2))
    code, _, err = cleaned()
    assert code == 0, err
    assert left(made.root) == {made.best} | ({run.name} if not moved.exists() else set())
    assert moved.exists() == (name in ("away", "linked")) and run.is_symlink() == (name == "linked")
    records = {path.stem for path in made.root.glob("removed/*.json")}
    assert records == {*made.ids} - {made.best, run.name} and no_trace(made.root)


def test_a_tag_in_the_last_instant_is_heeded(made, monkeypatch, cleaned):
    """After the run was looked at, while its record is written."""
    real = cleanup.keep

    def keep(root, folder):
        real(root, folder)
        if folder.name == made.ids[2]:
            made.tag(2)

    monkeypatch.setattr(cleanup, "keep", keep)
    code, out, err = cleaned(*BEST_YES)
    assert code == 0 and left(made.root) == {made.ids[2], made.best} and "1 changed meanwhile" in out
    assert f"{made.ids[2]} has changed since it was listed" in err and no_trace(made.root)


def test_a_fork_outlives_its_parent(cleaned, capsys):
    """It has a copy of what it began from: checkpoint, replay memory, rows."""
    parent = tiny_run("CartPole-v1:ppo", "--pause-at", "16")
    assert train.command(["--resume", parent.id, "--fork", "--seed", "7", "--pause-at", "32", "-q"]) == 0
    fork = RunDir.find("@last")
    parent.config_json.write_text(json.dumps({**parent.facts(), "status": "finished"}))
    assert cleaned("--keep-best", "0", "--yes")[0] == 0
    assert not parent.path.exists() and fork.path.exists()
    assert train.command(["--resume", fork.id, "-q"]) == 0
    assert fork.facts()["status"] == "finished" and fork.facts()["parent"]["run"] == parent.id
    assert entry.ended(runs.main, ["show", fork.id]) == 0 and parent.id in capsys.readouterr().out


def test_the_report_of_a_group_outlives_its_runs(made, cleaned):
    group, keys = "mine", []
    for number in range(3):
        made.change(number, group=group)
        config = made.facts(made.ids[number])["config"]
        seed_group.claim(group, config, made.ids[number])
        keys.append(seed_group.key_of(config))
    write_plan(group, GroupPlan((SeedPart(("CartPole-v1:ppo",), (0, 1, 2), tuple(keys)),)))
    write_group(read_group(group))
    pages = [read_group(group).folder / name for name in ("report.md", "runs.csv")]
    before = [page.read_text() for page in pages]
    assert cleaned(*BEST_YES)[0] == 0
    assert [page.read_text() for page in pages] == before
    gone = read_group(group)
    fates = [(seed.verdict, seed.mean, seed.run) for seed in gone.seeds]
    assert fates == [("not solved", 10.0 * n, None) for n in range(3)]
    assert gone.tested == [0.0, 10.0, 20.0] and "3 seeds" in report(gone)
    (made.root / "removed" / f"{made.ids[0]}.json").unlink()
    assert [seed.verdict for seed in read_group(group).seeds] == ["deleted", "not solved", "not solved"]


def test_sizes_of_what_goes_while_it_is_counted(made, monkeypatch, cleaned):
    real = os.lstat
    monkeypatch.setattr(os, "lstat", lambda path: real("/nowhere" if str(path).endswith("metrics.csv") else path))
    assert cleaned("--keep-best", "1", "--dry-run")[0] == 0


def test_a_run_that_begins_in_the_second_of_the_question_stays(made, answered, cleaned):
    name = time.strftime("%Y%m%d-%H%M%S-CartPole-v1-ppo-s1-zzzz")
    answered(lambda: made.make(0, name, 0.0, status="running"))
    assert cleaned()[0] == 0
    assert left(made.root) == {made.best, name}
