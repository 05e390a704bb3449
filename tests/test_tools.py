"""What tests are made with: words of snapshots, runs of the gallery, the order of files in tests/conftest.py."""

import json
from itertools import groupby
from types import SimpleNamespace

import gallery
import pytest
from gallery import MARKER, gallery_copy, make
from snapshots import shown

# ---- a snapshot holds nothing that another machine, or the same one tomorrow, says otherwise

RUN = "20261126-110917-CartPole-v1-ppo-s12-ab3d"
WORDS = [
    (f"run {RUN} of group 20261126-110917-wxyz", "run <run> of group <group>"),
    (f"wrote /tmp/pytest-1/test_x0/{RUN}/config.json, not '/tmp/y/'", "wrote <path>/config.json, not '<path>'"),
    (f"in /tmp/x/runs/{RUN}: no run", "in <path>: no run"),
    ("left 2:26, 1:02:03 or 2d 03:04:05", "left <time>, <time> or <time>"),
    ("2026-11-26 11:09:17 and 2026-11-26T11:09+01:00 and 2026-11-26", "<date> and <date> and <date>"),
    ("torch 2.13.0+cpu, Python 3.12, 4f2a9c1", "torch <version>, Python <version>, <hash>"),
    ("4,812 steps/s, 1.2k env steps/s", "<rate> steps/s, <rate> env steps/s"),
    ("seconds=13.60 in 13.6 s, 5 ms", "seconds=<time> in <time> s, <time> ms"),
    ("next: ../.venv/bin/python ../train.py --resume @last", "next: stride train --resume @last"),
    ("/usr/bin/python3 -m stride.commands.monitor x", "stride monitor x"),
    ("\x1b[1;31mred\x1b[0m \x1b]0;title\x07\x1b[?25lscreen  \n", "red screen"),
    ("|    0:27  |", "| <time> |"),
    ("process 4711 at http://127.0.0.1:8080/x", "process <pid> at http://<address>/x"),
]
MEANT = ("31,250 / 100,000   val 243.1 / goal 475", "CartPole-v1:ppo and/or docs/events.md", "1.5 of 3 seeds, 50%")


def test_what_changes_is_a_word_and_what_is_meant_stays():
    for text, expected in [*WORDS, *zip(MEANT, MEANT, strict=True)]:
        assert shown(text) == expected


# ---- the gallery: made once however many ask, made again where it is damaged, never changed unseen


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """A recipe that writes down each time that it is followed, in this process, for a cache of this test alone."""
    times = []

    def recipe():
        times.append(1)
        gallery.RunDir.create("CartPole-v1", "ppo", 1, {"env_id": "CartPole-v1"})

    changes = {"CACHE": tmp_path / "cache", "_copies": {}, "RECIPES": {"quick": recipe}, "_make_in_a_process": make}
    for name, value in changes.items():
        monkeypatch.setattr(gallery, name, value)
    monkeypatch.setenv("STRIDE_RUNS", "")
    return times


@pytest.mark.parametrize("damage", [
    lambda folder: (folder / MARKER).write_text("{"),
    lambda folder: next((folder / "runs").glob("*/config.json")).write_text("{}"),
    lambda folder: (folder / "runs" / "more").touch(),
], ids=["half a marker", "another file", "one more file"])  # fmt: skip
def test_what_is_damaged_is_made_again(quick, tmp_path, damage):
    first = gallery_copy("quick", tmp_path / "one")
    assert gallery_copy("quick", tmp_path / "two").id == first.id and len(quick) == 1
    damage(next(gallery.CACHE.glob("*/quick")))
    assert gallery_copy("quick", tmp_path / "three").facts() == first.facts() and len(quick) == 2


def test_a_copy_may_be_changed_a_run_to_read_may_not_and_an_unused_gallery_is_removed(quick, tmp_path):
    (gallery.CACHE / "unused").mkdir(parents=True)
    gallery.os.utime(gallery.CACHE / "unused", (1, 1))
    run = gallery_copy("quick", tmp_path / "one")
    run.config_json.write_text("{}")
    reading = gallery.gallery("quick")
    assert reading.facts() == {"env_id": "CartPole-v1"} and gallery.gallery("quick") == reading
    assert not reading.config_json.stat().st_mode & 0o222
    (reading.path / "labels.json").touch()
    with pytest.raises(AssertionError, match="is to take gallery_copy"):
        gallery.gallery("quick")
    assert [path.name for path in gallery.CACHE.iterdir()] == [gallery._key()]


# ---- in which order tests run

NAMES = ["a::1", "a::2", "b::1", "c::1", "c::slow", "d::1"]


@pytest.fixture
def conftest(request):
    return request.config.pluginmanager.get_plugin(str(request.config.rootpath / "tests" / "conftest.py"))


def ordered(sort, by):
    items = [SimpleNamespace(nodeid=name, path=name[0], keywords=name.split("::")) for name in NAMES]
    sort(items, by)
    return [item.nodeid for item in items]


def test_the_file_of_the_longest_tests_begins_first_and_a_seed_draws_an_order(conftest):
    recorded = {"c": 2, "c slow": 3, "b": 4, "a slow": 9, "gone": 5}  # of a no slow test is among these
    assert ordered(conftest.longest_first, recorded) == ["c::1", "c::slow", "b::1", "a::1", "a::2", "d::1"]
    orders = [ordered(conftest.shuffle, seed) for seed in range(30)]
    assert [ordered(conftest.shuffle, seed) for seed in range(30)] == orders
    assert len({order[0] for order in orders}) == len(NAMES)
    for order in orders:
        assert sorted(order) == NAMES and len([*groupby(order, lambda name: name[0])]) == 4


def test_durations_of_files_that_ran_replace_those_recorded(conftest, tmp_path, monkeypatch):
    monkeypatch.setattr(conftest, "DURATIONS", tmp_path / "durations.json")
    conftest.DURATIONS.write_text(json.dumps({"tests/test_shards.py": 7, "tests/test_tools.py": 8, "tests/gone.py": 9}))
    recorder = conftest.Recorder()
    for seconds, marks in ((1.2, {}), (2.4, {}), (5.0, {"slow": 1})):
        report = SimpleNamespace(nodeid="tests/test_shards.py::test_x", keywords=marks, duration=seconds)
        recorder.pytest_runtest_logreport(report)
    recorder.pytest_sessionfinish()
    durations = json.loads(conftest.DURATIONS.read_text())
    assert durations == {"tests/test_shards.py": 4, "tests/test_shards.py slow": 5, "tests/test_tools.py": 8}
