"""A run that failed says so wherever one looks: terminal, config.json, report.md, --list-envs, inspector, --resume."""

import re

import gymnasium
import numpy as np
import pytest
import torch
from gallery import gallery_copy
from tiny_runs import TINY

from stride.agents.networks.actor_critic import ActorCritic
from stride.agents.networks.policies import POLICIES
from stride.agents.trained.loading import load_run
from stride.commands import train
from stride.config.listing import print_variants
from stride.envs_gym.async_env import AsyncEnv
from stride.envs_gym.blame import EnvError, own_line
from stride.inspector.overview import overview
from stride.inspector.runs import Runs
from stride.inspector.table import runs_table
from stride.runstore.run_dir import RunDir, list_runs
from stride.runstore.run_files import write_json

HERE = "test_failed_runs.py"


class Worn(gymnasium.Env):
    """Goes wrong in its 20th step, in the way that it is given."""

    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, what=""):
        self.what, self.age = what, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        zeros = np.zeros(2, np.float32)
        return zeros if self.what == "old reset" else (zeros, {})

    def step(self, action):
        self.age += 1
        wrong = self.age >= 20 and self.what
        if wrong == "memory":
            raise MemoryError
        return np.zeros(2, np.float32), float("nan") if wrong == "void" else 1.0, self.age % 5 == 0, False, {}


class Torn(gymnasium.Wrapper):
    """A wrapper of the user's."""

    def step(self, action):
        if self.unwrapped.age > 20:
            raise KeyError("speed")
        return super().step(action)


class Stubborn(ActorCritic):
    """A policy of the user's."""

    def act(self, *given):
        raise LookupError("no such head")


gymnasium.register("Worn-v0", Worn, max_episode_steps=50)
gymnasium.register("WornWrapped-v0", lambda what="": Torn(Worn(what)), max_episode_steps=50)


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setitem(POLICIES, "stubborn", Stubborn)
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def failed(capsys, *words, world="Worn-v0"):
    """The line that was printed of a training that went wrong, and its run."""
    tiny = [f"{key}={value}" for key, value in TINY.items()]
    world = [f"env_id={__name__}:{world}", "spec={}", "engine=eager"]
    assert train.command(["CartPole-v1:ppo", "-q", *world, *tiny, *words]) == 1
    [line] = capsys.readouterr().err.splitlines()
    return line, RunDir.find("@last")


@pytest.mark.parametrize(("word", "world", "fragment"), [
    ("env_kwargs={what: memory}", "Worn-v0", "world 0: MemoryError"),
    ("env_kwargs={what: void}", "Worn-v0", "reward: NaN of environment 0"),
    ("env_kwargs={what: old reset}", "Worn-v0", "its reset answers array([0., 0.], dtype=float32) (ndarray), not"),
    ("seed=1", "WornWrapped-v0", "KeyError: 'speed'"),
    ("policy=stubborn", "Worn-v0", "LookupError: no such head"),
])  # fmt: skip
def test_whatever_of_the_users_goes_wrong_names_the_users_own_line(word, world, fragment, capsys):
    said, run = failed(capsys, word, world=world)
    facts, report, log = run.facts(), run.report.read_text(), run.run_log.read_text()
    line = said.removeprefix("error: ").partition("; traceback in ")[0]
    assert fragment in line and f"{HERE}:" in line and said.count(str(run.run_log)) == 1, said
    assert facts["status"] == "failed" and facts["failure"] == line and line in report
    assert "Traceback (most recent call last)" in log and HERE in log
    assert run.id in said.partition("--resume")[2] and f"--resume {run.id}" in report


@pytest.mark.slow
def test_a_worker_process_names_the_users_own_line_too():
    env = AsyncEnv(f"{__name__}:Worn-v0", 2, {"what": "memory"}, workers=2)
    env.reset(1)
    with pytest.raises(EnvError, match=rf"world [01] \(worker [01]\): MemoryError \(.*{HERE}:\d+\)") as caught:
        for _ in range(30):
            env.step(torch.zeros(2, dtype=torch.int64))
    assert f'{HERE}", line' in str(caught.value.__cause__)


def test_the_users_line_is_neither_ours_nor_a_librarys():
    with pytest.raises(ValueError) as of_a_library:
        gymnasium.spaces.Discrete(0)  # called from here
    assert HERE in own_line(of_a_library.value)
    error = ValueError("nobody raised it")
    assert own_line(error) == ""
    with pytest.raises(RuntimeError) as later:
        raise RuntimeError from error
    assert HERE in own_line(later.value)


def test_without_a_run_log_nobody_points_at_one(capsys, monkeypatch):
    monkeypatch.setenv("STRIDE_NO_RUN_LOG", "1")
    said, run = failed(capsys, "env_kwargs={what: memory}")
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
    said, run = failed(capsys, "env_kwargs={what: void}", "nan_guard=stop")
    runs, reason = Runs(), "reward: NaN of environment 0"
    (line,) = runs.page().lines
    assert line.status == "failed" and line.reason == run.facts()["failure"] and line.reason in said
    assert reason in runs_table(runs.page()) and reason in overview(runs.look_into(run.id))
    assert load_run(run.id).notes[-1].startswith(f"{run.id} failed: {reason}")
    assert train.command(["--resume", run.id]) == 1 and reason in capsys.readouterr().out
