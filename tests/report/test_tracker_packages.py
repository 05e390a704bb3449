"""What the packages of trackers themselves make of a run: read back by each one's own reader, sent to a server that
answers, stalls, drops and fails."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from told_run import STEPS, begun, outcome, tell

from lab.faults.trackers import serving
from stride.commands import setup_wandb_dashboard
from stride.report.trackers import async_tracker
from stride.report.trackers.registry import async_trackers
from stride.utils.user_error import UserError
from stride.utils.video_file import VideoFile

pytestmark = pytest.mark.slow
LOSS = "train/loss/policy"


@pytest.fixture(autouse=True)
def unconfigured(tmp_path, monkeypatch):
    """Nothing that somebody who runs this has configured."""
    for name in [name for name in os.environ if name.startswith(("WANDB_", "TRACKIO_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(async_tracker, "PATIENCE", 120)
    monkeypatch.setattr(async_tracker, "HURRY", 120)


def told(*overrides, **changes):
    """A whole run, with a film, a curve and a report."""
    run, header, config = begun(*overrides, **changes)
    (sink,) = async_trackers(run, config.logger)
    tell([sink], run, header, config, end=False)
    (run.logs / "curve.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'></svg>")
    run.report.write_text("# All went well")
    sink.media(filmed(run))
    sink.end(outcome(run))
    assert not sink._trouble, sink._trouble
    return run


def filmed(run):
    pytest.importorskip("av")
    path = run.videos / "epoch=01.mp4"
    with VideoFile(path, 30) as video:
        for shade in range(150):
            video.add(np.full((64, 96, 3), shade, np.uint8))
    return path


def test_wandb_files_are_sent_later_by_its_own_tool(monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = told("logger=[wandb]", "tags=[a]", "project_id=one", group="g")
    (folder,) = (run.logs / "wandb").glob("offline-run-*")
    assert [*folder.rglob("*.mp4")] and [*folder.rglob("*.html")]
    with serving() as server:
        words = [sys.executable, "-m", "wandb", "sync", str(folder)]
        environment = {**os.environ, **server.variables, "WANDB_MODE": "online"}
        done = subprocess.run(words, cwd=run.logs, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert run.id in server.runs and [row[STEPS] for row in server.rows if LOSS in row] == [10, 20, 30, 40]


def test_wandb_is_told_all_and_what_is_wrong_with_it_harms_nobody(monkeypatch, caplog):
    """One server that answers and three that do not, side by side, as each waits for its patience to end."""
    pytest.importorskip("wandb")
    sinks, ways = {}, ("answers", "stalls", "drops", "fails")
    servers = {mode: serving(mode) for mode in ways}
    opened = {mode: server.__enter__() for mode, server in servers.items()}
    for mode, server in opened.items():
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        run, header, config = begun("logger=[wandb]")
        (sink,) = async_trackers(run, config.logger)
        tell([sink], run, header, config, end=False)
        while not hasattr(sink._tracker, "_listener"):  # its process has these variables
            time.sleep(0.01)
        sinks[mode] = sink, run
    for sink, run in sinks.values():
        sink.end(outcome(run))
    for server in servers.values():
        server.__exit__(None, None, None)
    assert [row[STEPS] for row in opened["answers"].rows] == [10, 20, 30, 40]
    assert "NotifyScriptableRunAlert" in opened["answers"].asked
    for mode in ways[1:]:
        tracker, run = sinks[mode][0]._tracker, sinks[mode][1]
        assert tracker.remark.startswith("no server was reached, so it writes files"), mode
        assert tracker._child.returncode == 0 and tracker.location.startswith("offline; send it: wandb sync ")
        (file,) = run.logs.glob("wandb/offline-run-*/*.wandb")
        assert STEPS.encode() in file.read_bytes()


def test_trackios_database_holds_the_run(tmp_path, monkeypatch):
    pytest.importorskip("trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    run = told("logger=[trackio]", "project_id=one")
    reader = "import json, trackio; run, = trackio.Api().runs('one'); alerts = run.alerts(); "
    reader += "from trackio.sqlite_storage import SQLiteStorage as S; rows = S.get_logs('one', run.name); "
    reader += "print(json.dumps([run.name, rows, alerts], default=str))"
    environment = {**os.environ, "TRACKIO_DIR": str(tmp_path / "trackio")}
    said = subprocess.run([sys.executable, "-c", reader], env=environment, capture_output=True, text=True, timeout=120)
    assert said.returncode == 0, said.stderr
    name, rows, alerts = json.loads(said.stdout)
    assert name == run.id and [row["step"] for row in rows if LOSS in row] == [10, 20, 30, 40]
    assert [alert["title"] for alert in alerts] == ["Policy loss"]
    kinds = {row[name]["_type"] for row in rows for name in ("video", "report") if name in row}
    assert kinds == {"trackio.video", "trackio.markdown"}


def test_the_dashboard_is_made_once(monkeypatch, capsys):
    pytest.importorskip("wandb_workspaces")
    words = ["--entity", "me", "--project", "p"]
    assert setup_wandb_dashboard.main([*words, "--dry-run"]) == 0
    first = capsys.readouterr().out
    assert setup_wandb_dashboard.main([*words, "--dry-run"]) == 0
    assert capsys.readouterr().out == first and json.loads(first)["entity"] == "me"
    with serving() as server:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        told = []
        for flags in ([], [], ["--overwrite"]):
            assert setup_wandb_dashboard.main([*words, *flags]) == 0
            told.append(capsys.readouterr().out.split(":")[0])
        assert told == ["made", "it exists", "replaced"] and len(server.views) == 1
        (view,) = server.views.values()
        assert json.loads(view["spec"]) == json.loads(first)["spec"]
        server.mode = "fails"
        with pytest.raises(UserError, match="W&B: "):
            setup_wandb_dashboard.main(words)


AGENT = """
import os, queue, sys
from wandb.wandb_agent import Agent
os.environ["WANDB_SWEEP_ID"] = "abc"
agent = Agent.__new__(Agent)
agent._in_jupyter, agent._function, agent._forward_signals, agent._run_processes = False, None, False, {}
agent._sweep_command = ["${env}", sys.executable, "-c", "import sys; print(sys.argv[1:]); "
    "from stride.commands.train_arguments import parse_arguments as p; a = p(sys.argv[1:]); c = a.load(); "
    "print(c.policy_lr, c.n_epochs, c.logger)", "CartPole-v1:ppo", *sys.argv[1:]]
chosen = {"policy_lr": {"value": 0.003}, "n_epochs": {"value": 7}, "clip_range_vf": {"value": None}}
agent._command_run({"type": "run", "run_id": "r1", "program": "stride", "args": chosen})
sys.exit(agent._run_processes["r1"].wait())
"""


@pytest.mark.parametrize("words", [["--wandb_sweep"], ["${args}"]])
def test_the_command_line_of_an_agent(tmp_path, words):
    """Started by the code of W&B's own agent, by its file alone, and by words, too."""
    pytest.importorskip("wandb")
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-c", AGENT, *words],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "0.003 7 ('csv', 'wandb')"
