"""What the packages of trackers themselves make of a run, read back by each one's own reader."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from told_run import STEPS, begun, outcome, tell

from lab.faults.trackers import serving
from stride.commands import setup_wandb_dashboard
from stride.report.trackers import async_tracker
from stride.report.trackers.registry import async_trackers
from stride.utils.places import PROJECT
from stride.utils.user_error import UserError
from stride.utils.video_file import VideoFile

pytestmark = pytest.mark.slow
LOSS = "train/loss/policy"


@pytest.fixture(autouse=True)
def unconfigured(tmp_path, monkeypatch):
    """Nothing that somebody who runs this has configured, and all the time that a package takes."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("PATIENCE", "HURRY"):
        monkeypatch.setattr(async_tracker, name, 120)


def tracked(*overrides, **changes):
    """A whole run, with a film, a curve and a report."""
    pytest.importorskip("av")
    run, header, config = begun(*overrides, **changes)
    (sink,) = async_trackers(run, config.logger)
    tell([sink], run, header, config, end=False)
    (run.logs / "curve.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'></svg>")
    run.report.write_text("# All went well")
    with VideoFile(run.videos / "epoch=01.mp4", 30) as video:
        for shade in range(150):
            video.add(np.full((64, 96, 3), shade, np.uint8))
    sink.media(run.videos / "epoch=01.mp4")
    sink.end(outcome(run))
    assert not sink._trouble, sink._trouble
    return run


def python(*words, cwd=PROJECT, **variables):
    environment = {**os.environ, **variables}
    line = [sys.executable, *map(str, words)]
    done = subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_wandb_files_are_sent_later_by_its_own_tool(monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run = tracked("logger=[wandb]", "tags=[a]", "project_id=one", group="g")
    (folder,) = (run.logs / "wandb").glob("offline-run-*")
    assert [*folder.rglob("*.mp4")] and [*folder.rglob("*.html")]
    with serving() as server:
        python("-m", "wandb", "sync", folder, cwd=run.logs, **server.variables, WANDB_MODE="online")
    assert run.id in server.runs and [row[STEPS] for row in server.rows if LOSS in row] == [10, 20, 30, 40]


READER = """
import json, trackio
from trackio.sqlite_storage import SQLiteStorage
run, = trackio.Api().runs('one')
print(json.dumps([run.name, SQLiteStorage.get_logs('one', run.name), run.alerts()], default=str))
"""


def test_trackios_database_holds_the_run(tmp_path, monkeypatch):
    pytest.importorskip("trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    run = tracked("logger=[trackio]", "project_id=one")
    name, rows, alerts = json.loads(python("-c", READER))
    assert name == run.id and [row["step"] for row in rows if LOSS in row] == [10, 20, 30, 40]
    assert [alert["title"] for alert in alerts] == ["Policy loss"]
    kinds = {row[name]["_type"] for row in rows for name in ("video", "report") if name in row}
    assert kinds == {"trackio.video", "trackio.markdown"}


def test_the_dashboard_is_made_once(monkeypatch, capsys):
    pytest.importorskip("wandb_workspaces")

    def printed(*flags):
        assert setup_wandb_dashboard.main(["--entity", "me", "--project", "p", *flags]) == 0
        return capsys.readouterr().out

    first = printed("--dry-run")
    assert printed("--dry-run") == first and json.loads(first)["entity"] == "me"
    with serving() as server:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        lines = [printed(*flags).split(":")[0] for flags in ([], [], ["--overwrite"])]
        assert lines == ["made", "the dashboard exists", "replaced"] and len(server.views) == 1
        (view,) = server.views.values()
        assert json.loads(view["spec"]) == json.loads(first)["spec"]
        server.mode = "fails"
        with pytest.raises(UserError, match="W&B: "):
            printed()
