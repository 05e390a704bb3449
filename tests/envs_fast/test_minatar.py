"""MinAtar's compiled games against what its package answered, chances, pictures, and the way to them from a config."""

from dataclasses import replace

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode
from playing import random_actions

from lab import parity
from lab.minatar_states import GAMES
from stride.agents.trained.loading import to_play
from stride.config.schema import Config
from stride.envs_fast.minatar import breakout, game
from stride.envs_fast.minatar import space_invaders as invaders
from stride.envs_fast.registry import make
from stride.envs_gym.backends import choose_backend
from stride.envs_gym.make import UnknownEnvError, find_spec, make_envs

PALETTE = [[22, 61, 78], [84, 121, 47], [208, 126, 147], [193, 202, 243]]  # seaborn.color_palette("cubehelix", 4)


@pytest.mark.parametrize("name", GAMES)
def test_steps_from_anywhere_are_the_packages(name):
    """By its recorded answers; `python -m lab.parity` asks the package itself, and says where they differ."""
    with np.load(parity.FILE) as file:
        states, actions, *answers = (file[f"{name} {key}"] for key in ("states", "actions", *parity.Answers._fields))
    env = make(f"MinAtar/{name}-v1", states.shape[1], seed=parity.SEED)
    env.state[:] = states
    steps = env.advance(torch.from_numpy(actions.astype(np.int64))).arrays
    reward, terminated, obs, final_obs = answers
    assert terminated.sum() > 20 and reward.sum() > 10
    np.testing.assert_array_equal(steps.terminated.astype(bool), terminated)
    np.testing.assert_array_equal(steps.reward, reward)
    np.testing.assert_array_equal(parity.sums(steps.obs), obs)
    np.testing.assert_array_equal(parity.sums(steps.final_obs)[terminated], final_obs[terminated])
    assert not steps.truncated.any()


def test_the_action_before_sticks_as_often_as_asked_and_not_across_episodes():
    for chance in (0.0, 0.3, 1.0):
        env = make("MinAtar/Breakout-v1", 5000, seed=3, sticky_action_prob=chance)
        env.step(torch.full((5000,), 2))  # before it came nothing
        stuck = (env.state[breakout.POSITION] == 4).mean()
        assert abs(stuck - chance) <= 0.03 and (chance % 1 or stuck == chance)


def test_all_six_actions_are_a_games_and_a_few_are_those_that_do_something():
    few, all_ = (make(f"MinAtar/Freeway-v{version}", 4, seed=0, sticky_action_prob=0.0) for version in (1, 0))
    tape = random_actions(few, 300)
    for action, same in zip(tape, torch.tensor([game.NOTHING, game.UP, game.DOWN])[tape], strict=True):
        assert torch.equal(few.step(action).obs, all_.step(same).obs)
    assert (int(few.action_space.n), int(all_.action_space.n)) == (3, 6)


def test_difficulty_is_ramped_unless_told_otherwise():
    for ramping in (True, False):
        env = make("MinAtar/SpaceInvaders-v1", 1, seed=0, difficulty_ramping=ramping)
        env.state[invaders.ALIENS : invaders.ALIENS + 10] = 0
        env.state[invaders.ALIENS + 3], env.state[invaders.BULLETS + 4] = 2, 2  # the last alien, and what reaches it
        step = env.step(torch.tensor([0]))
        assert step.reward.tolist() == [1.0] and step.obs[0, invaders.ALIEN].count_nonzero() == 24
        assert env.state[invaders.INTERVAL, 0] == invaders.SLOWEST - ramping


def test_pictures_are_what_is_seen_in_minatars_colours():
    env = gymnasium.make_vec(
        "fast/MinAtar-Breakout-v1", 2, render_mode="rgb_array", autoreset_mode=AutoresetMode.NEXT_STEP
    )
    obs, _ = env.reset(seed=1)
    over = np.zeros(2, bool)
    while not over.any():
        last, (frame, _) = obs, env.render()
        assert np.array_equal(frame, game.picture(obs[0])) and frame.shape == (200, 200, 3)
        obs, _, over, _, _ = env.step(np.zeros(2, np.int64))
    world = int(np.flatnonzero(over)[0])
    assert obs[world, breakout.BALL].argmax() >= 90  # the end is shown, not the next beginning
    assert np.array_equal(env.render()[world], game.picture(obs[world])) and not np.array_equal(obs, last)
    assert np.array_equal(np.rint(255 * game.cubehelix(4)), PALETTE)
    planes = np.zeros((4, 10, 10), np.uint8)
    planes[[0, 3], 2, 5] = 255  # of two planes the last is seen
    frame = game.picture(planes)
    assert frame[59, 100].tolist() == PALETTE[3] and not frame[60, 100].any()


def test_a_run_is_played_on_the_worlds_it_was_trained_on_where_the_package_has_the_plain_id(monkeypatch):
    env_id = "MinAtar/Freeway-v1"
    config = Config(env_id=env_id)
    assert to_play(config, "fast").env_id == env_id
    theirs = replace(gymnasium.registry[env_id], entry_point="minatar.gym:BaseEnv")
    monkeypatch.setitem(gymnasium.registry, env_id, theirs)
    assert (to_play(config, "fast").env_id, to_play(config, "gym").env_id) == ("fast/MinAtar-Freeway-v1", env_id)
    assert make_envs(to_play(config, "fast"), 1).reset(0).shape == (1, 7, 10, 10)


def test_a_config_takes_the_compiled_games_and_unknown_ones_are_answered_with_the_nearest():
    config = Config(env_id="MinAtar/Asterix-v0", env_kwargs={"difficulty_ramping": False})
    assert choose_backend(config).name == "fast"
    plain = make_envs(Config(env_id="MinAtar/Asterix-v1", env_backend="gym"), 2)
    assert plain.reset(0).shape == (2, 4, 10, 10)
    with pytest.raises(UnknownEnvError, match=r"did you mean .*MinAtar/Breakout-v1"):
        find_spec("MinAtar/Breakot-v1")
