"""The benchmark of environments: what it writes, not how fast anything is."""

import json
from xml.etree import ElementTree

import pytest

from lab.bench.envs import OURS, main, picture
from stride.utils.user_error import UserError


def test_figures_and_plot_have_every_contender_that_is_there(tmp_path, capsys):
    figures, plot = tmp_path / "figures.json", tmp_path / "plot.svg"
    asked = [
        "--env",
        "CartPole-v1",
        "--seconds",
        "0.001",
        "--repeats",
        "1",
        "--json",
        str(figures),
        "--plot",
        str(plot),
    ]
    assert main(asked) == 0
    rows = json.loads(figures.read_text())["steps_per_second"]["CartPole-v1"]
    assert list(rows) == ["16", "256", "4096"]
    for row in rows.values():
        assert {*OURS, "gymnasium native", "gymnasium sync", "memory limit"} <= set(row)
        assert all(rate > 0 for rate in row.values())
    text = "".join(ElementTree.parse(plot).getroot().itertext())
    assert all(name in text for name in (OURS[0], OURS[-1], "gymnasium sync", "CartPole-v1, 4,096"))
    assert "gymnasium native" in capsys.readouterr().out


def test_many_worlds_have_a_line_each_where_the_slow_peer_was_timed_last():
    row = dict.fromkeys(OURS, 9e7)
    rows = {16: {**row, "gymnasium sync": 1e5}, 256: {**row, "gymnasium sync": 3e4}, 4096: row}
    text = "".join(ElementTree.fromstring(picture({"Taxi-v4": rows, "Bandit-v0": rows})).itertext())
    assert all(f"{name}, 256" in text for name in ("Taxi-v4", "Bandit-v0"))
    assert text.count("3,000x") == 2


def test_an_unknown_id_is_one_line():
    with pytest.raises(UserError, match="'CartPol'; did you mean CartPole-v1"):
        main(["--env", "CartPol"])
