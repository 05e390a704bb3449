"""Where the time of a training went: shares in every row, over resumes, with the closing test, and in the report."""

import json

import pytest

from stride.commands import train
from stride.commands.train_arguments import parse_arguments
from stride.runstore.metrics_table import read_csv
from stride.runstore.outcome import PHASES, PREFIX, phases_text, shares
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.export_metrics import ExportMetrics

WORDS = ["CartPole-v1:ppo", "-q", "n_envs=2", "n_steps=16", "eval_episodes=3", "eval_freq_epochs=3"]
WORDS += ["eval_warmup_epochs=0", "early_stop_on_eval_threshold=false", "log_freq_epochs=2"]


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))


def phases_of(row):
    return {name.removeprefix(PREFIX): row[name] for name in row if name.removeprefix(PREFIX) in PHASES}


def outcome(run):
    return json.loads(run.config_json.read_text())["outcome"]


def check(run):
    """Every row's shares, and those of the whole run, are 1 together; the report tells the latter."""
    rows = read_csv(run.metrics_csv)
    for row in rows:
        assert set(phases_of(row)) == {*PHASES} and min(phases_of(row).values()) >= 0
        assert sum(phases_of(row).values()) == pytest.approx(1.0, abs=1e-6)
    whole = outcome(run)["phases"]
    assert set(whole) == {*PHASES} and sum(whole.values()) == pytest.approx(1.0)
    assert f"Time: {phases_text(whole)}." in run.report.read_text()
    return rows


@pytest.mark.parametrize("engine", ["fused_cpu", "eager"])
def test_the_shares_of_every_row_are_one_together(engine, capsys):
    words = [word for word in WORDS if word != "-q"]
    assert train.train(parse_arguments([*words, "max_timesteps=320", f"engine={engine}"])) == 0
    rows = check(run := RunDir.find("@last"))
    assert f"time    {phases_text(outcome(run)['phases'])}\n" in capsys.readouterr().out
    assert all(row[f"{PREFIX}evaluate"] > 0 for row in rows if "val/roll/episodes" in row)
    assert all(
        row[f"{PREFIX}evaluate"] == 0
        for row in rows
        if row.keys().isdisjoint({"val/roll/episodes", "test/roll/episodes"})
    )
    assert rows[-1]["test/roll/episodes"] == 100 and rows[-1][f"{PREFIX}evaluate"] > 0
    assert rows[-1][f"{PREFIX}save"] > 0, "the last checkpoint is written before the test"
    assert min(outcome(run)["phases"].values()) > 0


def test_a_resumed_run_counts_what_was_spent_before(monkeypatch):
    assert train.train(parse_arguments([*WORDS, "max_timesteps=320"])) == 0
    before, spent = RunDir.find("@last"), []
    loaded = ExportMetrics.on_load_checkpoint

    def noted(self, trainer, agent, checkpoint):
        checkpoint["seconds"] = {"learn": 1000.0, "of a later version": 1.0}
        loaded(self, trainer, agent, checkpoint)
        spent.append(dict(self._past))

    monkeypatch.setattr(ExportMetrics, "on_load_checkpoint", noted)
    assert train.train(parse_arguments(["--resume", before.id, "max_timesteps=640", "-q"])) == 0
    check(before)
    assert spent == [{**dict.fromkeys(PHASES, 0.0), "learn": 1000.0}]
    assert outcome(before)["phases"]["learn"] > 0.9
    first = next(row for row in read_csv(before.metrics_csv) if row["train/clock/env_steps"] > 320)
    assert first[f"{PREFIX}learn"] < 0.99, "a row tells of its own time"


def test_a_checkpoint_of_an_older_version_holds_no_seconds(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(ExportMetrics, "on_save_checkpoint", lambda *arguments: None)
        assert train.train(parse_arguments([*WORDS, "max_timesteps=320"])) == 0
    run = RunDir.find("@last")
    assert train.train(parse_arguments(["--resume", run.id, "max_timesteps=640", "-q"])) == 0
    check(run)


def test_the_line_begins_with_the_largest_and_leaves_out_what_is_nothing():
    parts = shares({"collect": 20.0, "learn": 61.2, "evaluate": 12.0, "save": 0.1, "other": 6.7})
    assert phases_text(parts) == "learn 61 %, collect 20 %, evaluate 12 %, other 7 %"
    assert shares(dict.fromkeys(PHASES, 0.0)) == {} and phases_text({}) == ""
