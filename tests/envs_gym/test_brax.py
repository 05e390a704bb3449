"""Worlds of Brax: the contract, starts of their own, exact resume, and a training that goes on and is evaluated."""

import pytest
import torch

from lab.brax_eval_policy import main as eval_policy
from lab.brax_train_policy import main as train_policy
from lab.smoke_test_envs import WORLDS, play
from stride.config.schema import PPOConfig
from stride.envs_gym import brax_worlds
from stride.envs_gym.make import make_envs
from stride.utils.user_error import UserError

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
    assert "torch (it is one simulation that answers tensors)" in capsys.readouterr().out
    from stride.commands import train

    assert train.command(["--resume", "@last", "max_timesteps=512"]) == 0
    out = capsys.readouterr().out
    assert "brax/fast:ppo" in out and "seam" not in out  # the test above shows that its worlds go on to the bit
    assert eval_policy(["--episodes", "3"]) == 0
    assert capsys.readouterr().out.count("episode ") == 3
