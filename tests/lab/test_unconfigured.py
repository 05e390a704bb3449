"""The table of environments nobody configured: a row for each seed, also where nothing could be trained."""

import json

import pytest

from lab.evidence import unconfigured
from lab.evidence.report import table
from lab.evidence.unconfigured import HEAD, TASKS, Row, main


def test_the_names_are_those_of_general_settings():
    assert len(TASKS) == 10
    assert all(words.rpartition(":")[2] in ("ppo", "dqn", "sac") for words in TASKS)


def test_the_table_has_every_row():
    first = Row("A-v0:ppo", 1, "0 faults, 1 warnings", 2048, -1.0, 3.5, "solved", 90.0)
    rows = [first, Row("B-v0:sac", 2, verdict="failed: B-v0 needs x")]
    lines = table([HEAD, *(row.cells() for row in rows)]).splitlines()
    assert lines[2:] == [
        "| A-v0:ppo | 1 | 0 faults, 1 warnings | 2,048 | -1.00 | 3.50 | solved | 1.5 |",
        "| B-v0:sac | 2 | - | 0 | - | - | failed: B-v0 needs x | 0.0 |",
    ]


@pytest.mark.slow
def test_one_that_trains_and_one_that_cannot_be_made(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(unconfigured, "TASKS", {"Acrobot-v1:reinforce": (), "no_such_module:X-v0:ppo": ()})
    monkeypatch.setattr(unconfigured, "FIGURES", tmp_path / "figures" / "rows.json")
    monkeypatch.setattr(unconfigured, "PAGE", tmp_path / "page.md")
    assert main(["--seeds", "1", "--budget", "8192", "--record"]) == 1
    good, bad = json.loads((tmp_path / "figures" / "rows.json").read_text())["rows"]
    assert good["env_steps"] == 8192 and -500 <= good["random"] < 0 and -500 <= good["trained"] < 0
    assert (
        good["found"].startswith("0 faults, ")
        and "Acrobot-v1:reinforce | 1 | 0 faults" in unconfigured.PAGE.read_text()
    )
    assert bad["verdict"].startswith("failed: ") and "no Python module 'no_such_module'" in bad["verdict"]
    monkeypatch.setattr(unconfigured, "measured", lambda *words: pytest.fail("what is recorded is kept"))
    assert main(["--seeds", "1", "--record"]) == 1
