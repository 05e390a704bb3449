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


def test_a_run_is_told_from_begin_to_end_and_a_resumed_one_from_where_it_goes_on(events_of):
    code, events, _ = events_of(*SHORT)
    kinds = [event["event"] for event in events]
    assert code == 0 and kinds[0] == "begin" and kinds[-1] == "end"
    assert kinds.count("row") == 5 and kinds.count("evaluation") == 3 and kinds.count("checkpoint") == 2
    run = RunDir.find("@last")
    assert {event["run"] for event in events} == {run.id} and {event["version"] for event in events} == {1}
    assert events[0]["path"] == events[-1]["path"] == str(run.path) and events[0]["config"]["n_envs"] == 2
    assert [event["env_steps"] for event in events if event["event"] == "row"] == [16, 32, 48, 64, 64]
    assert [event["stage"] for event in events if event["event"] == "evaluation"] == ["val", "val", "test"]
    saved = [event for event in events if event["event"] == "checkpoint"]
    assert [event["epoch"] for event in saved] == [2, 4] and saved[0]["best"] and Path(saved[1]["path"]).exists()
    assert events[-1]["result"] == "not_solved" and events[-1]["test_episodes"] == 100
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


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("polcy_lr=1", "unknown key 'polcy_lr'"),
        ("--sede 3", "unknown flag '--sede'"),
        ("--seed 1,2", "--json reports one run"),
    ],
)
def test_what_is_refused_is_told_in_the_same_way(events_of, words, error):
    code, (event,), err = events_of("CartPole-v1:ppo", *words.split())
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


def test_an_alert_is_an_event_and_counts_in_the_last_lines(events_of, capfd):
    broken = ("CartPole-v1:ppo", "policy_lr=0.3", "clip_range=10", "max_timesteps=2048", "test_episodes=0")
    _, events, _ = events_of(*broken)
    alerts = [event for event in events if event["event"] == "alert"]
    assert {*alerts[0]} == documented("alert") | documented("every") and alerts[0]["begins"] and alerts[0]["tip"]
    assert len({(alert["metric"], alert["bound"]) for alert in alerts}) == events[-1]["alerts"] > 0
    assert train.command([*broken, "-q"]) == 0
    assert f" alerts={events[-1]['alerts']} run=" in capfd.readouterr().out.splitlines()[-1]
