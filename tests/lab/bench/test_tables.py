"""Benchmarks of worlds, families, exports and checkouts: who is timed, what is recorded, not how fast anything is."""

import json
from xml.etree import ElementTree

import pytest
import torch

from lab.bench import envs, export, families, pairs
from lab.bench.export import FIGURES, PAGE, POLICIES, Row, with_table
from lab.bench.pairs import Cost, phases_of, seeds_of, shares
from lab.same_bits import digest_of
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


def test_a_world_of_a_package_is_compared_with_the_package_and_not_with_our_own_face_of_its_id():
    pytest.importorskip("minigrid", reason="pip install 'stride-rl[minigrid]'")
    rates, ratios = envs.measure("MiniGrid-Empty-5x5-v0", 2, 1, 0.01)
    assert {"ours, T steps", "package, sync"} <= rates.keys() and [*ratios] == ["package, sync"]


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


# ---- two checkouts: their times, and their bits


def test_phases_are_in_seconds_and_their_shares_those_of_all_runs_together(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"outcome": {"seconds": 10.0, "phases": {"learn": 0.75, "other": 0.25}}}))
    assert phases_of(file) == {"learn": 7.5, "other": 2.5}
    costs = [Cost(1, 1, 1, {"learn": 3.0, "other": 1.0}), Cost(1, 1, 1, {"learn": 3.0, "save": 3.0})]
    assert shares(costs) == "learn 60.0%, other 10.0%, save 30.0%"
    assert seeds_of("3-5") == range(3, 6) and seeds_of("7") == range(7, 8)


def test_each_pair_has_a_seed_of_its_own_and_what_takes_longer_ends_with_1(monkeypatch, tmp_path, capsys):
    (tmp_path / "train.py").touch()
    begun, cost = [], {"before": 2.0, "now": 1.0}

    def measured(folder, words, printed):
        name = "before" if folder == tmp_path else "now"
        begun.append((name, words[-1]))
        return Cost(cost[name], cost[name], 100 / cost[name], {"learn": cost[name]})

    monkeypatch.setattr(pairs, "measured", measured)
    assert pairs.main(["--seeds", "4-5", str(tmp_path), "train.py", "CartPole-v1:ppo"]) == 0
    assert begun[2:] == [("now", "seed=4"), ("before", "seed=4"), ("before", "seed=5"), ("now", "seed=5")]
    assert "training: 2 s before, 1 s now: now takes 0.500 of before" in capsys.readouterr().out
    assert pairs.main(["--printed", "--pairs", "3", str(tmp_path), "lab/bench/rate.py", "16"]) == 0
    assert "printed: 0.02 s before, 0.01 s now: now takes 0.500 of before" in capsys.readouterr().out
    cost["now"] = 3.0
    assert pairs.main(["--pairs", "3", str(tmp_path), "train.py"]) == 1


def test_a_bit_a_counter_or_a_row_is_another_result_and_wall_time_is_none(tmp_path):
    def digest(weight=1.0, steps=8, rows="8,0.5\n"):
        state = {"state_dict": {"w": torch.tensor([weight])}, "optimizer_states": [], "stride": {"steps": steps}}
        torch.save(state, tmp_path / "checkpoints" / "last.ckpt")
        (tmp_path / "metrics.csv").write_text(f"train/clock/env_steps,train/time/seconds\n{rows}")
        return digest_of(tmp_path)

    (tmp_path / "checkpoints").mkdir()
    assert digest() == digest(rows="8,0.7\n")
    assert len({digest(), digest(weight=1.0 + 2**-23), digest(steps=9), digest(rows="9,0.5\n")}) == 4
