"""The page docs/families/envpool.md with a stand-in for EnvPool, and what names of the removed backend answer."""

import json

import pytest
from tiny_runs import tiny_run
from tutorial_pages import Page

from stride.commands import run_play, runs, train
from stride.config.extras import ENVPOOL
from stride.envs_gym.make import UnknownEnvError, find_spec
from stride.trainer_callbacks.resume import settings_hash

STAND_IN = """
from types import SimpleNamespace
import gymnasium, numpy as np

def make_spec(task):
    return SimpleNamespace(gymnasium_observation_space=gymnasium.spaces.Box(-1, 1, (17,), np.float64),
                           gymnasium_action_space=gymnasium.spaces.Box(-1, 1, (6,), np.float32))

class Pool:
    def __init__(self, seed):
        self.draws = np.random.default_rng(seed)
    def reset(self):
        return self.draws.normal(size=(1, 17)), {}
    def step(self, action):
        assert action.shape == (1, 6)
        no = np.array([False])
        return self.draws.normal(size=(1, 17)), action.sum(1), no, no, {}
    def close(self):
        pass

def make_gymnasium(task, num_envs, seed):
    assert (task, num_envs) == ("HalfCheetah-v5", 1)
    return Pool(seed)
"""
SHORT = "n_envs=2 n_steps=8 batch_size=16 eval_freq_epochs=null test_episodes=0"


@pytest.mark.slow
def test_the_task_of_the_page_trains_and_resumes_exactly(tmp_path):
    page = Page("../families/envpool.md", tmp_path)
    assert page.changes() == ({"cheetah.py"}, set())
    (page.copy / "envpool.py").write_text(STAND_IN)
    (command,) = page.commands("cheetah:EnvPoolCheetah-v0:ppo")
    page.run(f"{command.replace('max_timesteps=1e6', 'max_timesteps=64')} {SHORT}")
    said = page.run("python train.py --resume @last max_timesteps=128")
    facts = [json.loads(path.read_text()) for path in (page.copy / "runs").glob("2*/config.json")]
    assert [each["resume"] for each in facts] == ["exact"] and "cannot be restored" not in said


def test_an_old_run_is_listed_and_refused_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    run = tiny_run("CartPole-v1:ppo", hidden_dims="[8]")
    facts = json.loads(run.config_json.read_text())
    facts["env_backend"] = facts["config"]["env_backend"] = "envpool"
    facts["settings_sha256"] = settings_hash(facts)
    run.config_json.write_text(json.dumps(facts))
    capsys.readouterr()
    assert runs.main(["list"]) == 0 and run.id in capsys.readouterr().out
    for command, words in (
        (run_play.command, ["--run-id", run.id, "--headless"]),
        (train.command, ["--resume", run.id]),
    ):
        assert command(words) == 2
        assert capsys.readouterr().err == f"error: {run.id}: {ENVPOOL}\n"


def test_an_id_of_the_backend_says_what_to_do(capsys):
    assert train.command(["envpool/WalkerWalk-v1:ppo"]) == 2
    assert ENVPOOL in capsys.readouterr().err
    with pytest.raises(UnknownEnvError, match="register a task with Gymnasium"):
        find_spec("envpool/WalkerWalk-v1")
