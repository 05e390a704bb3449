"""The flags of tests/conftest.py that say in which order tests run."""

import json
from itertools import groupby
from types import SimpleNamespace

import pytest

NAMES = ["a::1", "a::2", "b::1", "c::1", "c::slow", "d::1"]


@pytest.fixture
def conftest(request):
    return request.config.pluginmanager.get_plugin(str(request.config.rootpath / "tests" / "conftest.py"))


def ordered(sort, by):
    items = [SimpleNamespace(nodeid=name, path=name[0], keywords=name.split("::")) for name in NAMES]
    sort(items, by)
    return [item.nodeid for item in items]


def test_the_file_of_the_longest_tests_begins_first(conftest):
    recorded = {"c": 2, "c slow": 3, "b": 4, "a slow": 9, "gone": 5}  # of a no slow test is among these
    assert ordered(conftest.longest_first, recorded) == ["c::1", "c::slow", "b::1", "a::1", "a::2", "d::1"]


def test_a_seed_draws_an_order_of_files_and_of_the_tests_of_each(conftest):
    orders = [ordered(conftest.shuffle, seed) for seed in range(30)]
    assert [ordered(conftest.shuffle, seed) for seed in range(30)] == orders
    assert len({order[0] for order in orders}) == len(NAMES)
    for order in orders:
        assert sorted(order) == NAMES and len([*groupby(order, lambda name: name[0])]) == 4


def test_durations_of_files_that_ran_replace_those_recorded(conftest, tmp_path, monkeypatch):
    monkeypatch.setattr(conftest, "DURATIONS", tmp_path / "durations.json")
    conftest.DURATIONS.write_text(json.dumps({"tests/test_docs.py": 7, "tests/test_order.py": 8, "tests/gone.py": 9}))
    recorder = conftest.Recorder()
    for seconds, marks in ((1.2, {}), (2.4, {}), (5.0, {"slow": 1})):
        report = SimpleNamespace(nodeid="tests/test_docs.py::test_x", keywords=marks, duration=seconds)
        recorder.pytest_runtest_logreport(report)
    recorder.pytest_sessionfinish()
    durations = json.loads(conftest.DURATIONS.read_text())
    assert durations == {"tests/test_docs.py": 4, "tests/test_docs.py slow": 5, "tests/test_order.py": 8}
