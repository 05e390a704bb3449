"""`runs cleanup` deletes what it has shown and nothing else: what a run is, what stays, what happens meanwhile.

STRIDE_RACES=200 has so many things happen between the question and the deletion."""

import json
import os
import random
import shutil
import sqlite3
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from stride.commands import runs, train
from stride.report.group import read_group
from stride.report.group_page import report, write_group
from stride.report.ledger import cleanup
from stride.runstore import run_index, seed_group
from stride.runstore.run_brief import Labels, write_labels
from stride.runstore.run_dir import RunDir
from stride.runstore.run_lock import BOOT, locked
from stride.runstore.seed_group import GroupPlan, SeedPart, write_plan
from stride.utils import entry
from tests.pretended_run import facts, outcome
from tests.tiny_runs import tiny_run

RACES = int(os.environ.get("STRIDE_RACES", "20"))
ENDED = {"status": "finished"}


class Runs:
    """Old runs of one variant: the sixth has the best score, the second is solved and tagged."""

    def __init__(self, root):
        self.root, self.open = root, ExitStack()
        self.ids = [self.make(number) for number in range(6)]
        self.best = self.ids[5]
        write_labels(self.path(1), Labels(("good",), ""))

    def make(self, number, name="", mean=None, score="", **more):
        run_id = name or f"2026010{number + 1}-120000-CartPole-v1-ppo-s1-abc{'defghijk'[number]}"
        mean = 10.0 * number if mean is None else mean
        told = facts(number, **{**ENDED, "outcome": outcome(mean), **more})
        (self.root / run_id / "checkpoints").mkdir(parents=True)
        self.write(run_id, told, mean if score == "" else score)
        return run_id

    def write(self, run_id, told, score):
        path = self.root / run_id
        (path / "config.json").write_text(json.dumps(told))
        os.utime(path / "config.json", (1e9, 1e9))  # a run that has just begun has no lock yet
        (path / "metrics.csv").write_text("train/clock/env_steps,val/roll/ep_rew/mean\n1,nan\n500,3\n")
        if score is not None:
            (path / "checkpoints" / "best.json").write_text(json.dumps({"score": score}))

    def change(self, number, score="", **more):
        told = json.loads((self.path(number) / "config.json").read_text())
        self.write(self.ids[number], {**told, **more}, score if score != "" else 10.0 * number)

    def path(self, number):
        return self.root / self.ids[number]

    def tag(self, number, tag="keep"):
        write_labels(self.path(number), Labels((tag,), ""))


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    found = Runs(tmp_path / "runs")
    with found.open:
        yield found


@pytest.fixture
def answered(monkeypatch):
    """Who is asked, and what happens before the answer."""

    class Terminal:
        def isatty(self):
            return True

    def ask(happens, answer="y"):
        def told(question):
            happens()
            if answer is None:
                raise EOFError
            return answer

        monkeypatch.setattr("builtins.input", told)

    monkeypatch.setattr("sys.stdin", Terminal())
    ask(lambda: None)
    return ask


def cleaned(capsys, *words):
    code = entry.ended(runs.main, ["cleanup", *(words or ("--keep-best", "1"))])
    return code, *capsys.readouterr()


def left(root):
    found = [path.name for path in root.iterdir() if path.is_dir() and not path.is_symlink()]
    return {*found} - {"removed", "sweeps", "groups"}


def search(made, over):
    folder = made.root / "sweeps" / "mine"
    folder.mkdir(parents=True)
    for name, when in (("result.json", 100 if over else None), ("journal.log", 50)):
        if when:
            (folder / name).write_text("")
            os.utime(folder / name, (when, when))


def equals(made, first, second):
    """Two of one score, better than all others, the second the newer."""
    made.change(0, 99.0, **first)
    made.change(4, 99.0, **second)
    return made


def elsewhere(made):
    (made.root.parent / "elsewhere").mkdir()
    (made.root.parent / "elsewhere" / "thesis.txt").write_text("years")
    return made.root.parent / "elsewhere"


def linked(made):
    """A folder that is a link to a run elsewhere, and links in a run that goes."""
    there = elsewhere(made)
    shutil.copytree(made.path(0), there / "run")
    (made.root / "20260101-000000-linked-abcd").symlink_to(there / "run")
    (made.path(0) / "notes").symlink_to(there)


def foreign(made, name, config, *folders):
    (made.root / name).mkdir()
    for folder in folders:
        (made.root / name / folder).mkdir()
    (made.root / name / "config.json").write_text(json.dumps(config))
    (made.root / name / "notes.txt").write_text("years")


def held(made, number, **claim):
    (made.path(number) / ".lock").write_text(json.dumps({"pid": 1, "boot": "another", "started": 5, **claim}))


SOLVED, FAILED = outcome(480.0), outcome(480.0) | {"solved": False}
UNTESTED = outcome(480.0) | {"solved": False, "test_mean": None}
RUN = {**facts(1), **ENDED}
# what is done before, and which runs stay beside the best one, or names of folders
CASES = {
    "nothing is done": (lambda made: None, []),
    "tagged": (lambda made: made.tag(2), [2]),
    "another tag": (lambda made: made.tag(2, "kept"), []),
    "the last": (lambda made: (made.root / "@last").symlink_to(made.ids[3]), [3]),
    "the link to the last leads nowhere": (lambda made: (made.root / "@last").symlink_to("../.."), []),
    "in training": (
        lambda made: (made.change(2, status="running"), made.open.enter_context(locked(made.path(2)))),
        [2],
    ),
    "a lock of a process that is gone": (lambda made: held(made, 2, boot=BOOT.read_text().strip(), pid=2**22 + 5), []),
    "running and dead": (lambda made: made.change(2, status="running"), []),
    "in training on another machine": (lambda made: (made.change(2, status="running"), held(made, 2)), [2]),
    "interrupted": (lambda made: made.change(2, status="interrupted"), []),
    "failed": (lambda made: made.change(2, status="failed", failure="no"), []),
    "paused": (lambda made: made.change(2, status="paused"), [2]),
    "paused in a group": (lambda made: made.change(2, status="paused", group="mine"), [2]),
    "a trial that waits": (
        lambda made: (search(made, False), made.change(2, status="paused", group="sweep-mine")),
        [2],
    ),
    "a trial that was killed": (
        lambda made: (search(made, False), made.change(2, status="interrupted", group="sweep-mine")),
        [2],
    ),
    "a finished trial of a search under way": (
        lambda made: (search(made, False), made.change(2, group="sweep-mine")),
        [2],
    ),
    "a pruned trial": (lambda made: (search(made, True), made.change(2, status="paused", group="sweep-mine")), []),
    "a search that nobody has": (lambda made: made.change(2, group="sweep-mine", status="paused"), [2]),
    "a search called like a path": (lambda made: made.change(2, group="sweep-../../x", status="paused"), [2]),
    "a status of a later version": (lambda made: made.change(2, status="resting"), [2]),
    "no status": (lambda made: made.write(made.ids[2], {k: v for k, v in RUN.items() if k != "status"}, 1), [2]),
    "no config": (lambda made: made.write(made.ids[2], {k: v for k, v in RUN.items() if k != "config"}, 1), [2]),
    "an empty config": (lambda made: made.change(2, config={}), [2]),
    "nothing said": (lambda made: made.write(made.ids[2], {}, 1), [2]),
    "half a config.json": (lambda made: (made.path(2) / "config.json").write_text('{"status"'), [2]),
    "no config.json": (lambda made: (made.path(2) / "config.json").unlink(), [2]),
    "a link for config.json": (
        lambda made: (
            (made.path(2) / "config.json").unlink(),
            (made.path(2) / "config.json").symlink_to("metrics.csv"),
        ),
        [2],
    ),
    "a damaged best.json": (lambda made: (made.path(2) / "checkpoints/best.json").write_text("{"), [2]),
    "damaged labels": (lambda made: (made.path(2) / "labels.json").write_text("[]"), [2]),
    "a damaged metrics.csv": (lambda made: (made.path(2) / "metrics.csv").write_text("a,b\n1,2\n"), [2]),
    "no checkpoints": (lambda made: shutil.rmtree(made.path(2) / "checkpoints"), [2]),
    "a link for checkpoints": (
        lambda made: (shutil.rmtree(made.path(2) / "checkpoints"), (made.path(2) / "checkpoints").symlink_to("..")),
        [2],
    ),
    "notes with a config": (lambda made: foreign(made, "mynotes", {}), ["mynotes"]),
    "a backup": (lambda made: foreign(made, "backup", RUN, "checkpoints"), ["backup"]),
    "a name with a stamp and no run": (
        lambda made: foreign(made, "20260101-120000-notes", {}),
        ["20260101-120000-notes"],
    ),
    "a name with no date": (
        lambda made: foreign(made, "20269999-120000-x-abcd", RUN, "checkpoints"),
        ["20269999-120000-x-abcd"],
    ),
    "a model of others": (
        lambda made: foreign(made, "bert", {"config": {"layers": 12}, "status": "finished"}, "checkpoints"),
        ["bert"],
    ),
    "links": (linked, []),
    "a better score that is damaged": (
        lambda made: foreign(made, "mine", {**RUN, "outcome": outcome(999.0)}, "checkpoints"),
        ["mine"],
    ),
    "the best has no score but a test": (lambda made: (made.path(5) / "checkpoints/best.json").unlink(), []),
    "scores that are no numbers": (lambda made: made.change(2, float("inf")), [2]),
    "the highest score is another's": (lambda made: made.change(2, 99.0), "2 instead of the best"),
    "equal, one solved": (lambda made: equals(made, {"outcome": SOLVED}, {"outcome": FAILED}), "0 instead of the best"),
    "equal, the newer solved": (
        lambda made: equals(made, {"outcome": FAILED}, {"outcome": SOLVED}),
        "4 instead of the best",
    ),
    "equal, the newer tested": (
        lambda made: equals(made, {"outcome": UNTESTED}, {"outcome": FAILED}),
        "4 instead of the best",
    ),
    "equal, the newer dead": (lambda made: equals(made, {}, {"status": "running"}), "0 instead of the best"),
    "equal, the newer tagged": (lambda made: equals(made, {}, {}).tag(4, "good"), "4 instead of the best"),
    "equal, the older tagged": (lambda made: equals(made, {}, {}).tag(0, "good"), "0 instead of the best"),
    "equal": (lambda made: equals(made, {}, {}), "0 instead of the best"),
    "equal, solved before tagged": (
        lambda made: equals(made, {"outcome": FAILED}, {"outcome": SOLVED}).tag(0, "good"),
        "4 instead of the best",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_stays(case, made, capsys):
    done, expected = CASES[case]
    done(made)
    best = made.best
    if isinstance(expected, str):
        best = made.ids[int(expected[0])]
        expected = []
    stays = {best, *(made.ids[each] if isinstance(each, int) else each for each in expected)}
    before = left(made.root)
    code, said, wrong = cleaned(capsys, "--keep-best", "1", "--dry-run")
    assert code == 0 and left(made.root) == before, wrong
    assert all((name in said) == (name not in stays) for name in before)
    assert f"; {len(stays):,} stay: " in said
    code, said, wrong = cleaned(capsys, "--keep-best", "1", "--yes")
    assert code == 0 and left(made.root) == stays, wrong
    assert f"{len(stays):,} stay: " in said
    gone = {path.stem for path in (made.root / "removed").iterdir()}
    assert gone == before - stays
    if case == "links":
        assert (made.root.parent / "elsewhere" / "thesis.txt").read_text() == "years"
        assert (made.root / "20260101-000000-linked-abcd" / "config.json").exists()


@pytest.mark.parametrize(
    ("words", "stays"),
    [
        (("--keep-best", "0"), []),
        (("--keep-best", "2"), [4, 5]),
        (("--keep-best", "99"), range(6)),
        (("--keep-recent", "9999w"), range(6)),
        (("--keep-recent", "0h"), []),
        (("--keep-best", "1", "--filter", "seed=1-3"), [0, 3, 4, 5]),
        (("--keep-best", "1", "--filter", "tag=good"), range(6)),
        (("--keep-best", "0", "--filter", "max_timesteps>1"), []),
    ],
)
def test_what_is_asked_for(words, stays, made, capsys):
    code, _, wrong = cleaned(capsys, *words, "--yes")
    assert code == 0 and left(made.root) == {made.ids[each] for each in stays}, wrong


@pytest.mark.parametrize("answer", ["n", "", "yess", "no", None])
def test_only_a_yes_deletes(answer, made, answered, capsys):
    answered(lambda: None, answer)
    before = left(made.root)
    code, _, wrong = cleaned(capsys)
    assert (code, wrong) == (2, "error: nothing was deleted\n") and left(made.root) == before


def test_folders_that_are_left_alone_are_counted(made, capsys):
    foreign(made, "mynotes", {})
    foreign(made, "backup", {}, "checkpoints")
    (made.path(0) / "config.json").write_text("{")
    made.tag(1)
    assert "6 runs" not in cleaned(capsys, "--keep-best", "1", "--dry-run")[1]
    said = cleaned(capsys, "--keep-best", "1", "--dry-run")[1].splitlines()[-1]
    assert said.startswith("would go: 3 runs, ")
    for reason in ("2 without a run's name", "1 damaged", "1 tagged keep", "1 among the best"):
        assert reason in said


def test_a_link_in_the_place_of_the_records_is_refused(made, capsys):
    there = elsewhere(made)
    (made.root / "removed").symlink_to(there)
    code, _, wrong = cleaned(capsys, "--keep-best", "1", "--yes")
    assert code == 0 and wrong.count("stays: ") == 5 and len(left(made.root)) == 6
    assert [path.name for path in there.iterdir()] == ["thesis.txt"]


def test_no_index_is_believed(made, capsys, monkeypatch):
    """Edited in place, as an editor does, with or without what an index says otherwise."""
    monkeypatch.setattr(run_index, "SETTLED", -1)
    for number in range(6, 60):
        made.make(0, f"20250101-1200{number:02d}-x-abcd", -1.0)
    made.tag(2, "good")
    assert entry.ended(runs.main, ["list"]) == 0 and (made.root / ".index.sqlite").exists()
    (made.path(2) / "labels.json").write_text('{"tags": ["keep"], "note": ""}')
    (made.path(3) / "checkpoints" / "best.json").write_text('{"score": 999.0}')
    with sqlite3.connect(made.root / ".index.sqlite") as file:
        file.execute("UPDATE runs SET tags = 'none' WHERE tags = 'good'")
    code, _, wrong = cleaned(capsys, "--keep-best", "1", "--yes")
    assert code == 0 and left(made.root) == {made.ids[2], made.ids[3]}, wrong


def begins(made, number):
    made.open.enter_context(locked(made.path(number)))


def vanishes(made, number):
    made.path(number).rename(made.root.parent / "moved")


# what happens to a run while it is asked, of which each stays, or is away
EVENTS = {
    "tagged": lambda made, number: made.tag(number),
    "labelled": lambda made, number: made.tag(number, "fine"),
    "noted": lambda made, number: write_labels(made.path(number), Labels((), "look at this")),
    "labelled in place": lambda made, number: (made.path(number) / "labels.json").write_text(
        '{"tags": ["keep"], "note": ""}'
    ),
    "begun": begins,
    "begun elsewhere": lambda made, number: held(made, number),
    "finished": lambda made, number: made.change(number, 5.5, outcome=outcome(7.0)),
    "better": lambda made, number: made.change(number, 999.0, outcome=outcome(999.0)),
    "paused": lambda made, number: made.change(number, status="paused"),
    "a row more": lambda made, number: (made.path(number) / "metrics.csv").open("a").write("900,4\n"),
    "of a search": lambda made, number: (search(made, False), made.change(number, group="sweep-mine")),
    "damaged": lambda made, number: (made.path(number) / "config.json").write_text("{"),
    "last": lambda made, number: (made.root / "@last").symlink_to(made.ids[number]),
    "away": vanishes,
    "linked": lambda made, number: (vanishes(made, number), made.path(number).symlink_to(made.root.parent / "moved")),
}


@pytest.mark.parametrize("number", range(RACES))
def test_what_happens_while_it_is_asked_is_heeded(number, made, answered, capsys):
    draw = random.Random(number)
    best = draw.choice((0, 1, 1, 2))
    happened = {}

    def happens():
        for place in draw.sample(range(6), draw.choice((1, 1, 2))):
            free = [name for name in EVENTS if name not in happened.values()]
            happened[place] = draw.choice(
                [name for name in free if not {name, *happened.values()} >= {"away", "linked"}]
            )
            EVENTS[happened[place]](made, place)

    answered(happens)
    code, _, wrong = cleaned(capsys, "--keep-best", str(best))
    assert code == 0, wrong
    gone = {place for place, name in happened.items() if name in ("away", "linked")}
    ranked = [place for place in range(6) if place not in gone and happened.get(place) != "damaged"]
    scores = {"finished": 5.5, "better": 999.0}
    ranked.sort(key=lambda place: -scores.get(happened.get(place, ""), 10.0 * place))
    stays = {*ranked[:best], *happened, *range(6 - best, 6)} - gone  # the last were not shown
    assert left(made.root) == {made.ids[place] for place in stays}, (happened, best)
    assert not gone or (made.root.parent / "moved" / "config.json").exists()
    assert all(made.path(place).is_symlink() for place in gone if happened[place] == "linked")
    assert not [path for path in made.root.iterdir() if path.name.startswith(".")]


def test_a_tag_in_the_last_instant_is_heeded(made, monkeypatch, capsys):
    """After the run was looked at, while its record is written."""
    real = cleanup.keep

    def keep(root, folder):
        real(root, folder)
        if folder.name == made.ids[2]:
            write_labels(folder, Labels(("keep",), ""))

    monkeypatch.setattr(cleanup, "keep", keep)
    code, said, wrong = cleaned(capsys, "--keep-best", "1", "--yes")
    assert code == 0 and left(made.root) == {made.ids[2], made.best} and "1 changed meanwhile" in said
    assert f"{made.ids[2]} has changed since it was shown" in wrong
    assert not [path for path in made.root.iterdir() if path.name.startswith(".")]


def test_a_fork_outlives_its_parent(tmp_path, monkeypatch, capsys):
    """It has a copy of what it began from: checkpoint, replay memory, rows."""
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    parent = tiny_run("CartPole-v1:ppo", "--pause-at", "16")
    assert train.command(["--resume", parent.id, "--fork", "--seed", "7", "--pause-at", "32", "-q"]) == 0
    fork = RunDir.find("@last")
    told = parent.facts()
    parent.config_json.write_text(json.dumps({**told, "status": "finished"}))
    assert cleaned(capsys, "--keep-best", "0", "--yes")[0] == 0
    assert not parent.path.exists() and fork.path.exists()
    assert train.command(["--resume", fork.id, "-q"]) == 0
    assert fork.facts()["status"] == "finished" and fork.facts()["parent"]["run"] == parent.id
    assert entry.ended(runs.main, ["show", fork.id]) == 0 and parent.id in capsys.readouterr().out


def test_the_report_of_a_group_outlives_its_runs(made, capsys):
    group, keys = "mine", []
    for number in range(3):
        made.change(number, group=group)
        config = json.loads((made.path(number) / "config.json").read_text())["config"]
        seed_group.claim(group, config, made.ids[number])
        keys.append(seed_group.key_of(config))
    write_plan(group, GroupPlan((SeedPart(("CartPole-v1:ppo",), (0, 1, 2), tuple(keys)),)))
    write_group(read_group(group))
    page = Path(read_group(group).folder / "report.md")
    before, table = page.read_text(), (page.parent / "runs.csv").read_text()
    assert cleaned(capsys, "--keep-best", "1", "--yes")[0] == 0
    assert page.read_text() == before and (page.parent / "runs.csv").read_text() == table
    gone = read_group(group)
    assert [(each.verdict, each.mean, each.run) for each in gone.seeds] == [
        ("not solved", 10.0 * n, None) for n in range(3)
    ]
    assert gone.tested == [0.0, 10.0, 20.0] and "3 seeds" in report(gone)
    (made.root / "removed" / f"{made.ids[0]}.json").unlink()
    assert [each.verdict for each in read_group(group).seeds] == ["deleted", "not solved", "not solved"]


def test_sizes_of_what_goes_while_it_is_counted(made, monkeypatch, capsys):
    real = os.lstat
    monkeypatch.setattr(
        os, "lstat", lambda path, **more: real("/nowhere" if str(path).endswith("metrics.csv") else path, **more)
    )
    assert cleaned(capsys, "--keep-best", "1", "--dry-run")[0] == 0


def test_a_run_that_begins_in_the_second_of_the_question_stays(made, answered, capsys):
    name = time.strftime("%Y%m%d-%H%M%S-CartPole-v1-ppo-s1-zzzz")
    answered(lambda: made.make(0, name, 0.0, status="running"))
    assert cleaned(capsys, "--keep-best", "1")[0] == 0
    assert left(made.root) == {made.best, name}
