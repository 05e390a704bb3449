"""The table of environments nobody configured: a row for each seed, also where nothing could be trained."""

import json

import pytest

from scripts.evidence import unconfigured
from scripts.evidence.unconfigured import TASKS, Row, main, table


def test_the_names_are_those_of_general_settings():
    assert len(TASKS) == 10
    assert all(words.rpartition(":")[2] in ("ppo", "dqn", "sac") for words in TASKS)


def test_the_table_has_every_row():
    rows = [Row("A-v0:ppo", 1, 2048, -1.0, 3.5, "solved", 90.0), Row("B-v0:sac", 2, verdict="failed: B-v0 needs x")]
    lines = list(table(rows))
    assert lines[2:] == [
        "| A-v0:ppo | 1 | 2,048 | -1.00 | 3.50 | solved | 1.5 |",
        "| B-v0:sac | 2 | 0 | - | - | failed: B-v0 needs x | 0.0 |",
    ]


@pytest.mark.slow
def test_one_that_trains_and_one_that_cannot_be_made(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(unconfigured, "TASKS", {"Acrobot-v1:reinforce": (), "no_such_module:X-v0:ppo": ()})
    assert main(["--seeds", "1", "--budget", "8192", "--out", str(tmp_path / "rows.json")]) == 1
    good, bad = json.loads((tmp_path / "rows.json").read_text())
    assert good["env_steps"] == 8192 and -500 <= good["random"] < 0 and -500 <= good["trained"] < 0
    assert bad["verdict"].startswith("failed: ") and "no Python module 'no_such_module'" in bad["verdict"]
