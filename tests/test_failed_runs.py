"""A run that failed says so wherever one looks: terminal, config.json, report.md, --list-envs, inspector, --resume.

What worlds do wrong is in test_faulty_environments.py.
"""

import re

import gymnasium
import pytest
from gallery import gallery_copy
from tiny_runs import tiny_run

from stride.agents.networks.actor_critic import ActorCritic
from stride.agents.trained.loading import load_run
from stride.commands import train
from stride.config.listing import print_variants
from stride.envs_gym.blame import own_line
from stride.inspector.overview import overview
from stride.inspector.runs import Runs
from stride.inspector.table import runs_table
from stride.runstore.run_dir import RunDir, list_runs
from stride.runstore.run_files import write_json

HERE = "test_failed_runs.py"


class Torn(gymnasium.Wrapper):
    """A wrapper of the user's, which goes wrong in the 20th step of its life."""

    age = 0

    def step(self, action):
        self.age += 1
        if self.age == 20:
            raise KeyError("speed")
        return super().step(action)


class Stubborn(ActorCritic):
    """A policy of the user's."""

    def act(self, *given):
        raise LookupError("no such head")


FAULTS = {
    "KeyError: 'speed'": {"env_wrappers": f"[{{id: '{__name__}:Torn'}}]"},
    "LookupError: no such head": {"policy": f"{__name__}:Stubborn", "engine": "eager"},
}


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def failed(capsys, fault="KeyError: 'speed'"):
    """The line that was printed of a training that went wrong, and its run."""
    run = tiny_run(**FAULTS[fault], exit_code=1)
    [line] = capsys.readouterr().err.splitlines()
    return line, run


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_of_the_users_goes_wrong_names_the_users_own_line(fault, capsys):
    said, run = failed(capsys, fault)
    facts, report, log = run.facts(), run.report.read_text(), run.run_log.read_text()
    line = said.removeprefix("error: ").partition("; traceback in ")[0]
    assert fault in line and f"{HERE}:" in line and said.count(str(run.run_log)) == 1, said
    assert facts["status"] == "failed" and facts["failure"] == line and line in report
    assert "Traceback (most recent call last)" in log and HERE in log
    assert run.id in said.partition("--resume")[2] and f"--resume {run.id}" in report


def test_the_users_line_is_neither_ours_nor_a_librarys():
    with pytest.raises(ValueError) as of_a_library:
        gymnasium.spaces.Discrete(0)  # called from here
    assert HERE in own_line(of_a_library.value)
    error = ValueError("nobody raised it")
    assert own_line(error) == ""
    with pytest.raises(RuntimeError) as later:
        raise RuntimeError from error
    assert HERE in own_line(later.value)
    error.__cause__ = later.value
    assert HERE in own_line(error), "its cause was raised here"


def test_without_a_run_log_nobody_points_at_one(capsys, monkeypatch):
    monkeypatch.setenv("STRIDE_NO_RUN_LOG", "1")
    said, run = failed(capsys)
    assert "no traceback was kept: STRIDE_NO_RUN_LOG is set" in said and not run.run_log.exists()
    assert "run.log" not in run.report.read_text()


def test_listing_shows_what_failed_beside_what_was_reached_before(capsys, root):
    def row():
        print_variants("CartPole-v1:ppo")
        lines = capsys.readouterr().out.splitlines()
        return next(line for line in lines if line.startswith("CartPole-v1:ppo "))

    assert "20/20   -" in row()
    run = gallery_copy("ppo", root)
    assert re.search(r"20/20   [\d.]+ not solved ", row())
    other = RunDir(root / "20990101-000000-CartPole-v1-ppo-s1-zzzz")
    for folder in (other.path, root / "damaged"):
        folder.mkdir()
    write_json(other.config_json, {**run.facts(), "status": "failed", "failure": "x"})
    (root / "damaged" / "config.json").write_text('{"env_id": 3, "outcome": []}')
    assert "failed" in row() and other in list_runs()


def test_inspector_player_and_resume_say_why(capsys):
    said, run = failed(capsys)
    runs, reason = Runs(), "KeyError: 'speed'"
    (line,) = runs.page().lines
    assert line.status == "failed" and line.reason == run.facts()["failure"] and line.reason in said
    assert "KeyError" in runs_table(runs.page()) and "KeyError" in overview(runs.look_into(run.id))
    note = load_run(run.id).notes[-1]
    assert note.startswith(f"{run.id} failed: ") and reason in note
    assert train.command(["--resume", run.id]) == 1 and f"{run.id} failed: " in capsys.readouterr().out
