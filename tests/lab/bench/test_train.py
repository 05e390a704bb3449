"""The benchmark of trainings: what it times and tells, not how fast anything is."""

import json
from concurrent.futures import Executor, Future

import gymnasium
import numpy as np
import pytest
import torch

from lab.bench import train
from stride.agents.engines.choice import build_agent
from stride.envs_gym.make import make_envs

STACKED = ("grayscale_obs=false", "resize_obs=false", "frame_stack=1")  # pictures are stacks already


class Pictures(gymnasium.Env):
    """Images that cost nothing; the reward is 1 for one of the actions."""

    def __init__(self):
        self.observation_space = gymnasium.spaces.Box(0, 255, (4, 84, 84), np.uint8)
        self.action_space = gymnasium.spaces.Discrete(6)
        self.picture = np.random.default_rng(0).integers(0, 256, (4, 84, 84), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.picture, {}

    def step(self, action):
        return self.picture, float(action == 0), False, False, {}


gymnasium.register("Pictures-v0", entry_point=Pictures, max_episode_steps=100)


class Here(Executor):
    """Does it at once, in this process: others take seconds to begin."""

    def __init__(self, *_):
        pass

    def submit(self, work, *words):
        future = Future()
        future.set_result(work(*words))
        return future


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Stable-Baselines3 takes seconds to import; one turn is enough."""
    before = torch.get_num_threads()
    monkeypatch.setattr(train, "find_spec", lambda _: None)
    monkeypatch.setattr(train, "multiply_add_limit", lambda threads: 1e11)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def pictures(monkeypatch):
    monkeypatch.setattr(train, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(train, "PONG", "Pictures-v0")
    monkeypatch.setattr(train, "PONG_SIZES", ("n_envs=2", "n_steps=4", "n_epochs=2", "batch_size=0.5", *STACKED))


def measured(tmp_path, *words):
    file = tmp_path / "figures.json"
    assert train.main([*words, "--threads", "1", "--repeats", "2", "--json", str(file)]) == 0
    return json.loads(file.read_text())["tables"]


def test_trainings_of_images_are_timed_by_both_clocks(pictures, tmp_path):
    [(title, table)] = measured(tmp_path, "pong", "--without", "bf16").items()
    assert "2 worlds x 4 steps, 2 epochs x 2 minibatches" in title
    for clock in ("wall", "cpu"):
        assert [*table[clock]] == ["eager", "cleanrl style"]
        assert all(len(rate["all"]) == 2 and rate["median"] > 0 for rate in table[clock].values())
    shares = table["engines"]["eager"]["shares"]
    assert shares["collect"] > 0 and shares["learn"] > 0 and sum(shares.values()) == pytest.approx(1)


def test_an_iteration_of_ppo_is_timed_in_parts(tmp_path, capsys):
    words = ["--n-envs", "2", "--widths", "16", "--seconds", "0.01"]
    [(title, table)] = measured(tmp_path, "ppo", *words, "--without", "style").items()
    assert title.startswith("CartPole-v1, 2 worlds x 128 steps, 4 epochs x 4 minibatches, separate 16x16 ")
    assert [*table["wall"]] == ["fused_cpu", "eager"] == [*table["engines"]]
    parts = table["engines"]["fused_cpu"]["iteration_us"]
    assert [*parts] == ["play", "learn", "engine's Python", "agent", "Lightning and callbacks"]
    assert "% of the limit" in capsys.readouterr().out


def test_a_replay_memorys_training_counts_its_updates(tmp_path, monkeypatch):
    monkeypatch.setitem(train.REPLAY, "dqn", ("CartPole-v1", 1500))
    [table] = measured(tmp_path, "dqn").values()
    assert [*table["wall"]] == ["fused_cpu", "eager"]
    for figures in table["engines"].values():
        assert 0 < figures["updates_an_env_step"] < 1 and figures["update_ms"] > 0


@pytest.mark.slow
def test_an_update_of_dreamer_is_timed_by_each_engine(tmp_path, monkeypatch):
    tiny = ("deter=16", "width=16", "stoch=2", "classes=4", "bins=5", "batch_size=16", "batch_length=2",
            "imagined_starts=16", "horizon=2", "learning_starts=64")  # fmt: skip
    monkeypatch.setattr(train, "DREAMER", {"tiny": (tiny, 1e6)})
    [table] = measured(tmp_path, "dreamer").values()
    assert [*table["engines"]] == ["fused_cpu", "eager"]
    assert all(figures["update_ms"] > 0 for figures in table["engines"].values())


def test_a_step_multiplies_what_its_layers_do(pictures):
    config = train.pong_setting(1)
    agent = build_agent(config, make_envs(config, 1))
    net = agent.policy.encoder.leaf[0]
    places = [20 * 20, 9 * 9, 7 * 7, 1]  # where each layer is applied
    layers = [layer for layer in net.modules() if hasattr(layer, "weight")]
    forward = sum(layer.weight.numel() * many for layer, many in zip(layers, places, strict=True))
    assert forward == train.FORWARD and layers[0].weight.numel() * 400 == train.FIRST
    assert train.image_flops(config) == 2 * (2 * forward + 2 * (3 * forward - train.FIRST))
