"""The timing of exported files: what is measured and where it is written, not how fast anything is."""

import json

import pytest

from lab.bench import export
from lab.bench.export import FIGURES, PAGE, POLICIES, Row, main, with_table
from stride.utils.user_error import UserError


def test_the_page_shows_the_figures_that_were_recorded():
    rows = [Row(**row) for row in json.loads(FIGURES.read_text())["rows"]]
    assert {row.policy for row in rows} == {*POLICIES} and all(row.observations == 1000 for row in rows)
    assert all(row.worst <= 1e-5 and {*row.ms} == {"onnx", "torch"} for row in rows)
    assert with_table(PAGE.read_text(), rows) == PAGE.read_text()


def test_a_kind_that_was_not_measured_is_a_gap_and_the_rest_of_the_page_stays():
    row = Row("LSTM", "CartPole-v1:ppo_lstm", 0.25, {"torch": 0.5}, 1.2e-7, 1000)
    page = with_table("before\n<!-- timing -->\nold\n<!-- /timing -->\nafter\n", [row])
    lines = page.splitlines()
    assert lines[:2] == ["before", "<!-- timing -->"] and lines[-2:] == ["<!-- /timing -->", "after"]
    assert lines[4] == "| LSTM | CartPole-v1:ppo_lstm |  | 0.500 ms | 0.250 ms | 1.2e-07 |"
    with pytest.raises(UserError, match="no place for the table"):
        with_table("before", [row])


def test_the_table_and_its_figures_are_recorded(tmp_path, monkeypatch):
    page, figures = tmp_path / "page.md", tmp_path / "figures.json"
    page.write_text("<!-- timing -->\n<!-- /timing -->\n")
    monkeypatch.setattr(export, "PAGE", page)
    monkeypatch.setattr(export, "FIGURES", figures)
    export.record([Row("SAC", "X-v0:x", 0.75, {"onnx": 0.75}, 1e-7, 1000)])
    assert [(row["policy"], row["torch_ms"]) for row in json.loads(figures.read_text())["rows"]] == [("SAC", 0.75)]
    assert page.read_text().count("0.750 ms |") == 2


@pytest.mark.slow
def test_a_policy_is_verified_and_timed(capsys, monkeypatch, tmp_path):
    pytest.importorskip("onnxruntime", reason="needs pip install 'stride-rl[export]'")
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    monkeypatch.setattr(export, "POLICIES", {"MLP, torques": POLICIES["MLP, torques"]})
    monkeypatch.setattr(export, "OBSERVATIONS", 30)
    monkeypatch.setattr(export, "TURNS", 1)
    assert main([]) == 0
    said = capsys.readouterr().out.splitlines()[-1]
    assert [word for word in said.split() if word in ("onnx", "torch")] == ["onnx", "torch", "torch"]
    assert "apart" in said and not [*tmp_path.iterdir()]  # nobody's @last moves
