"""VizDoom's worlds behind the contract: what is found, what is refused in a line, and (slow) the game itself."""

import sys

import numpy as np
import pytest
import torch
from tiny_runs import tiny_run

from stride.config.extras import DOOM_EXTRA, missing
from stride.config.listing import print_variants
from stride.config.scenarios import doom_scenarios
from stride.config.schema import Config
from stride.envs_gym.make import make_envs
from stride.runstore.metrics_table import read_csv
from stride.utils.user_error import UserError

game = [pytest.mark.slow, pytest.mark.skipif(missing("VizDoom/basic") is not None, reason="VizDoom is not installed")]


def installed(*marks):
    def mark(test):
        for each in (*game, *marks):
            test = each(test)
        return test

    return mark


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package `vizdoom` with two scenarios, and a folder of one's own with one of the same name and another."""
    places = {"package/vizdoom/scenarios": ("basic", "cig"), "mine": ("basic", "maze")}
    for folder, names in places.items():
        (tmp_path / folder).mkdir(parents=True)
        for name in names:
            (tmp_path / folder / f"{name}.cfg").write_text("")
    (tmp_path / "package/vizdoom/__init__.py").write_text("raise RuntimeError('nobody may import this')")
    monkeypatch.syspath_prepend(tmp_path / "package")
    monkeypatch.setenv("VIZDOOM_SCENARIOS_DIR", str(tmp_path / "mine"))
    return tmp_path


def test_scenarios_are_found_by_their_files_and_ones_own_win(package):
    found = doom_scenarios()
    assert [*found] == ["basic", "maze", "cig"]
    assert found["basic"].parent == package / "mine" and found["cig"].parent.name == "scenarios"


def test_list_envs_tells_which_are_here(package, capsys):
    print_variants("vizdoom")
    assert "VizDoom/NAME:ALGORITHM here: basic, maze, cig" in capsys.readouterr().out
    print_variants("Taxi")
    assert "VizDoom" not in capsys.readouterr().out


def test_a_typo_names_the_nearest_scenario(package):
    with pytest.raises(UserError, match=r"no scenario 'mase' of VizDoom; did you mean maze\?"):
        make_envs(Config(env_id="VizDoom/mase"), 1)


def test_without_the_package_the_line_is_the_cure(monkeypatch):
    monkeypatch.setitem(sys.modules, DOOM_EXTRA.module, None)
    with pytest.raises(UserError) as caught:
        make_envs(Config(env_id="VizDoom/other"), 1)
    assert str(caught.value) == "VizDoom/other needs VizDoom: pip install 'stride-rl[vizdoom]'"


@installed()
@pytest.mark.parametrize(
    ("kwargs", "complaint"),
    [
        ({"resolution": "160x121"}, "did you mean 160x120"),
        ({"tics": 0}, "tics must be at least 1"),
        ({"buttons": "two"}, "takes one or any"),
        ({"config_path": "/nowhere.cfg"}, "there is no file /nowhere.cfg"),
    ],
)
def test_wrong_arguments_are_one_line(kwargs, complaint):
    with pytest.raises(UserError, match=complaint):
        make_envs(Config(env_id="VizDoom/basic", env_kwargs=kwargs), 1)


@installed()
def test_time_cuts_an_episode_and_its_last_picture_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    envs = make_envs(Config(env_id="VizDoom/basic", env_kwargs={"variables": True}), 2)
    assert (envs.resume, envs.time_limit) == ("seam", None)
    assert envs.observation_space["screen"].shape == (3, 120, 160) and envs.action_space.n == 4
    envs.reset(3)
    for _ in range(75):  # 300 tics at 4 each
        step = envs.step(torch.zeros(2, dtype=torch.int64))
    assert step.truncated.all() and not step.terminated.any()
    assert step.episode_return.tolist() == [-300.0, -300.0]
    assert step.final_obs["screen"].float().mean() > 10 and step.obs["variables"].tolist() == [[50.0], [50.0]]
    envs.close()
    assert not [*tmp_path.iterdir()], "the game leaves files where one stands"


@installed()
def test_a_hit_ends_the_episode_and_shapers_are_not_reported():
    wrappers = ({"id": "DoomKillShaper", "gamma": 1.0, "scale": 50.0}, {"id": "DoomHealthShaper", "scale": 1.0})
    envs = make_envs(Config(env_id="VizDoom/basic", env_wrappers=wrappers), 4)
    envs.reset(1)
    generator, ended = np.random.default_rng(0), []
    for _ in range(300):
        step = envs.step(torch.from_numpy(generator.choice([1, 2, 3], 4)))
        ended += step.episode_return[step.terminated].tolist()
    assert ended and max(ended) > 0, "nobody ever hit, or a return is not the scenario's own"
    assert max(ended) <= 100, "the shaper's 50 is in the return"
    envs.close()


@installed()
def test_a_resume_is_a_seam_and_the_same_seed_begins_alike():
    config = Config(env_id="VizDoom/defend_the_center")
    envs, again = make_envs(config, 2), make_envs(config, 2)
    first = envs.reset(5).clone()
    assert (again.reset(5) == first).all() and first.float().std() > 5
    envs.step(torch.tensor([1, 2]))
    again.load_state_dict(envs.state_dict())
    cut = again.step(torch.tensor([1, 2]))
    assert cut.truncated.all() and cut.reward.tolist() == [0.0, 0.0]
    envs.close()
    again.close()


@installed()
def test_it_trains(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    run = tiny_run("VizDoom/basic:ppo", n_steps=80, max_timesteps=320, test_episodes=2, hidden_dims=16)
    assert any("train/loss/policy" in row for row in read_csv(run.metrics_csv))
    assert run.facts()["resume"] == "seam"
