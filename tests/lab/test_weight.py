"""No room is heavier than lab/weight.toml says; a room that grows is noticed, and a raise names what it is for."""

import re

from lab.weight import FILE, Weight, complaints, new_limits, read_limits, room_of, text_of, weigh
from stride.utils.places import ROOT

LIMIT = {"agents": Weight(100, 1000)}


def test_no_room_is_above_its_limits_and_a_raise_names_a_row_of_the_mission():
    assert [*complaints(weigh(ROOT), read_limits())] == []
    rows = [limit.row for limit in read_limits().values()]
    assert rows and all(re.fullmatch(r"([A-Z]+\d+( [A-Z]+\d+)*)?", row) for row in rows)


WRONG = [
    ({"agents": Weight(101, 1000)}, "agents: 101 lines"), ({"agents": Weight(100, 1001)}, "above 100 and 1,000"),
    ({"agents": Weight(100, 1000), "hall": Weight(1, 1)}, "hall: no limits"), ({}, "agents: there is no such room"),
]  # fmt: skip


def test_what_is_wrong_is_one_line_and_a_file_is_in_one_room():
    for weights, complaint in WRONG:
        [line] = complaints(weights, LIMIT)
        assert complaint in line
    rooms = {"train.py": ".", "agents/engines.py": "agents", "agents/engines/plan/dqn.py": "agents/engines"}
    rooms["tests/lab/test_weight.py"] = "tests"
    assert {path: room_of(path) for path in rooms} == rooms


def test_limits_fall_by_themselves_rise_for_a_row_and_are_read_as_they_are_written(tmp_path):
    heavier, lighter = {"agents": Weight(120, 900)}, {"agents": Weight(40, 900)}
    assert new_limits(lighter, LIMIT, "") == {"agents": Weight(50, 1000)}
    assert new_limits(heavier, LIMIT, "") == {"agents": Weight(100, 1000)}
    assert new_limits(heavier, LIMIT, "S14") == {"agents": Weight(150, 1000, "S14")}
    limits = {".": Weight(50, 500), "agents/engines": Weight(8400, 90_000, "B6 B14")}
    (tmp_path / FILE.name).write_text(text_of(limits))
    assert read_limits(tmp_path / FILE.name) == limits
