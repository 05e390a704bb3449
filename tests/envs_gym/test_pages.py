"""Pages of docs/families: arguments by name, and two of them typed by a machine."""

import inspect
import json
import re

import pytest
from commands import ROOT
from tiny_runs import tiny_run
from tutorial_pages import Page

from stride.commands import run_play, runs, train
from stride.config.extras import ENVPOOL
from stride.envs_fast import WORLDS, bandit
from stride.envs_gym.doom import DoomWorld
from stride.envs_gym.make import UnknownEnvError, find_spec
from stride.envs_gym.retro import RetroWorld
from stride.trainer_callbacks.resume import settings_hash

OURS = {"scenario", "game", "render_mode", "arms_seed"}  # set by the id, or by who watches
MINATAR = WORLDS["MinAtar/Breakout-v1"].setting
MADE = {"vizdoom": DoomWorld, "retro": RetroWorld, "bandits": bandit.setting, "minatar": MINATAR}
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


@pytest.mark.parametrize("page", MADE)
def test_its_arguments_are_those_of_the_constructor(page):
    text = (ROOT / "docs" / "families" / f"{page}.md").read_text()
    _, *rows = re.findall(r"^\| `(\w+)(?:: ([^`]*))?` \|", text, re.MULTILINE)  # but the table's head
    parameters = inspect.signature(MADE[page]).parameters
    assert {name for name, _ in rows} == {*parameters} - OURS
    for name, default in rows:
        shown = str(parameters[name].default).lower().replace('"', "")
        assert default.strip('"') in ("", shown), name


@pytest.mark.slow
def test_worlds_of_tensors_train_and_are_played(tmp_path):
    page = Page("../families/tensor_worlds.md", tmp_path)
    assert page.changes() == ({"drift.py"}, set())
    (command,) = page.commands("drift:Drift-v0:ppo")
    assert "256, torch (it is one simulation that returns tensors)" in page.run(command)
    assert "episode   3" in page.run("python run_play.py --run-id @last --headless --episodes 3")


@pytest.mark.slow
def test_the_task_of_envpools_page_trains_and_resumes_exactly(tmp_path):
    page = Page("../families/envpool.md", tmp_path)
    assert page.changes() == ({"cheetah.py"}, set())
    (page.copy / "envpool.py").write_text(STAND_IN)
    (command,) = page.commands("cheetah:EnvPoolCheetah-v0:ppo")
    page.run(f"{command.replace('max_timesteps=1e6', 'max_timesteps=64')} {SHORT}")
    assert "cannot be restored" not in page.run("python train.py --resume @last max_timesteps=128")
    (file,) = (page.copy / "runs").glob("2*/config.json")
    assert json.loads(file.read_text())["resume"] == "exact"


def test_an_old_run_of_envpool_is_listed_and_refused_by_name(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    run = tiny_run("CartPole-v1:ppo", hidden_dims="[8]")
    facts = run.facts()
    facts["env_backend"] = facts["config"]["env_backend"] = "envpool"
    facts["settings_sha256"] = settings_hash(facts)
    run.config_json.write_text(json.dumps(facts))
    capsys.readouterr()
    assert runs.main(["list"]) == 0 and run.id in capsys.readouterr().out
    commands = (run_play.command, ["--run-id", run.id, "--headless"]), (train.command, ["--resume", run.id])
    for command, words in commands:
        assert command(words) == 2
        assert capsys.readouterr().err == f"error: {run.id}: {ENVPOOL}\n"
    assert train.command(["envpool/WalkerWalk-v1:ppo"]) == 2
    assert ENVPOOL in capsys.readouterr().err
    with pytest.raises(UnknownEnvError, match="register the task with Gymnasium"):
        find_spec("envpool/WalkerWalk-v1")
