"""A real run that breaks says so in every place, goes on saying it when it is resumed, and is trained as before."""

from tiny_runs import tiny_run

from stride.commands import train
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.watch import read_alerts

BROKEN = {"policy_lr": 0.3, "clip_range": 10, "n_epochs": 10, "max_timesteps": 1024, "log_freq_epochs": 1}
BROKEN |= {"n_steps": 32, "eval_freq_epochs": 4, "engine": "eager"}


def test_a_broken_run_says_so_everywhere_and_goes_on_when_resumed(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    run = tiny_run(**BROKEN)
    line = capsys.readouterr().out
    titles = [alert.title for alert in read_alerts(run)]
    assert titles[:2] == ["KL", "Entropy"] and f" alerts={len(titles)} run=" in line
    assert [alert["title"] for alert in run.facts()["outcome"]["alerts"]] == titles
    report = run.report.read_text()
    assert "| KL above 0.1 |" in report and "lower policy_lr (now 0.3)" in report
    log = run.run_log.read_text()
    assert "alert ! KL" in log and "checkpoint epoch=04 (best and last)" in log and "test " in log
    assert "CartPole-v1:ppo" in log and "engine: eager" in log and "torch" in log

    assert train.command(["--resume", run.id, "-q", "--max-timesteps", "1536"]) == 0
    again = RunDir(run.path)
    assert [vars(alert) for alert in read_alerts(again)] == again.facts()["outcome"]["alerts"]
    entropy = next(alert for alert in read_alerts(again) if alert.title == "Entropy")
    assert entropy.first < 1000 and entropy.last == 1536 and entropy.open
    later = again.run_log.read_text()
    assert later.startswith(log) and "resuming" in later[len(log) :] and "Not solved" in later[len(log) :]
