"""Trackers: what each is told, and that none slows, stops or changes a training, whatever it does. No torch."""

import json
import logging
import math
import os
import re
import sys
import textwrap
import threading

import numpy as np
import pytest
from told_run import RETURN, STEPS, begun, outcome, row, tell

from stride.report.trackers import async_tracker, registry
from stride.report.trackers.async_tracker import AsyncTracker
from stride.report.trackers.registry import async_trackers
from stride.report.trackers.tensorboard_events import TensorBoardEvents
from stride.report.trackers.tracker import Tracker
from stride.utils.user_error import UserError
from stride.utils.video_file import VideoFile
from tests.runstore.processes import until


def noting(name):
    """A method that notes its call, once it may."""

    def call(self, **details):
        self.go.wait(120)
        if name == self.fails_at:
            raise OSError("the disk is full")
        self.calls.append((name, *details.values()))

    return call


class Notes(Tracker):
    title, location = "Notes", "here"
    begin, row, video, alert, end = map(noting, ("begin", "row", "video", "alert", "end"))

    def __init__(self, fails_at=""):
        self.calls, self.fails_at, self.go = [], fails_at, threading.Event()
        self.go.set()


def test_all_is_told_in_order(caplog):
    notes, (run, header, config) = Notes(), begun("tags=[a,b]", "notes=hello", group="g1")
    with caplog.at_level(logging.INFO, "stride"):
        tell([AsyncTracker(notes, run)], run, header, config)
    assert [call[:2] for call in notes.calls[1:5]] == [("row", step) for step in (10, 20, 30, 40)]
    facts, first = notes.calls[0][1], notes.calls[1][2]
    expected = {"id": run.id, "project": "CartPole-v1", "group": "g1", "tags": ["a", "b"], "notes": "hello"}
    assert facts.items() >= {**expected, "resumed_at": 0}.items() and first == row(10)
    assert facts["config"]["gamma"] == config.gamma and facts["config"]["git_hash"] == "abc"
    assert notes.calls[5][1:3] == (20, "Policy loss") and "lower it" in notes.calls[5][3]
    assert notes.calls[-1][1]["verdict"] == "solved (10 episodes)" and notes.calls[-1][1]["test_mean"] == 490.5
    assert json.dumps([notes.calls[0], notes.calls[-1]])  # whatever it is told can go to another process
    assert [record.getMessage() for record in caplog.records] == ["Notes: here"]


def test_one_that_takes_nothing_costs_a_training_nothing_but_its_own_rows(caplog, monkeypatch):
    monkeypatch.setattr(async_tracker, "PATIENCE", 0.05)
    notes, (run, header, config) = Notes(), begun()
    notes.go.clear()
    sink = AsyncTracker(notes, run, most=3)
    tell([sink], run, header, config, rows=500, end=False)
    with caplog.at_level(logging.INFO, "stride"):
        sink.end(outcome(run))
    assert notes.calls == []  # all of it came back before the first call
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    dropped = int(line.split("too slow: ")[1].split(" rows")[0])
    assert "the remaining uploads continue in the background; metrics.csv has every row" in line
    notes.go.set()
    until(lambda: notes.calls and notes.calls[-1][0] == "end")
    rows = [call for call in notes.calls if call[0] == "row"]
    assert len(rows) + dropped == 500 and len(rows) <= 4  # each was brought or counted
    assert [call[0] for call in notes.calls[-2:]] == ["alert", "end"]


@pytest.mark.parametrize("call", ["begin", "row", "alert", "end"])
def test_one_that_fails_is_given_up_and_told(call, caplog):
    notes, (run, header, config) = Notes(fails_at=call), begun()
    with caplog.at_level(logging.INFO, "stride"):
        tell([AsyncTracker(notes, run)], run, header, config)
    line = caplog.records[-1].getMessage()
    assert line == "Notes: stopped after an error, OSError: the disk is full; metrics.csv has every row"


def test_a_signal_is_not_made_to_wait(monkeypatch):
    monkeypatch.setattr(async_tracker, "PATIENCE", 1e6)
    notes, (run, header, config) = Notes(), begun()
    notes.go.clear()
    for ended in (None, outcome(run, reason="interrupted")):
        sink = AsyncTracker(notes, run)
        sink.begin(header, config)
        sink.end(ended)
        assert notes.calls == []  # it came back before the first call
    notes.go.set()


def test_loggers_are_named_and_their_packages_there_before_anything_begins(tmp_path, monkeypatch):
    run, _, config = begun("logger=tensorboard")
    assert config.logger == ("tensorboard",)
    assert len(async_trackers(run, ("csv", "tensorboard", "tensorboard", "wandb"))) == 2
    with pytest.raises(UserError, match=r"logger\[0\] takes csv, tensorboard, .*, not 'wandbb'; did you mean"):
        begun("logger=[wandbb]")
    (tmp_path / "some_tracker").mkdir()  # a folder that wandb leaves is no package
    monkeypatch.syspath_prepend(tmp_path)
    assert [registry.is_installed(name) for name in ("some_tracker", "json")] == [False, True]
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    registry.check_loggers(("csv",))
    line = "logger: trackio needs the package trackio: pip install 'stride-rl[trackio]'"
    with pytest.raises(UserError, match=re.escape(line)):
        registry.check_loggers(("csv", "trackio"))


# Packages of others, in a process of their own: one that only looks like W&B

FAKE = """
import json, os, sys, time
print("this is no answer")
class Error(Exception): pass
class Settings(dict): pass
class Html(str):
    def __new__(cls, text, inject): return str.__new__(cls, text)
class Video(str):
    def __new__(cls, path, format): return str.__new__(cls, path)
def note(call, *given, **named):
    with open(os.environ["NOTED"], "a") as file:
        file.write(json.dumps([call, given, named]) + "\\n")
class Run:
    url, dir, summary = "", os.getcwd() + "/x/files", None
    def __init__(self):
        self.summary = self
    def __getattr__(self, name):
        def call(*given, **named):
            note(name, *given, **named)
            exec(os.environ.get("AT_" + name.upper(), ""))
        return call
def init(**named):
    note("init", **named)
    if named.get("mode") != "offline":
        exec(os.environ.get("AT_INIT", ""))
    return Run()
def teardown(): pass
"""


@pytest.fixture
def noted(tmp_path, monkeypatch):
    """(call, arguments, keywords) of a package `wandb`; what it does at one of them is code in AT_..."""
    (tmp_path / "wandb.py").write_text(textwrap.dedent(FAKE))
    file = tmp_path / "noted"
    file.touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("NOTED", str(file))
    return lambda: [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def told_to_wandb(noted, monkeypatch, caplog):
    """(run, the lines for people) after a whole run, with as much time as it takes."""

    def tell_all(**changes):
        monkeypatch.setattr(async_tracker, "PATIENCE", 60)
        run, header, config = begun("logger=[wandb]", "tags=[a]", "project_id=p/q", group="g")
        with caplog.at_level(logging.INFO, "stride"):
            tell(async_trackers(run, config.logger), run, header, config, **changes)
        return run, [record.getMessage() for record in caplog.records if record.levelno >= logging.INFO]

    return tell_all


def test_wandb_is_told_in_a_process_of_its_own(told_to_wandb, noted):
    run, lines = told_to_wandb()
    calls = noted()
    logs = ["log"] * 4
    assert [call[0] for call in calls] == ["init", *["define_metric"] * 2, *logs, "alert", "update", "finish"]
    options = calls[0][2]
    assert (options["id"], options["project"], options["group"], options["tags"]) == (run.id, "p-q", "g", ["a"])
    assert options["dir"] == str(run.logs) and options["resume"] == "allow"
    assert calls[3][1] == [{STEPS: 10, RETURN: 10, "train/loss/policy": -0.25}]
    assert calls[-2][1][0]["verdict"] == "solved (10 episodes)" and calls[-1][2] == {"exit_code": 0}
    assert "wandb" not in sys.modules and "this is no answer" in (run.logs / "wandb.txt").read_text()
    assert lines == ["W&B: offline; send it: wandb sync x"]


def test_without_a_server_it_writes_files(told_to_wandb, noted, monkeypatch):
    monkeypatch.setenv("AT_INIT", "raise Error('no route to host')")
    _, lines = told_to_wandb()
    assert [call[2].get("mode") for call in noted() if call[0] == "init"] == [None, "offline"]
    assert sum(call[0] == "log" for call in noted()) == 4
    assert lines[-1].startswith("W&B: it could not reach the server, so it writes files (no route to host)")


@pytest.mark.parametrize("what", ["raise KeyError('boom')", "os._exit(3)", "os.kill(os.getpid(), 9)"])
def test_a_package_that_breaks_harms_nobody(told_to_wandb, monkeypatch, what):
    monkeypatch.setenv("AT_LOG", f"import sys; print('last words', file=sys.stderr, flush=True); {what}")
    _, lines = told_to_wandb()
    (line,) = [line for line in lines if "stopped after an error" in line]
    assert ("KeyError: 'boom'" if "boom" in what else "last words") in line and "(logs/wandb.txt)" in line


def test_whoever_dies_without_a_word_is_told_as_failed(noted):
    run, header, config = begun("logger=[wandb]")
    (sink,) = async_trackers(run, config.logger)
    tell([sink], run, header, config, end=False)
    until(lambda: any(call[0] == "alert" for call in noted()))
    sink._tracker._child.stdin.write(b'{"call": "row", "st')
    sink._tracker._child.stdin.close()  # as the kernel does for one that was killed
    assert sink._tracker._child.wait(60) == 0
    assert noted()[-1] == ["finish", [], {"exit_code": 1}]


def test_in_a_sweep_the_run_is_the_agents(told_to_wandb, noted, monkeypatch):
    monkeypatch.setenv("WANDB_SWEEP_ID", "1")
    monkeypatch.setenv("WANDB_SWEEP_PARAM_PATH", "wandb/values.yaml")
    monkeypatch.setenv("AT_FINISH", "note('path', os.environ['WANDB_SWEEP_PARAM_PATH'])")
    told_to_wandb()
    assert "id" not in noted()[0][2] and "resume" not in noted()[0][2]
    assert noted()[-1][1] == [os.path.abspath("wandb/values.yaml")]


# TensorBoard

LOSS = "train/loss/policy"


def read(run):
    """TensorBoard's own reader."""
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    reader = accumulators.EventAccumulator(str(run.logs))
    reader.Reload()
    return reader


def test_a_run_that_goes_on_voids_what_comes_after(monkeypatch):
    for name in ("PATIENCE", "HURRY"):
        monkeypatch.setattr(async_tracker, name, 120)
    run, header, config = begun("logger=[tensorboard]", "notes=hello")
    (first,) = async_trackers(run, config.logger)
    tell([first], run, header, config, end=False)
    first.end(None)  # as after a signal: all it was told is written
    (before,) = run.logs.glob("events.out.tfevents.*")
    os.rename(before, before.with_name("events.out.tfevents.1"))  # read first, however short a time lies between
    tell(async_trackers(run, config.logger, env_steps=20), run, header, config, rows=1)  # a run that goes on from 20
    reader = read(run)
    assert {*reader.Tags()["scalars"]} == {STEPS, RETURN, LOSS}
    assert [(scalar.step, scalar.value) for scalar in reader.Scalars(LOSS)] == [(10, -0.25), (20, -0.25), (10, -0.25)]
    words = {tag: reader.Tensors(tag)[-1].tensor_proto.string_val[0].decode() for tag in reader.Tags()["tensors"]}
    assert words["notes"] == "hello" and words["verdict"].startswith("Solved (10 episodes; goal reached), test 490.5")
    assert "policy_lr" in words["config"] and "lower it" in words["alerts/Policy loss"]


def test_every_row_a_video_and_numbers_beyond_four_bytes(tmp_path):
    run, header, config = begun()
    with VideoFile(tmp_path / "film.mp4", 30) as video:
        for shade in range(10):
            video.add(np.full((64, 96, 3), shade, np.uint8))
    tracker = TensorBoardEvents()
    tracker.begin(async_tracker.run_details(run, header, config, 0))
    tracker.row(3, {LOSS: 1e300, RETURN: math.nan})
    tracker.video(3, str(tmp_path / "film.mp4"))
    tracker.end(None)
    reader = read(run)
    (image,) = reader.Images("video")
    assert (image.width, image.height) == (160, 107) and image.encoded_image_string.startswith(b"GIF89a")
    assert [(scalar.step, scalar.value) for scalar in reader.Scalars(LOSS)] == [(3, math.inf)]
    assert math.isnan(reader.Scalars(RETURN)[0].value) and tracker.location.startswith("tensorboard --logdir ")
