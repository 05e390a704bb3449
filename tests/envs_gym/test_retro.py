"""stable-retro's games behind the contract: an emulator a process, however many worlds, resumed to the bit."""

import sys

import pytest
import torch
from tiny_runs import tiny_run

from stride.config.extras import RETRO_EXTRA, missing
from stride.config.scenarios import retro_games
from stride.config.schema import Config
from stride.envs_gym.make import make_envs
from stride.utils.user_error import UserError

GAME = "Retro/Airstriker-Genesis-v0"  # the one whose ROM comes along
played = pytest.mark.skipif(missing(GAME) is not None, reason="stable-retro is not installed")


def test_games_are_those_whose_rom_is_here(tmp_path, monkeypatch):
    for game, file in (("Here-Nes-v0", "rom.nes"), ("Gone-Nes-v0", "rom.sha"), ("Patch-Nes-v0", "rom.delta")):
        folder = tmp_path / "stable_retro/data/stable" / game
        folder.mkdir(parents=True)
        (folder / file).write_text("")
    (tmp_path / "stable_retro/__init__.py").write_text("raise RuntimeError('nobody may import this')")
    monkeypatch.syspath_prepend(tmp_path)
    assert retro_games() == ["Here-Nes-v0"]
    with pytest.raises(UserError, match=r"no ROM of 'Gone-Nes-v0' is here: .*stable_retro.import"):
        make_envs(Config(env_id="Retro/Gone-Nes-v0"), 1)


def test_without_the_package_the_line_is_the_cure(monkeypatch):
    monkeypatch.setitem(sys.modules, RETRO_EXTRA.module, None)
    with pytest.raises(UserError) as caught:
        make_envs(Config(env_id="Retro/Other-Nes-v0"), 1)
    assert str(caught.value) == "Retro/Other-Nes-v0 needs stable-retro: pip install 'stride-rl[retro]'"


@played
@pytest.mark.slow
def test_worlds_have_an_emulator_each_and_go_on_to_the_bit():
    config = Config(env_id=GAME, env_kwargs={"obs_type": "ram"})
    envs, again = make_envs(config, 2), make_envs(config, 2)  # four emulators beside each other
    assert envs.resume == "exact" and envs.action_space.n == 126
    generator = torch.Generator().manual_seed(0)
    actions = torch.randint(126, (60, 2), generator=generator)
    envs.reset(1)
    for action in actions[:30]:
        envs.step(action)
    again.load_state_dict(envs.state_dict())
    for action in actions[30:]:
        one, other = envs.step(action), again.step(action)
        assert (one.obs == other.obs).all() and (one.reward == other.reward).all() and not other.truncated.any()
    assert (one.obs[0] != one.obs[1]).any()
    emulator = envs.envs[0].unwrapped._emulator.process
    envs.close()
    again.close()
    assert emulator.returncode == 0


@played
@pytest.mark.slow
@pytest.mark.parametrize(
    ("kwargs", "complaint"),
    [({"state": "Level9"}, "has no 'Level9'.* it has Level1"), ({"actions": "all"}, "takes choices or buttons")],
)
def test_wrong_arguments_are_one_line(kwargs, complaint):
    with pytest.raises(UserError, match=complaint):
        make_envs(Config(env_id=GAME, env_kwargs=kwargs), 1)


@played
@pytest.mark.slow
def test_it_trains(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    tiny = {"n_steps": 8, "batch_size": 0.5, "n_epochs": 1, "eval_max_steps": 10, "test_episodes": 0, "hidden_dims": 8}
    run = tiny_run(f"{GAME}:ppo", max_timesteps=32, max_episode_steps=12, frame_stack=1, **tiny)
    assert run.facts()["env_backend"] == "gym" and run.facts()["resume"] == "exact"
