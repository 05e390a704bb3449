"""VizDoom's, stable-retro's and Brax's worlds: what is there, what is refused, and (slow) the games themselves."""

import os

import numpy as np
import pytest
import torch
from playing import hand_over, random_actions, record, refused

from lab.brax_eval_policy import main as eval_policy
from lab.brax_train_policy import main as train_policy
from lab.smoke_test_envs import WORLDS, play
from stride.config.extras import missing
from stride.config.listing import print_variants
from stride.config.scenarios import doom_scenarios, retro_games
from stride.config.schema import Config, PPOConfig
from stride.envs_gym import brax_worlds
from stride.envs_gym.make import make_envs
from stride.utils.user_error import UserError

DOOM = "VizDoom/basic"
GAME = "Retro/Airstriker-Genesis-v0"  # the one whose ROM comes along
doom = pytest.mark.skipif(missing(DOOM) is not None, reason="VizDoom is not installed")
retro = pytest.mark.skipif(missing(GAME) is not None, reason="stable-retro is not installed")


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Packages `vizdoom` and `stable_retro` that nobody may import, and a folder of scenarios of one's own."""
    files = [f"vizdoom/scenarios/{name}.cfg" for name in ("basic", "cig")]
    files += [f"stable_retro/data/stable/{file}" for file in
              ("Here-Nes-v0/rom.nes", "Gone-Nes-v0/rom.sha", "Patch-Nes-v0/rom.delta")]  # fmt: skip
    files += ["mine/basic.cfg", "mine/maze.cfg"]
    for file in files:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("")
    for name in ("vizdoom", "stable_retro"):
        (tmp_path / name / "__init__.py").write_text("raise RuntimeError('nobody may import this')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("VIZDOOM_SCENARIOS_DIR", str(tmp_path / "mine"))
    return tmp_path


def test_scenarios_are_found_by_their_files_and_ones_own_win(packages, capsys):
    scenarios = doom_scenarios()
    assert [*scenarios] == ["basic", "maze", "cig"]
    assert scenarios["basic"].parent == packages / "mine" and scenarios["cig"].parent.name == "scenarios"
    print_variants("vizdoom")
    assert "VizDoom/NAME:ALGORITHM with NAME: basic, maze, cig" in capsys.readouterr().out
    print_variants("Taxi")
    assert "VizDoom" not in capsys.readouterr().out
    assert "VizDoom has no scenario 'mase'; did you mean maze?" in refused("VizDoom/mase")


def test_a_folder_of_scenarios_that_is_not_there_is_one_line(packages, monkeypatch, capsys):
    monkeypatch.setenv("VIZDOOM_SCENARIOS_DIR", f"{packages / 'mine'}{os.pathsep}/nope")
    assert "VIZDOOM_SCENARIOS_DIR: there is no folder /nope" in refused("VizDoom/maze")
    with pytest.raises(UserError, match="there is no folder /nope"):
        print_variants("vizdoom")
    print_variants("Taxi")  # which asks for no scenario
    assert "Taxi" in capsys.readouterr().out


def test_games_are_those_whose_rom_is_here(packages):
    assert retro_games() == ["Here-Nes-v0"]
    line = refused("Retro/Gone-Nes-v0")
    assert "there is no ROM of 'Gone-Nes-v0': " in line and "stable_retro.import" in line


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env_id", "kwargs", "complaint"),
    [
        pytest.param(DOOM, {"resolution": "160x121"}, "did you mean 160x120", marks=doom),
        pytest.param(DOOM, {"tics": 0}, "tics must be at least 1", marks=doom),
        pytest.param(DOOM, {"buttons": "two"}, "takes one or any", marks=doom),
        pytest.param(DOOM, {"config_path": "/nowhere.cfg"}, "there is no file /nowhere.cfg", marks=doom),
        pytest.param(GAME, {"state": "Level9"}, "has no 'Level9'", marks=retro),
        pytest.param(GAME, {"actions": "all"}, "takes choices or buttons", marks=retro),
    ],
)
def test_wrong_arguments_are_one_line(env_id, kwargs, complaint):
    assert complaint in refused(env_id, env_kwargs=kwargs)


@doom
@pytest.mark.slow
def test_time_cuts_an_episode_and_its_last_picture_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    envs = make_envs(Config(env_id=DOOM, env_kwargs={"variables": True}), 2)
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


@doom
@pytest.mark.slow
def test_a_hit_ends_the_episode_and_shapers_are_not_reported():
    wrappers = ({"id": "DoomKillShaper", "gamma": 1.0, "scale": 50.0}, {"id": "DoomHealthShaper", "scale": 1.0})
    envs = make_envs(Config(env_id=DOOM, env_wrappers=wrappers), 4)
    envs.reset(1)
    generator, ended = np.random.default_rng(0), []
    for _ in range(300):
        step = envs.step(torch.from_numpy(generator.choice([1, 2, 3], 4)))
        ended += step.episode_return[step.terminated].tolist()
    assert ended and max(ended) > 0, "nobody ever hit, or a return is not the scenario's own"
    assert max(ended) <= 100, "the shaper's 50 is in the return"
    envs.close()


@doom
@pytest.mark.slow
def test_a_resume_is_a_seam_and_the_same_seed_begins_alike():
    config = Config(env_id="VizDoom/defend_the_center")
    envs, again = make_envs(config, 2), make_envs(config, 2)
    first = envs.reset(5).clone()
    assert (again.reset(5) == first).all() and first.float().std() > 5
    envs.step(torch.tensor([1, 2]))
    hand_over(envs, again)
    cut = again.step(torch.tensor([1, 2]))
    assert cut.truncated.all() and cut.reward.tolist() == [0.0, 0.0]
    envs.close(), again.close()


@retro
@pytest.mark.slow
def test_worlds_have_an_emulator_each_and_go_on_to_the_bit():
    config = Config(env_id=GAME, env_kwargs={"obs_type": "ram"})
    envs, again = make_envs(config, 2), make_envs(config, 2)  # four emulators beside each other
    assert envs.resume == "exact" and envs.action_space.n == 126
    actions = random_actions(envs, 60)
    envs.reset(1)
    record(envs, actions[:30])
    hand_over(envs, again)
    assert record(envs, actions[30:]) == record(again, actions[30:])
    assert (envs._step.obs[0] != envs._step.obs[1]).any()
    emulator = envs.envs[0].unwrapped._emulator.process
    envs.close(), again.close()
    assert emulator.returncode == 0


# ---- Brax: the contract, starts of their own, and a training that goes on and is evaluated

FAST = PPOConfig(env_id="brax/fast", max_episode_steps=7)  # physics of two numbers, compiled in a second
PENDULUM = "brax/inverted_pendulum"


def test_without_brax_there_is_one_line(monkeypatch):
    monkeypatch.setattr(brax_worlds, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^brax/fast needs Brax: pip install 'stride-rl\[brax\]'"):
        make_envs(FAST, 2)


@pytest.mark.slow
def test_they_keep_the_contract_and_are_restored_to_the_bit():
    pytest.importorskip("brax")
    envs, copy = make_envs(FAST, WORLDS), make_envs(FAST, WORLDS)
    played = play(envs, copy, 30)
    assert played.resume == "exact" and len(played.returns) == 4 * WORLDS and envs.time_limit == 7
    assert envs.worlds._advance._cache_size() == 1  # one program for all steps


@pytest.mark.slow
def test_every_episode_begins_elsewhere_and_ends_where_it_ended():
    pytest.importorskip("brax")
    config = PPOConfig(env_id=PENDULUM, max_episode_steps=3, env_kwargs={"backend": "spring"})
    envs = make_envs(config, 4)
    before = envs.reset(3)
    starts = [before]
    for _ in range(6):  # JAX never writes into what it told
        step = envs.step(torch.zeros(4, 1))
        assert 0 < (step.final_obs - before).abs().max() < 0.5  # a step's way
        before = step.obs
        if step.truncated.all():
            starts.append(before)
    assert len(starts) == 3 and len({tuple(row.tolist()) for each in starts for row in each}) == 12
    assert torch.equal(make_envs(config, 2).reset(3), starts[0][:2])  # whatever the number of worlds
    with pytest.raises(UserError, match="brax/inverted_pendulum refuses env_kwargs"):
        make_envs(PPOConfig(env_id=PENDULUM, env_kwargs={"nonsense": 1}), 2)


@pytest.mark.slow
def test_a_policy_is_trained_goes_on_and_is_evaluated(tmp_path, monkeypatch, capsys):
    pytest.importorskip("brax")
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    tiny = ["n_envs=8", "n_steps=16", "batch_size=0.5", "n_epochs=1", "eval_freq_epochs=null", "test_episodes=0"]
    assert train_policy(["fast", "max_timesteps=256", "max_episode_steps=20", *tiny]) == 0
    assert "torch (it is one simulation that returns tensors)" in capsys.readouterr().out
    from stride.commands import train

    assert train.command(["--resume", "@last", "max_timesteps=512"]) == 0
    out = capsys.readouterr().out
    assert "brax/fast:ppo" in out and "seam" not in out  # the test above shows that its worlds go on to the bit
    assert eval_policy(["--episodes", "3"]) == 0
    assert capsys.readouterr().out.count("episode ") == 3
