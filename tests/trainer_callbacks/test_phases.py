"""Where the time of a training went: shares in every row, over resumes, with the closing test, and in the report."""

import pytest
from tiny_runs import tiny_run

from stride.commands import train
from stride.runstore.metrics_table import read_csv
from stride.runstore.outcome import PHASES, PREFIX, phases_text, shares
from stride.trainer_callbacks.export_metrics import ExportMetrics

WORDS = {"n_steps": 16, "eval_freq_epochs": 3, "log_freq_epochs": 2, "max_timesteps": 320}


def check(run):
    """Every row's shares, and those of the whole run, are 1 together; the report tells the latter."""
    rows = read_csv(run.metrics_csv)
    for row in rows:
        phases = [row[PREFIX + phase] for phase in PHASES]
        assert min(phases) >= 0 and sum(phases) == pytest.approx(1.0, abs=1e-6)
    whole = run.facts()["outcome"]["phases"]
    assert set(whole) == {*PHASES} and sum(whole.values()) == pytest.approx(1.0)
    assert f"Time: {phases_text(whole)}." in run.report.read_text()
    return rows


@pytest.mark.parametrize("engine", ["fused_cpu", "eager"])
def test_the_shares_of_every_row_are_one_together(engine):
    run = tiny_run(**WORDS, engine=engine)
    rows = check(run)
    for row in rows:
        plays = "val/roll/episodes" in row or "test/roll/episodes" in row
        assert (row[f"{PREFIX}evaluate"] > 0) == plays
    assert rows[-1]["test/roll/episodes"] == 100
    assert rows[-1][f"{PREFIX}save"] > 0, "the last checkpoint is written before the test"
    assert min(run.facts()["outcome"]["phases"].values()) > 0


def test_a_resumed_run_counts_what_was_spent_before_if_it_is_known(monkeypatch):
    with monkeypatch.context() as patch:  # an older version wrote no seconds
        patch.setattr(ExportMetrics, "on_save_checkpoint", lambda *arguments: None)
        run = tiny_run(**WORDS)
    assert train.command(["--resume", run.id, "max_timesteps=480", "-q"]) == 0
    check(run)
    loaded = ExportMetrics.on_load_checkpoint

    def noted(self, trainer, agent, checkpoint):
        checkpoint["seconds"] = {"learn": 1000.0, "of a later version": 1.0}
        loaded(self, trainer, agent, checkpoint)
        assert self._past == {**dict.fromkeys(PHASES, 0.0), "learn": 1000.0}

    monkeypatch.setattr(ExportMetrics, "on_load_checkpoint", noted)
    assert train.command(["--resume", run.id, "max_timesteps=640", "-q"]) == 0
    rows = check(run)
    assert run.facts()["outcome"]["phases"]["learn"] > 0.9
    first = next(row for row in rows if row["train/clock/env_steps"] > 480)
    assert first[f"{PREFIX}learn"] < 0.99, "a row tells of its own time"


def test_the_line_begins_with_the_largest_and_leaves_out_what_is_nothing():
    parts = shares({"collect": 20.0, "learn": 61.2, "evaluate": 12.0, "save": 0.1, "other": 6.7})
    assert phases_text(parts) == "learn 61 %, collect 20 %, evaluate 12 %, other 7 %"
    assert shares(dict.fromkeys(PHASES, 0.0)) == {} and phases_text({}) == ""
