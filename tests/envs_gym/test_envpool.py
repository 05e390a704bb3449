"""EnvPool behind the contract: a pool of our own that answers as EnvPool does, and EnvPool where it is installed."""

from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
import torch

from config.schema import PPOConfig
from envs_gym import backend_envpool
from envs_gym.backend_envpool import task_of
from envs_gym.backends import choose_backend
from envs_gym.blame import EnvError
from envs_gym.envpool_env import EnvPoolEnv, honest
from envs_gym.make import make_envs
from scripts.smoke_test_envs import WORLDS, play
from utils.user_error import UserError

PLACE = gym.spaces.Box(-np.inf, np.inf, (2,), np.float64)
SPEC = SimpleNamespace(
    config=SimpleNamespace(max_episode_steps=6), reward_threshold=None,
    gymnasium_observation_space=PLACE, gymnasium_action_space=gym.spaces.Box(-2, 2, (1,), np.float64),
)  # fmt: skip


class Pool:
    """Counts steps; world i ends after 3 + i % 3 steps, or is cut after 6 where its seed is odd."""

    made: list["Pool"] = []  # noqa: RUF012

    def __init__(self, task, num_envs, seed, fault=False):
        self.seed, self.age, self.fault, self.closed = np.array(seed), np.zeros(num_envs, int), fault, False
        self.ends = np.where(self.seed % 2, 99, 3 + np.arange(num_envs) % 3)
        self.pushed = []
        self.made.append(self)

    def seen(self, worlds):
        return np.stack([self.seed[worlds] % 1000, self.age[worlds]], 1).astype(np.float64)

    def reset(self, worlds=None):
        worlds = np.arange(len(self.age)) if worlds is None else worlds[::-1]  # in whatever order
        self.age[worlds] = 0
        return self.seen(worlds), {"env_id": worlds.astype(np.int32)}

    def step(self, action):
        if self.fault:
            raise RuntimeError("no more dice")
        assert (self.age < self.ends).all() and (self.age < 6).all()  # who has ended was reset
        self.pushed.append(action)
        self.age += 1
        terminated = self.age >= self.ends
        truncated = (self.age >= 6) & ~terminated & (self.seed % 4 == 1)  # as some tasks, it keeps no limit in others
        return self.seen(np.arange(len(self.age))), self.age * 0.5, terminated, truncated, {}

    def close(self):
        self.closed = True


def pool_env(n=4, **arguments):
    return EnvPoolEnv("envpool/Counting-v0", "Counting-v0", n, arguments, SPEC, Pool)


def test_a_pool_keeps_the_contract():
    envs, copy = pool_env(WORLDS), pool_env(WORLDS)
    played = play(envs, copy, 40)
    assert played.resume == "seam" and len(played.returns) > 2 * WORLDS and envs.time_limit == 6
    assert {*played.returns} <= {3.0, 5.0, 7.5, 10.5}


def test_an_ended_world_begins_at_once_and_its_last_sight_is_kept():
    envs = pool_env()
    envs.reset(3)
    ended = set()
    for _ in range(12):
        step = envs.step(torch.zeros(4, 1))
        over = step.terminated | step.truncated
        assert torch.equal(step.final_obs[over][:, 1], step.episode_length[over])
        assert not step.obs[over][:, 1].any() and step.obs[~over][:, 1].all()
        seeds = torch.tensor([seed % 1000 for seed in Pool.made[-1].seed.tolist()], dtype=torch.float32)
        assert torch.equal(step.obs[:, 0], seeds) and torch.equal(step.final_obs[over][:, 0], seeds[over])
        ended |= set(over.nonzero().flatten().tolist())
    assert ended == {0, 1, 2, 3}


def test_actions_span_the_bounds_in_the_pools_own_type():
    envs = pool_env()
    envs.reset(3)
    envs.step(torch.tensor([[-1.0], [0.5], [9.0], [0.0]]))
    (given,) = Pool.made[-1].pushed
    assert given.dtype == np.float64 and given.ravel().tolist() == [-2, 1, 2, 0]


def test_world_i_of_a_seed_has_one_seed_whatever_their_number():
    few, many = pool_env(2), pool_env(5)
    few.reset(7), many.reset(7)
    assert (Pool.made[-2].seed == Pool.made[-1].seed[:2]).all() and len({*Pool.made[-1].seed.tolist()}) == 5
    many.reset(8)
    assert Pool.made[-2].closed and not (Pool.made[-1].seed == Pool.made[-2].seed).any()


def test_a_resume_is_a_seam_of_worlds_that_nobody_has_seen():
    envs, again = pool_env(), pool_env()
    envs.reset(3)
    seeds = {*Pool.made[-1].seed.tolist()}
    for _ in range(2):
        last = envs.step(torch.zeros(4, 1))
    state = envs.state_dict()
    again.load_state_dict(state)
    step = again.step(torch.zeros(4, 1))
    assert step.truncated.all() and not step.terminated.any() and not step.reward.any()
    assert torch.equal(step.final_obs, last.obs) and torch.equal(step.episode_return, last.episode_return)
    assert step.episode_length.tolist() == [2] * 4 and not step.obs[:, 1].any()
    assert seeds.isdisjoint(Pool.made[-1].seed.tolist())
    assert again.step(torch.zeros(4, 1)).episode_length.tolist() == [1] * 4
    with pytest.raises(UserError, match="4 worlds of envpool/Counting-v0, not 2"):
        pool_env(2).load_state_dict(state)


def test_whatever_a_pool_raises_names_it():
    envs = pool_env(fault=True)
    envs.reset(3)
    with pytest.raises(EnvError, match=r"^envpool/Counting-v0: RuntimeError: no more dice"):
        envs.step(torch.zeros(4, 1))
    with pytest.raises(ValueError, match=r"takes actions torch.float32\[4, 1\]"):
        envs.step(torch.zeros(4))


def test_doubles_at_the_end_of_their_range_are_no_bounds():
    tiny, huge = np.finfo(np.float64).tiny, np.finfo(np.float64).max
    space = gym.spaces.Dict({"a": gym.spaces.Box(np.array([tiny, -3.0]), np.array([huge, 4.0]), (2,), np.float64)})
    assert honest(space)["a"].low.tolist() == [-np.inf, -3] and honest(space)["a"].high.tolist() == [np.inf, 4]


NAMES = {
    "envpool/CoinrunEasy-v0": "CoinrunEasy-v0", "HalfCheetah-v5": "HalfCheetah-v5", "ALE/Pong-v5": "Pong-v5",
    "dm_control/walker-walk": "WalkerWalk-v1", "dm_control/ball_in_cup-catch-v0": "BallInCupCatch-v1",
    "dm_control/acrobot-swingup_sparse": "AcrobotSwingupSparse-v1", "envpool/MetaWorld/Reach-v3": "MetaWorld/Reach-v3",
}  # fmt: skip


@pytest.fixture
def known(monkeypatch):
    """As if EnvPool was installed, with these tasks."""
    monkeypatch.setattr(backend_envpool, "find_spec", lambda name: name)
    monkeypatch.setattr(backend_envpool, "tasks", lambda: [*NAMES.values()])


def test_names_and_what_is_refused(known):
    assert {env_id: task_of(env_id) for env_id in NAMES} == NAMES
    assert choose_backend(PPOConfig(env_id="envpool/CoinrunEasy-v0")).name == "envpool"
    assert choose_backend(PPOConfig(env_id="CartPole-v1")).name == "fast"  # never unasked: its resume is a seam
    with pytest.raises(UserError, match="EnvPool has no CartPole-v1; auto takes fast"):
        choose_backend(PPOConfig(env_id="CartPole-v1", env_backend="envpool"))
    with pytest.raises(UserError, match="EnvPool has no CoinrunEas-v0; did you mean CoinrunEasy-v0"):
        choose_backend(PPOConfig(env_id="envpool/CoinrunEas-v0", env_backend="envpool"))
    asked = PPOConfig(env_id="HalfCheetah-v5", env_backend="envpool", frame_stack=2)
    with pytest.raises(UserError, match="EnvPool's worlds take no FrameStack"):
        choose_backend(asked)


def test_atari_is_drawn_by_envpool_where_it_is_asked_for_just_that(known):
    words = {"env_id": "ALE/Pong-v5", "env_backend": "envpool", "grayscale_obs": True, "resize_obs": 84}
    config = PPOConfig(**words, frame_stack=4)
    assert backend_envpool.why_not(config) == ""
    assert backend_envpool._arguments(config)["stack_num"] == 4
    assert "AtariScreen" in backend_envpool.why_not(PPOConfig(**{**words, "resize_obs": 42}, frame_stack=4))


def test_without_envpool_there_is_one_line(monkeypatch):
    monkeypatch.setattr(backend_envpool, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"needs EnvPool: pip install 'stride-rl\[envpool\]'"):
        choose_backend(PPOConfig(env_id="HalfCheetah-v5", env_backend="envpool"))


FAMILIES = {"classic": "CartPole-v1", "mujoco": "HalfCheetah-v5", "dm_control": "envpool/CartpoleSwingup-v1",
            "metaworld": "envpool/MetaWorld/Reach-v3", "jumanji": "envpool/Jumanji/Snake-v1"}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_envpools_families_keep_the_contract(family):
    pytest.importorskip("envpool")
    config = PPOConfig(env_id=FAMILIES[family], env_backend="envpool", max_episode_steps=40)
    envs, copy = make_envs(config, WORLDS), make_envs(config, WORLDS)
    played = play(envs, copy, 90)
    assert played.resume == "seam" and len(played.returns) >= WORLDS and envs.time_limit == 40
    envs.close(), copy.close()


@pytest.mark.slow
def test_envpool_trains_and_goes_on_behind_a_seam(tmp_path, monkeypatch, capsys):
    pytest.importorskip("envpool")
    import train

    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    tiny = ["n_steps=16", "n_envs=4", "eval_freq_epochs=null", "test_episodes=2", "max_episode_steps=20"]
    assert train.command(["CartPole-v1:ppo", "env_backend=envpool", "max_timesteps=256", *tiny]) == 0
    assert "envpool (as configured)" in capsys.readouterr().out
    assert train.command(["--resume", "@last", "max_timesteps=512"]) == 0
    assert "seam: running episodes end as truncated" in capsys.readouterr().out
