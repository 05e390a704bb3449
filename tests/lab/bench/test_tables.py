"""Benchmarks of worlds, families and exported files: who is timed and what is recorded, not how fast anything is."""

import json
from xml.etree import ElementTree

import pytest

from lab.bench import envs, export, families
from lab.bench.export import FIGURES, PAGE, POLICIES, Row, with_table
from stride.envs_gym.backends import ROWS

BRIEFLY = ("--seconds", "0.001", "--repeats", "1", "--json")


def test_figures_and_plot_have_every_contender_that_is_there(tmp_path):
    figures, plot = tmp_path / "figures.json", tmp_path / "plot.svg"
    assert envs.main(["--env", "CartPole-v1", *BRIEFLY, str(figures), "--plot", str(plot)]) == 0
    rows = json.loads(figures.read_text())["steps_per_second"]["CartPole-v1"]
    assert list(rows) == ["16", "256", "4096"]
    for row in rows.values():
        assert {*envs.OURS, "gymnasium native", "gymnasium sync", "memory limit"} <= set(row)
        assert all(rate > 0 for rate in row.values())
    text = "".join(ElementTree.parse(plot).getroot().itertext())
    assert all(name in text for name in (envs.OURS[0], envs.OURS[-1], "gymnasium sync", "CartPole-v1, 4,096"))


@pytest.mark.slow
def test_every_backend_that_can_play_a_family_is_timed_beside_gymnasiums_loops(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(families, "cores", lambda: 2)
    file = tmp_path / "figures.json"
    assert envs.main(["--families", "CartPole", "--worlds", "2", *BRIEFLY, str(file)]) == 0
    result = json.loads(file.read_text())["families"]["CartPole"]
    wanted = {"fast", "gym", "gym, 2 workers", families.SYNC, families.ASYNC}
    assert wanted <= {*result["rates"]} and all(rate > 0 for rate in result["rates"].values())
    assert {row.name for row in ROWS} == {name.split(",")[0] for name in (*result["resumes"], *result["refused"])}
    assert result["auto"] == "fast" and result["resumes"]["gym"] == "exact"
    assert "auto takes fast: " in capsys.readouterr().out


def test_a_family_that_is_not_installed_is_left_out_with_its_cure(tmp_path, monkeypatch):
    monkeypatch.setattr(families, "FAMILIES", {"Moon": families.Family("Moon-v0", "no_such_moon", "moon")})
    file = tmp_path / "figures.json"
    assert envs.main(["--families", "--json", str(file)]) == 0
    assert "stride-rl[moon]" in json.loads(file.read_text())["families"]["Moon"]["left_out"]


def test_the_page_of_exports_shows_the_figures_that_were_recorded(tmp_path, monkeypatch):
    rows = [Row(**row) for row in json.loads(FIGURES.read_text())["rows"]]
    assert {row.policy for row in rows} == {*POLICIES} and all(row.observations == 1000 for row in rows)
    assert all(row.worst <= 1e-5 and {*row.ms} == {"onnx", "torch"} for row in rows)
    assert with_table(PAGE.read_text(), rows) == PAGE.read_text()
    page, figures = tmp_path / "page.md", tmp_path / "figures.json"
    page.write_text("<!-- timing -->\n<!-- /timing -->\n")
    monkeypatch.setattr(export, "PAGE", page)
    monkeypatch.setattr(export, "FIGURES", figures)
    export.record([Row("SAC", "X-v0:x", 0.75, {"onnx": 0.75}, 1e-7, 1000)])
    assert [(row["policy"], row["torch_ms"]) for row in json.loads(figures.read_text())["rows"]] == [("SAC", 0.75)]
    assert page.read_text().count("0.750 ms |") == 2


@pytest.mark.slow
def test_an_exported_policy_is_verified_and_timed(capsys, monkeypatch, tmp_path):
    pytest.importorskip("onnxruntime", reason="needs pip install 'stride-rl[export]'")
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    monkeypatch.setattr(export, "POLICIES", {"MLP, torques": POLICIES["MLP, torques"]})
    monkeypatch.setattr(export, "OBSERVATIONS", 30)
    monkeypatch.setattr(export, "TURNS", 1)
    assert export.main([]) == 0
    assert {"onnx", "torch", "apart"} <= {*capsys.readouterr().out.splitlines()[-1].replace(",", "").split()}
    assert not [*tmp_path.iterdir()]  # nobody's @last moves
