"""A run that failed says so wherever one looks: terminal, config.json, report.md, --list-envs, inspector, --resume."""

import gymnasium
import numpy as np
import pytest
import torch
from tiny_runs import TINY, tiny_run

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
from stride.runstore.run_files import read_json, write_json


class Worn(gymnasium.Env):
    """Goes wrong in its 20th step, in the way it is told."""

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
        reward = float("nan") if wrong == "void" else 1.0
        return np.zeros(2, np.float32), reward, self.age % 5 == 0, False, {}


class Torn(gymnasium.Wrapper):
    """A wrapper of the user's."""

    def step(self, action):
        answer = super().step(action)
        if self.unwrapped.age > 20:
            raise KeyError("speed")
        return answer


class Stubborn(ActorCritic):
    """A policy of the user's."""

    def act(self, *given):
        raise LookupError("no such head")


POLICIES["stubborn"] = Stubborn
gymnasium.register("Worn-v0", Worn, max_episode_steps=50)
gymnasium.register("WornWrapped-v0", lambda what="": Torn(Worn(what)), max_episode_steps=50)
CHANGED = ("CartPole-v1:ppo", "-q", f"env_id={__name__}:Worn-v0", "spec={}", "engine=eager",
           *(f"{key}={value}" for key, value in TINY.items()))  # fmt: skip
HERE = "test_failed_runs.py"


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    return tmp_path / "runs"


def failed(capsys, *words):
    """The line that was said of a training that went wrong, and its run."""
    other = any(word.startswith("env_id=") for word in words)
    assert train.command([*(word for word in CHANGED if not (other and word.startswith("env_id="))), *words]) == 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    return said, RunDir.find("@last")


@pytest.mark.parametrize(("words", "fragment"), [
    (["env_kwargs={what: memory}"], "world 0: MemoryError"),
    (["env_kwargs={what: void}"], "reward: NaN of environment 0"),
    (["env_kwargs={what: old reset}"], "its reset answers array([0., 0.], dtype=float32) (ndarray), not"),
    ([f"env_id={__name__}:WornWrapped-v0"], "KeyError: 'speed'"),
    (["policy=stubborn"], "LookupError: no such head"),
])  # fmt: skip
def test_whatever_of_the_users_goes_wrong_names_the_users_own_line(words, fragment, capsys):
    said, run = failed(capsys, *words)
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


def test_whose_line_it_is_is_neither_ours_nor_a_librarys():
    def fails(what):
        try:
            what()
        except (ValueError, TypeError, RuntimeError) as error:
            return own_line(error)

    assert HERE in fails(lambda: gymnasium.spaces.Discrete(0))  # called from here
    error = ValueError("nobody raised it")
    assert own_line(error) == ""
    try:
        raise RuntimeError from error
    except RuntimeError as later:
        assert HERE in own_line(later)


def test_without_a_run_log_nobody_points_at_one(capsys, monkeypatch):
    monkeypatch.setenv("STRIDE_NO_RUN_LOG", "1")
    said, run = failed(capsys, "env_kwargs={what: memory}")
    assert "no traceback was kept: STRIDE_NO_RUN_LOG is set" in said and not run.run_log.exists()
    assert "run.log" not in run.report.read_text()


def test_words_that_are_wrong_make_no_run(capsys):
    assert train.command([*CHANGED, "policy=stuborn"]) == 2 and list_runs() == []
    assert "did you mean stubborn?" in capsys.readouterr().err


def test_listing_shows_what_failed_beside_what_was_reached_before(capsys, root):
    tiny_run()
    print_variants("CartPole-v1:ppo")
    before = capsys.readouterr().out
    run = RunDir(root / "20990101-000000-CartPole-v1-ppo-s1-zzzz")
    run.path.mkdir()
    write_json(run.config_json, {**RunDir.find("@last").facts(), "status": "failed", "failure": "x"})
    (root / "damaged").mkdir()
    (root / "damaged" / "config.json").write_text('{"env_id": 3, "outcome": []}')
    print_variants("CartPole-v1:ppo")
    listed = capsys.readouterr().out
    reached = next(line for line in before.splitlines() if line.startswith("CartPole-v1:ppo "))
    assert "failed" not in reached and " not solved " in reached
    now = next(line for line in listed.splitlines() if line.startswith("CartPole-v1:ppo "))
    assert "failed" in now and run.id in {each.id for each in list_runs()}


def test_the_inspector_says_why(capsys):
    said, run = failed(capsys, "env_kwargs={what: void}")
    runs = Runs()
    (line,) = runs.page().lines
    assert line.status == "failed" and line.reason == read_json(run.config_json)["failure"] and line.reason in said
    assert "reward: NaN of environment 0" in runs_table(runs.page())
    assert "reward: NaN of environment 0" in overview(runs.look_into(run.id))


def test_who_goes_on_or_plays_is_told(capsys, monkeypatch):
    _, run = failed(capsys, "env_kwargs={what: void}", "nan_guard=stop")
    line = f"{run.id} failed: reward: NaN of environment 0"
    assert load_run(run.id).notes[-1].startswith(line)
    monkeypatch.setattr(train, "fate", lambda run, facts: "")
    assert train.command(["--resume", run.id]) == 1
    assert line not in capsys.readouterr().out
