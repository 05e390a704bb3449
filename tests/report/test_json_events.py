"""`train.py --json`: what happens, a line each, on a stdout that holds nothing else, in order and as documented."""

import json
import os
import re
import signal
from pathlib import Path

import pytest
from tiny_runs import TINY

from stride.agents.base import Agent
from stride.commands import train
from stride.runstore.run_dir import RunDir
from stride.trainer_callbacks.watch import read_alerts
from stride.utils.streams import event_line

SHORT = ["CartPole-v1:ppo", *(f"{key}={value}" for key, value in TINY.items())]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "events.md"


@pytest.fixture
def events_of(capfd):
    """(exit code, its events, stderr) of a training."""

    def train_with(*words):
        capfd.readouterr()
        code = train.command([*words, "--json"])
        out, err = capfd.readouterr()
        return code, [json.loads(line, parse_constant=pytest.fail) for line in out.splitlines()], err

    return train_with


@pytest.fixture
def before_step(monkeypatch):
    """Have something happen before each iteration of the trainings that follow."""
    step = Agent.training_step

    def plant(happens):
        def planted(agent, dataloader_iter):  # Lightning looks at the name
            happens(agent.progress["iterations"])
            step(agent, dataloader_iter)

        monkeypatch.setattr(Agent, "training_step", planted)

    return plant


def documented(kind):
    """The keys that docs/events.md says an event of this kind has."""
    section = PAGE.read_text().partition(f"## `{kind}`")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \|", section, re.M))


def test_a_run_is_told_from_begin_to_end_and_a_resumed_one_from_where_it_goes_on(events_of, snapshot):
    code, events, _ = events_of(*SHORT)
    columns = "event", "env_steps", "stage", "epoch", "result", "test_episodes"
    lines = [" ".join(f"{key}={event[key]}" for key in columns if key in event) for event in events]
    assert code == 0 and lines == snapshot
    run = RunDir.find("@last")
    assert {event["run"] for event in events} == {run.id} and {event["version"] for event in events} == {1}
    assert events[0]["path"] == events[-1]["path"] == str(run.path) and events[0]["config"]["n_envs"] == 2
    saved = [event for event in events if event["event"] == "checkpoint"]
    assert saved[0]["best"] and all(Path(event["path"]).exists() for event in saved)
    for event in events:
        assert {*event} == documented(event["event"]) | documented("every"), event["event"]
    _, events, _ = events_of("--resume", "@last", "max_timesteps=96")
    assert events[0]["event"] == "begin" and events[0]["env_steps"] == 64 and events[-1]["env_steps"] == 96


def test_numbers_that_json_does_not_know_are_null():
    line = event_line("row", metrics={"a": float("nan"), "b": [float("inf"), 1.5]})
    assert json.loads(line, parse_constant=pytest.fail)["metrics"] == {"a": None, "b": [None, 1.5]}


def test_what_others_print_is_not_on_stdout(events_of, before_step, capfd):
    def talk(iteration):
        print("hello from a world")
        os.system("echo hello from a process")

    before_step(talk)
    _, events, err = events_of(*SHORT, "seed=2")
    assert events[-1]["event"] == "end" and err.count("hello from a world") == err.count("a process") == 4
    print("afterwards")
    assert capfd.readouterr().out == "afterwards\n"


@pytest.mark.parametrize(("word", "error"), [("polcy_lr=1", "unknown key"), ("--seed=1,2", "--json reports one run")])
def test_what_is_refused_is_told_in_the_same_way(events_of, word, error):
    code, (event,), err = events_of("CartPole-v1:ppo", word)
    assert code == 2 and error in err
    assert event["event"] == "end" and event["result"] == "failed" and f"error: {event['error']}\n" == err


def test_an_error_in_the_training_and_a_signal_are_ends(events_of, before_step):
    before_step(lambda iteration: iteration == 2 and 1 / 0)
    code, events, _ = events_of(*SHORT)
    assert code == 1 and events[0]["event"] == "begin" and events[-1]["event"] == "end"
    assert events[-1]["result"] == "failed" and events[-1]["error"].startswith("ZeroDivisionError: division by zero")
    before_step(lambda iteration: iteration == 2 and os.kill(os.getpid(), signal.SIGTERM))
    code, events, _ = events_of(*SHORT)
    assert code == 128 + signal.SIGTERM and events[-1]["result"] == "interrupted" and events[-1]["env_steps"] == 48


def test_an_alert_is_an_event_and_stands_wherever_a_run_is_told_also_when_it_goes_on(events_of, capfd):
    broken = ["CartPole-v1:ppo", "policy_lr=0.3", "clip_range=10", "max_timesteps=2048", "test_episodes=0"]
    _, events, _ = events_of(*broken)
    alerts = [event for event in events if event["event"] == "alert"]
    assert {*alerts[0]} == documented("alert") | documented("every") and alerts[0]["begins"] and alerts[0]["tip"]
    run, kinds = RunDir.find("@last"), {(alert["metric"], alert["bound"]) for alert in alerts}
    recorded = run.facts()["outcome"]["alerts"]
    assert [vars(alert) for alert in read_alerts(run)] == recorded
    assert len(recorded) == len(kinds) == events[-1]["alerts"] > 0
    assert {alert["title"] for alert in recorded} >= {"KL"} and "| KL above 0.1 |" in run.report.read_text()
    assert (
        "set policy_lr back to lin_0.001 (now 0.3)" in run.report.read_text()
        and "alert ! KL" in run.run_log.read_text()
    )
    before = run.run_log.read_text()
    assert train.command(["--resume", run.id, "-q", "max_timesteps=3072"]) == 0
    recorded = run.facts()["outcome"]["alerts"]
    assert f" alerts={len(recorded)} run=" in capfd.readouterr().out.splitlines()[-1]
    assert [vars(alert) for alert in read_alerts(run)] == recorded
    assert any(alert["first"] <= 2048 and alert["last"] == 3072 and alert["open"] for alert in recorded)
    assert run.run_log.read_text().startswith(before) and "resuming" in run.run_log.read_text()[len(before) :]
