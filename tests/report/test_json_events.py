"""`train.py --json`: what happens, a line each, on a stdout that holds nothing else, in order and as documented."""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from stride.agents.base import Agent
from stride.commands import train
from stride.report.sinks import sinks_of
from stride.runstore.run_dir import RunDir
from stride.utils.streams import Events, event_line

TINY = ["n_envs=2", "n_steps=8", "batch_size=1.0", "max_timesteps=64", "eval_freq_epochs=2", "eval_warmup_epochs=0"]
TINY += ["eval_episodes=2", "early_stop_on_eval_threshold=false"]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "events.md"


@pytest.fixture(autouse=True)
def runs(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))


def told(capfd, *words):
    """(exit code, its events, stderr)."""
    capfd.readouterr()
    code = train.command([*words, "--json"])
    out, err = capfd.readouterr()
    return code, [json.loads(each, parse_constant=pytest.fail) for each in out.splitlines()], err


def documented(kind):
    """The keys that docs/events.md says an event of this kind has."""
    section = PAGE.read_text().partition(f"## `{kind}`")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `(\w+)` \|", section, re.M))


def test_a_run_is_told_from_begin_to_end(capfd):
    code, events, _ = told(capfd, "CartPole-v1:ppo", *TINY)
    kinds = [event["event"] for event in events]
    assert code == 0 and kinds[0] == "begin" and kinds[-1] == "end"
    assert kinds.count("row") == 5 and kinds.count("evaluation") == 3 and kinds.count("checkpoint") == 2
    run = RunDir.find("@last")
    assert {event["run"] for event in events} == {run.id} and {event["version"] for event in events} == {1}
    assert events[0]["path"] == events[-1]["path"] == str(run.path) and events[0]["config"]["n_envs"] == 2
    assert [event["env_steps"] for event in events if event["event"] == "row"] == [16, 32, 48, 64, 64]
    assert [event["stage"] for event in events if event["event"] == "evaluation"] == ["val", "val", "test"]
    saved = [event for event in events if event["event"] == "checkpoint"]
    assert [one["epoch"] for one in saved] == [2, 4] and saved[0]["best"] and Path(saved[1]["path"]).exists()
    assert events[-1]["result"] == "not_solved" and events[-1]["test_episodes"] == 100
    for event in events:
        assert {*event} == documented(event["event"]) | documented("every"), event["event"]


def test_numbers_that_json_does_not_know_are_null():
    event = json.loads(
        event_line("row", metrics={"a": float("nan"), "b": [float("inf"), 1.5]}), parse_constant=pytest.fail
    )
    assert event["metrics"] == {"a": None, "b": [None, 1.5]}


def test_what_others_print_is_not_on_stdout(capfd, monkeypatch):
    step = Agent.training_step

    def talking(agent, dataloader_iter):
        print("hello from a world")
        os.system("echo hello from a process")
        step(agent, dataloader_iter)

    monkeypatch.setattr(Agent, "training_step", talking)
    _, events, err = told(capfd, "CartPole-v1:ppo", *TINY, "seed=2")
    assert events[-1]["event"] == "end" and err.count("hello from a world") == err.count("a process") == 4
    print("afterwards")
    assert capfd.readouterr().out == "afterwards\n"


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["CartPole-v1:ppo", "polcy_lr=1"], 2, "unknown key 'polcy_lr'"),
        (["CartPole-v1:ppo", "--sede", "3"], 2, "unknown flag '--sede'"),
        (["CartPole-v1:ppo", "--seed", "1,2"], 2, "--json reports one run"),
    ],
)
def test_what_is_refused_is_told_in_the_same_way(capfd, words, code, error):
    found, events, err = told(capfd, *words)
    assert found == code and error in err
    (event,) = events
    assert event["event"] == "end" and event["result"] == "failed" and f"error: {event['error']}\n" == err


def test_an_error_in_the_training_and_a_signal_are_ends(capfd, monkeypatch):
    step = Agent.training_step

    def failing(agent, dataloader_iter):
        if agent.progress["iterations"] == 2:
            raise ZeroDivisionError("the sky fell")
        step(agent, dataloader_iter)

    def signalled(agent, dataloader_iter):
        if agent.progress["iterations"] == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        step(agent, dataloader_iter)

    monkeypatch.setattr(Agent, "training_step", failing)
    capfd.readouterr()
    assert train.command(["CartPole-v1:ppo", *TINY, "--json"]) == 1
    events = [json.loads(each) for each in capfd.readouterr().out.splitlines()]
    assert events[0]["event"] == "begin" and events[-1]["event"] == "end"
    assert events[-1]["result"] == "failed" and events[-1]["error"].startswith("ZeroDivisionError: the sky fell")
    monkeypatch.setattr(Agent, "training_step", signalled)
    code, events, _ = told(capfd, "CartPole-v1:ppo", *TINY)
    assert code == 128 + signal.SIGTERM and events[-1]["result"] == "interrupted" and events[-1]["env_steps"] == 48


def test_an_alert_is_an_event_and_counts_in_the_last_lines(capfd):
    broken = ("CartPole-v1:ppo", "policy_lr=0.3", "clip_range=10", "max_timesteps=2048", "test_episodes=0")
    _, events, _ = told(capfd, *broken)
    alerts = [event for event in events if event["event"] == "alert"]
    assert {*alerts[0]} == documented("alert") | documented("every") and alerts[0]["begins"] and alerts[0]["tip"]
    assert len({(each["metric"], each["bound"]) for each in alerts}) == events[-1]["alerts"] > 0
    assert train.command([*broken, "-q"]) == 0
    assert f" alerts={events[-1]['alerts']} run=" in capfd.readouterr().out.splitlines()[-1]


def test_a_resumed_run_begins_where_it_goes_on(capfd):
    told(capfd, "CartPole-v1:ppo", *TINY)
    _, events, _ = told(capfd, "--resume", "@last", "max_timesteps=96")
    assert events[0]["event"] == "begin" and events[0]["env_steps"] == 64 and events[-1]["env_steps"] == 96


def test_events_have_a_sink_of_their_own(tmp_path):
    run = RunDir(tmp_path)
    (tmp_path / "logs").mkdir()
    assert sinks_of(run, events=Events(None))[-1].__class__.__name__ == "JsonEvents"
