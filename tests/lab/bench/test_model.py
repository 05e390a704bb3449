"""The benchmark of model-based updates: what it writes, not how fast anything is."""

import json

import pytest
import torch

from lab.bench import model
from lab.bench.train import main

TINY = {"tiny": ("deter=16", "width=16", "stoch=2", "classes=4", "bins=5", "batch_size=16", "batch_length=2",
                 "imagined_starts=16", "horizon=2")}  # fmt: skip
PARTS = ["draw", "recall", "behaviour", "optimizer"]


@pytest.fixture(autouse=True)
def threads():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_an_update_of_dreamer_is_measured_whole_and_in_parts(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(model, "compared", lambda *given: of_tiny(*given))
    of_tiny, file = lambda *given: compared(*given, sizes=TINY), tmp_path / "figures.json"
    assert main(["--agents", "dreamer", "--updates", "2", "--threads", "1", "--json", str(file)]) == 0
    figures = json.loads(file.read_text())
    assert all(rate > 1e8 for rate in figures["limits_flops"]["1"].values())
    tiny = figures["sizes"]["tiny"]
    rows = tiny["rows"]
    assert [*rows] == ["eager, 1", "kernels, 1"] and tiny["weights"] > 1000 and tiny["flops"] > 1e6
    for row in rows.values():
        assert [*row["parts_ms"]] == PARTS and len(row["update_ms"]["all"]) == 2
        assert all(ms > 0 for ms in row["parts_ms"].values())
    assert "tiny:" in capsys.readouterr().out


compared = model.compared
