"""Atari by ale-py's own vector environment: Gymnasium's bits, exact resume, lost lives, and places read from memory."""

from dataclasses import replace
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from playing import Still, bits, hand_over, random_actions, record
from worlds import Scripted

from stride.agents.experience.collector import Collector
from stride.commands import train
from stride.config.schema import ALGORITHMS
from stride.envs_gym import ale_env
from stride.envs_gym.backend_ale import why_not
from stride.envs_gym.backends import choose_backend
from stride.envs_gym.make import make_envs
from stride.envs_gym.wrappers.atari import ENTRY, LifeLoss, first_draw
from stride.envs_gym.wrappers.atari_objects import ConsoleMemory
from stride.envs_gym.wrappers.registry import wrappers_of
from stride.runstore.run_dir import RunDir
from stride.utils.user_error import UserError

SCREEN = {"grayscale_obs": True, "resize_obs": True, "frame_stack": 4}
LIVES = ({"id": "LifeLoss"}, {"id": "ClipReward"})
COLOURS = {"Pong": ((236, 236, 236), (92, 186, 92)), "Breakout": ((200, 72, 72), (200, 72, 72))}  # ball, own paddle
QUIET = {"repeat_action_probability": 0.0}


def config(name="Breakout", **keys):
    return ALGORITHMS["ppo"](env_id=f"ALE/{name}-v5", algo_id="ppo", max_timesteps=1000, **{**SCREEN, **keys})


def made(backend, num_envs=2, **keys):
    pytest.importorskip("ale_py")
    return make_envs(replace(config(**keys), env_backend=backend), num_envs)


WHOLE = {"grayscale_obs": False, "resize_obs": False, "frame_stack": 1}
ALIKE = {  # keys, steps, whole episodes and lives that end within
    "lives": ({"env_wrappers": LIVES}, 260, 1, 6),
    "colours, every action, no chance": (
        {"name": "SpaceInvaders", "env_kwargs": {**QUIET, "full_action_space": True}, "grayscale_obs": False,
         "resize_obs": (96, 80), "frame_stack": 2}, 40, 0, 0,
    ),
    "whole screen, idle starts": (
        {**WHOLE, "env_wrappers": ({"id": "AtariScreen", "noop_max": 30, "max_pool": False, "size": None},)}, 30, 0, 0
    ),
    "frames skipped, cut": ({"name": "Pong", "env_kwargs": {"frameskip": 3}, "max_episode_steps": 30}, 70, 4, 0),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("case", ALIKE)
def test_both_backends_play_the_same_to_the_bit(case):
    """Screens, rewards, ends and returns, over ends of episodes; stacks are what a replay memory puts together."""
    keys, steps, episodes, lives = ALIKE[case]
    ale, gym = made("ale", **keys), made("gym", **keys)
    assert (ale.observation_space, ale.action_space) == (gym.observation_space, gym.action_space)
    first = ale.reset(5).clone()
    assert torch.equal(first, gym.reset(5)) and first.any()
    channels = len(first[0]) // (keys.get("frame_stack") or 4 if case != "whole screen, idle starts" else 4)
    shown, ends, lost = first, 0, 0
    for action in random_actions(ale, steps):
        step = ale.step(action)
        assert bits(step) == bits(gym.step(action))
        ended, newest = step.terminated | step.truncated, step.obs[:, -channels:]
        again = newest.repeat(1, len(first[0]) // channels, 1, 1)
        shown = torch.where(ended[:, None, None, None], again, torch.cat((shown[:, channels:], newest), 1))
        assert torch.equal(step.obs, shown)
        ends += int((ended & (step.episode_length > 0)).sum())
        lost += int((ended & (step.episode_length == 0)).sum())
    assert ends >= episodes and lost >= lives and (lives or not lost)
    ale.close(), gym.close()


@pytest.mark.slow
def test_a_fresh_environment_continues_to_the_bit(caplog, monkeypatch):
    """Sticky actions, lost lives, several seeds, episodes without one between; then once more from what came back."""
    monkeypatch.setattr(ale_env, "RESEED_STEPS", 200)
    envs, fresh, third = (made("ale", threads=threads, env_wrappers=LIVES) for threads in (1, 2, 1))
    envs.reset(7)
    actions = random_actions(envs, 520)
    record(envs, actions[:380])
    assert len({len(log) for log in envs._log}) == 2 and envs._seedings.max() > 1
    hand_over(envs, fresh)
    assert record(fresh, actions[380:460]) == record(envs, actions[380:460])
    hand_over(fresh, third)
    assert record(third, actions[460:]) == record(envs, actions[460:])
    assert envs.resume == "exact" and not caplog.records


@pytest.mark.slow
def test_a_world_that_does_not_come_back_is_cut_and_says_so(caplog):
    envs, fresh, again = made("ale"), made("ale"), made("ale")
    envs.reset(3)
    actions = random_actions(envs, 23)
    record(envs, actions[:20])
    state = envs.state_dict()
    state["returns"][1] += 1
    fresh.load_state_dict(state)
    assert "1 of 2 environments start a new episode" in caplog.text
    expected, step = envs.step(actions[20]), fresh.step(actions[20])
    assert step.truncated.tolist() == [False, True] and bits(step, [0]) == bits(expected, [0])
    assert torch.equal(step.final_obs[1], state["obs"][1]) and step.episode_length[1] == 20 and step.reward[1] == 0
    assert step.episode_return[1] == state["returns"][1] and not torch.equal(step.obs[1], expected.obs[1])
    assert bits(fresh.step(actions[21]), [0]) == bits(envs.step(actions[21]), [0])
    hand_over(fresh, again)  # the world that began anew is sound
    assert record(again, actions[22:]) == record(fresh, actions[22:])


@pytest.mark.slow
def test_a_world_begins_the_same_whatever_the_number_of_worlds_and_refuses_actions_there_are_not():
    one, two = made("ale", 1), made("ale", 2)
    assert torch.equal(one.reset(9)[0], two.reset(9)[0])
    for _ in range(30):
        assert torch.equal(one.step(torch.tensor([3])).obs[0], two.step(torch.tensor([3, 1])).obs[0])
    for action, complaint in ((torch.tensor([4]), "actions are 0 to 3"), (torch.tensor([0.0]), "takes actions")):
        with pytest.raises(ValueError, match=complaint):
            one.step(action)
    with pytest.raises(UserError, match=r"has 2 environments of ALE/Breakout-v5, not 1"):
        one.load_state_dict(two.state_dict())


CHOICES = {
    "ale": ({}, {"env_wrappers": LIVES}, {"grayscale_obs": False}, {"env_kwargs": QUIET}),
    "supports obs_type ram": ({"env_kwargs": {"obs_type": "ram"}},),
    "supports obs_type objects": ({"env_kwargs": {"obs_type": "objects"}},),
    "env_kwargs.mode": ({"env_kwargs": {"mode": 1}},),
    "supports PongShaper": ({"env_wrappers": ({"id": "PongShaper"},)},),
    "supports StickyActions": ({"env_wrappers": ({"id": "StickyActions", "probability": 0.1},)},),
    "supports FrameSkip": ({"frame_skip": 2},),
    "supports a random frameskip": ({"env_kwargs": {"frameskip": (2, 5)}},),
    "shows the whole screen": (WHOLE,),
}


@pytest.mark.parametrize("words", CHOICES)
def test_who_plays_a_game_and_why(words):
    for keys in CHOICES[words]:
        asked = config("Pong", **keys)
        reason = why_not(asked)
        if words == "ale":
            assert not reason and wrappers_of(asked)[0]["id"] == "AtariScreen"
        else:
            assert reason.startswith("only gym ") and words in reason
    assert "not an Atari game" in why_not(replace(config(), env_id="CartPole-v1"))


@pytest.mark.slow
def test_auto_takes_ale_and_a_choice_that_cannot_be_says_what_auto_takes():
    pytest.importorskip("ale_py")
    assert choose_backend(config()).name == "ale"
    with pytest.raises(UserError, match=r"env_backend ale does not support this config: .*ram.*=auto, which takes gym"):
        choose_backend(replace(config(env_kwargs={"obs_type": "ram"}), env_backend="ale"))


def middle(places, low=0):
    """Of the pixels found, along each axis."""
    return places.min(0) + (places.max(0) - places.min(0) + 1) / 2 + low


@pytest.mark.slow
@pytest.mark.parametrize("name", COLOURS)
def test_the_objects_are_where_the_screen_shows_them(name):
    """The ball and one's own paddle, by the middle of their pixels."""
    pytest.importorskip("ale_py")
    env = gymnasium.make(f"ALE/{name}-v5", disable_env_checker=True)
    env.reset(seed=1)
    memory, rng, off = ConsoleMemory(env, "it"), np.random.default_rng(2), []
    pong = name == "Pong"
    for _ in range(140):
        env.step(int(rng.integers(env.action_space.n)))
        screen = env.unwrapped.ale.getScreenRGB()
        ball, own = ((screen == colour).all(-1) for colour in COLOURS[name])
        ball = np.argwhere(ball[34:194] if pong else ball[93:189, 8:152])
        own = np.argwhere(own[34:194, 138:146] if pong else own[189:194, 8:152])[:, 0 if pong else 1]
        place = memory.ball()
        if place is None or len(ball) != 8 or np.ptp(own) != 15:  # one of them is partly hidden
            continue
        down, across = middle(ball, (34, 0) if pong else (93, 8))
        paddle = middle(own, 34 if pong else 8)
        off.append((abs(place[0] - across), abs(place[1] - down), abs(memory.paddles()[0] - paddle)))
    worst = np.array(off)
    assert len(worst) > 10 and np.median(worst, 0).max() <= 1.5 and worst.max() <= 8  # a frame's way, where one lags


@pytest.mark.slow
@pytest.mark.parametrize(("name", "number"), [("Pong", 8), ("Breakout", 13)])
def test_features_are_numbers_of_the_game(name, number):
    envs = made("gym", 1, name=name, env_wrappers=({"id": f"{name}Features"},), **WHOLE)
    first = envs.reset(1).clone()
    seen = torch.stack([envs.step(action).obs.clone() for action in random_actions(envs, 60)])
    assert first.shape == (1, number) and seen.abs().max() <= 1 and (seen.std(0) > 0).sum() >= 5
    assert name == "Pong" or first[0, -6:].tolist() == [1.0] * 6


@pytest.mark.slow
def test_the_shaper_and_objects_answer_what_they_promise():
    objects = made("gym", 1, name="Pong", env_kwargs={"obs_type": "objects"}, **WHOLE)
    assert objects.reset(1).shape == (1, 5)
    shaped, plain = (made("gym", 1, name="Pong", env_wrappers=w, **WHOLE) for w in (({"id": "PongShaper"},), ()))
    shaped.reset(1), plain.reset(1)
    pairs = ((shaped.step(action), plain.step(action)) for action in random_actions(plain, 60))
    assert all(torch.equal(one.episode_return, other.episode_return) for one, other in pairs)
    with pytest.raises(UserError, match="PongShaper supports pong, not breakout"):
        made("gym", 1, name="Breakout", env_wrappers=({"id": "PongShaper"},))
    with pytest.raises(UserError, match="LifeLoss needs a game of ale-py, not CartPole-v1"):
        make_envs(replace(config(), env_id="CartPole-v1", env_wrappers=LIVES, **WHOLE), 1)


def test_idle_frames_are_drawn_as_the_emulator_draws_them():
    """The first frames that ale-py 0.12.1's vector environment had behind it, by seed, with noop_max=30."""
    assert [first_draw(seed, 30) for seed in (0, 1, 7, 123456789, 2**31 - 1)] == [16, 12, 2, 15, 11]


class LosesLives(Scripted):
    """Episodes of five steps that pay 1, and a life is lost with the second: an end of length 0."""

    def __init__(self):
        ends = torch.tensor([0, 1, 0, 0, 1], dtype=torch.bool)[:, None]
        super().__init__(torch.ones(5, 1), ends, torch.zeros_like(ends))

    def step(self, action):
        step = super().step(action)
        whole = step.episode_length == 3
        step.episode_length.copy_(torch.where(whole, 5, 0))
        step.episode_return.copy_(torch.where(whole, 5, 0))
        return step


def test_ends_of_length_0_are_learnt_from_and_counted_by_nobody():
    """A lost life: in the window of a training, and among the episodes of an evaluation."""
    terminated = []
    memory = SimpleNamespace(write=lambda obs, is_first, act, step: terminated.extend(step.terminated.tolist()))
    collector = Collector(LosesLives(), Still(), 1)
    collector.collect(6, memory)
    assert terminated == [False, True, False, False, True, False]
    numbers = collector.window.summary()
    assert (numbers["episodes"], numbers["ep_rew/mean"], numbers["ep_len/mean"]) == (1, 5, 5)
    played = Collector(LosesLives(), Still(), 1).play(2)
    assert played.returns == [5, 5] and played.lengths == [5, 5]


class LastLifeLingers(gymnasium.Env):
    """Two lives, lost with steps 2 and 3; the game is over with step 4."""

    spec = gymnasium.envs.registration.EnvSpec("LastLife-v0", entry_point=ENTRY)
    observation_space = action_space = gymnasium.spaces.Discrete(1)

    def reset(self, **kwargs):
        self.steps, self.ale = 0, SimpleNamespace(lives=lambda: (2, 2, 1, 0, 0)[self.steps])
        return 0, {}

    def step(self, action):
        self.steps += 1
        return 0, 0.0, self.steps == 4, False, {}


def test_the_last_life_is_lost_with_the_game_alone():
    """Some games show no lives left a few steps before they are over, which would be two ends."""
    env = LifeLoss(LastLifeLingers())
    env.reset()
    assert [(env.step(0)[2], env.lost) for _ in range(4)] == [
        (False, False),
        (False, True),
        (False, False),
        (True, False),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("algo_id", ["ppo", "dqn", "pqn"])
def test_any_game_trains_from_its_screen_by_general_settings(algo_id, capsys):
    pytest.importorskip("ale_py")
    small = ["n_envs=2", "n_steps=8", "batch_size=8"] if algo_id != "dqn" else ["buffer_size=400", "learning_starts=40"]
    few = ["max_timesteps=96", "eval_freq_epochs=0", "test_episodes=0", "epoch_iterations=2"]
    assert train.command([f"ALE/Freeway-v5:{algo_id}", *small, *few, "policy_kwargs.features=16"]) == 0
    facts = RunDir.find("@last").facts()
    wrappers = [wrapper["id"] for wrapper in facts["config"]["env_wrappers"]]
    assert facts["env_backend"] == "ale" and wrappers == ["LifeLoss", "ClipReward"]
    assert "ale" in capsys.readouterr().out and facts["outcome"]["env_steps"] == 96
