"""The benchmark of trainings: what it times and tells, not how fast anything is."""

import json
from concurrent.futures import Executor, Future
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch

from lab.bench import beside, cases, peers, table, train, turns
from lab.bench.limit import Limit
from lab.bench.measure import lasting
from lab.bench.peers import Library, Ready
from lab.site import learners, measured, tables
from stride.agents.engines.choice import build_agent
from stride.config.diff import IDENTITY_KEYS
from stride.config.loader import to_plain
from stride.envs_gym.make import make_envs
from stride.utils import entry
from stride.utils.user_error import UserError

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

    def __init__(self, workers, context, begin, words):
        begin(*words)

    def submit(self, work, *words):
        future = Future()
        future.set_result(work(*words))
        return future


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Stable-Baselines3 takes seconds to import; two turns are enough."""
    before = torch.get_num_threads()
    monkeypatch.setattr(peers, "installed", lambda module: False)
    monkeypatch.setattr(train, "limit_of", lambda threads: Limit(threads, 1e11, 9e10))
    monkeypatch.setattr(beside, "limit_of", lambda threads: Limit(threads, 1e11, 9e10))
    monkeypatch.setattr(turns, "ProcessPoolExecutor", Here)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def pictures(monkeypatch):
    monkeypatch.setattr(cases, "PONG", "Pictures-v0")
    monkeypatch.setattr(cases, "PONG_SIZES", ("n_envs=2", "n_steps=4", "n_epochs=2", "batch_size=0.5", *STACKED))


def timed(tmp_path, *words):
    file = tmp_path / "figures.json"
    assert train.main([*words, "--threads", "1", "--repeats", "2", "--json", str(file)]) == 0
    return json.loads(file.read_text())["tables"]


def test_trainings_of_images_are_timed_by_every_clock(pictures, tmp_path):
    [(title, table)] = timed(tmp_path, "pong", "--without", "bf16").items()
    assert "2 worlds x 4 steps, 2 epochs x 2 minibatches" in title
    assert [*table["contenders"]] == ["eager", "cleanrl style"]
    for figures in table["contenders"].values():
        for clock in ("whole", "fit", "cpu"):
            assert len(figures[clock]["all"]) == 2 and figures[f"{clock}_seconds"]["median"] > 0
    ours, theirs = table["contenders"].values()
    assert ours["whole"]["median"] < ours["fit"]["median"] and theirs["whole"] == theirs["fit"]
    ratio = table["ratios"]["eager"]["cleanrl style"]["whole"]
    assert ratio["turns"] == 2 and ratio["low"] <= ratio["median"] <= ratio["high"]
    shares = table["engines"]["eager"]["shares"]
    assert shares["collect"] > 0 and shares["learn"] > 0 and sum(shares.values()) == pytest.approx(1)


def test_an_iteration_of_ppo_is_timed_in_parts(tmp_path, capsys):
    words = ["--n-envs", "2", "--widths", "16", "--seconds", "0.01"]
    [(title, table)] = timed(tmp_path, "ppo", *words, "--without", "style").items()
    assert title.startswith("CartPole-v1, 2 worlds x 128 steps, 4 epochs x 4 minibatches, separate 16x16 ")
    assert [*table["contenders"]] == ["fused_cpu", "eager"] == [*table["engines"]]
    parts = table["engines"]["fused_cpu"]["iteration_us"]
    assert [*parts] == ["play", "learn", "engine's Python", "agent", "Lightning and callbacks"]
    printed = capsys.readouterr().out
    assert "% of the limit" in printed and "left out, not installed: stable-baselines3, sbx-rl, jax" in printed


def test_a_replay_memorys_training_counts_its_updates(tmp_path, monkeypatch):
    monkeypatch.setitem(cases.REPLAY, "dqn", ("CartPole-v1", 1500))
    [table] = timed(tmp_path, "dqn", "--without", "eager").values()
    assert [*table["contenders"]] == ["fused_cpu"]
    for name, figures in table["engines"].items():
        assert 0 < figures["updates_an_env_step"] < 1 and figures["update_ms"] > 0
        assert 0 < table["contenders"][name]["updates"] < 1500


@pytest.mark.parametrize("work", ["ppo", "dqn"])
def test_a_whole_call_trains_by_the_config_that_the_title_names(work, tmp_path):
    if work == "ppo":
        config = cases.ppo_setting("CartPole-v1", 2, threads=1)
    else:
        config = cases.config_of("CartPole-v1:dqn", ("learning_starts=300",), 1)
    ready = cases.ours(config, 2)
    run = ready.run()
    trained, wanted = run.facts["config"], to_plain(lasting(config, 2))
    assert {key for key in wanted if trained[key] != wanted[key]} <= IDENTITY_KEYS
    assert run.progress["env_steps"] == 2 * config.iteration_steps and ready.inside(run).fit > 0
    assert run.path.exists()
    ready.close()
    assert not run.path.exists()


def test_a_step_multiplies_what_its_layers_do(pictures):
    config = cases.pong_setting(1)
    agent = build_agent(config, make_envs(config, 1))
    net = agent.policy.encoder.leaf[0]
    places = [20 * 20, 9 * 9, 7 * 7, 1]  # where each layer is applied
    layers = [layer for layer in net.modules() if hasattr(layer, "weight")]
    forward = sum(layer.weight.numel() * many for layer, many in zip(layers, places, strict=True))
    assert forward == cases.IMAGE_PRODUCTS and layers[0].weight.numel() * 400 == cases.FIRST_LAYER_PRODUCTS
    assert cases.image_flops(config) == 2 * (2 * forward + 2 * (3 * forward - cases.FIRST_LAYER_PRODUCTS))


# ---- peers


def test_a_peer_is_made_once_and_learns_in_every_turn(monkeypatch):
    made, learnt = [], []

    class Peer:
        def learn(self, total_timesteps):
            learnt.append(total_timesteps)

    monkeypatch.setattr(peers, "worlds_of", lambda config: None)
    monkeypatch.setattr(peers, "algorithm", lambda config, module, worlds: made.append(module) or Peer())
    library = Library(cases.ppo_setting("CartPole-v1", 2, threads=1), "sbx")
    for iterations in (1, 3, 3):
        library(iterations).run()
    assert made == ["sbx"] and learnt == [256, 768, 768]


@pytest.mark.slow
@pytest.mark.parametrize("work", ["ppo", "dqn", "sac", "purejaxrl"])
def test_a_compiled_peer_compiles_nothing_while_the_clock_runs(work, monkeypatch):
    """In an environment of peers (lab/README.md): elsewhere it is skipped."""
    jax = pytest.importorskip("jax", reason="needs pip install sbx-rl jax")
    pytest.importorskip("sbx", reason="needs pip install sbx-rl")
    monkeypatch.undo()
    name = "purejaxrl style" if work == "purejaxrl" else "sbx"
    if work in cases.REPLAY:
        steps = {"dqn": 1_500, "sac": 300}[work]
        monkeypatch.setitem(cases.REPLAY, work, (cases.REPLAY[work][0], steps))
        case = cases.replay_case(work, 1)
    else:
        case = cases.ppo_case(cases.ppo_setting("CartPole-v1", 2, 1))
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, seconds, **_: compiled.append(event) if "backend_compile" in event else None
    )
    prepare = case.contenders[name]
    prepare(case.warm).run()
    assert compiled, "the first training compiles, or this test sees nothing"
    for _ in range(2):
        ready = prepare(case.iterations or 3)
        compiled.clear()
        ready.run()
        assert compiled == []


def test_turns_alternate_and_a_training_is_about_as_long_as_asked(monkeypatch):
    order = []

    def prepare(name):
        return lambda iterations: Ready(lambda: order.append((name, iterations)), lambda: None)

    table = turns.in_turns({name: prepare(name) for name in "ab"}, 10, turns.Length(2, iterations=5), 1, 3)
    names = "".join(name for name, iterations in order if iterations == 5)
    assert names == "ab" + "ba" + "ab" and table["a"]["env_steps"] == 50
    times = iter([1.0, 8.0, 4.1])

    def run(iterations):
        lengths.append(iterations)
        return turns.Spent(next(times, 4.0), 1, 1, 0, 0)

    lengths = []
    assert turns.warmed(run, turns.Length(2, seconds=4.0)) == lengths[-1] == 1


# ---- the table beside other libraries


@pytest.fixture
def small(monkeypatch):
    config = cases.ppo_setting("CartPole-v1", 2, threads=1)

    def make(threads):
        case = cases.ppo_case(config)
        return case._replace(iterations=2, contenders={**case.contenders, "sbx": case.contenders["cleanrl style"]})

    monkeypatch.setitem(beside.ROWS, "ppo-8", beside.Row(make, "env steps/s", 1e6))


def test_a_row_is_measured_recorded_and_printed_and_the_others_stay(small, tmp_path, capsys):
    file = tmp_path / "beside-avx2.json"
    words = ["--threads", "1", "--turns", "2", "--seconds", "0.01", "--json", str(file)]
    assert beside.main(["face-16", *words]) == 0 and beside.main(["ppo-8", *words]) == 0
    printed = capsys.readouterr().out
    rows = table.read(file)
    assert [*rows] == ["ppo-8", "face-16"]
    record = rows["ppo-8"]
    assert [*record["contenders"]] == ["fused_cpu", "sbx"] and table.best_of(record) == "sbx"
    assert record["commit"] and record["machine"].count("thread(s)") == 1 and len(record["limits"]) == 1
    assert record["contenders"]["fused_cpu"]["cpu_seconds"]["median"] > 0 and 0 < record["share"] < 1
    assert rows["face-16"]["ratios"]["gymnasium native"]["cpu"]["turns"] == 2
    assert "1e+06x SBX: missed" in printed and "2 turn(s) only" in printed
    assert f"| {record['title']} |" in printed and "our products 90% of it" in printed


def test_what_is_wrong_is_one_line_and_avx2_is_set_before_anything_is_loaded(monkeypatch, capsys):
    assert entry.ended(beside.main, ["ppo-9"]) == 2
    assert "no row 'ppo-9'; did you mean ppo-8" in capsys.readouterr().err
    assert entry.ended(beside.main, ["ppo-8", "--turns", "0"]) == 2
    begun = []
    monkeypatch.setattr(
        beside.subprocess, "run", lambda words, env, check: begun.append((words, env)) or SimpleNamespace(returncode=7)
    )
    assert beside.main(["face-16", "--avx2"]) == 7
    [(words, env)] = begun
    assert words[-2:] == ["face-16", "--avx2"] and beside.AVX2.items() <= env.items()
    assert "avx512" not in env["NUMBA_CPU_FEATURES"] and env["XLA_FLAGS"].endswith("AVX2")


def test_a_row_whose_environment_is_missing_is_left_out(monkeypatch, tmp_path, capsys):
    def missing(threads):
        raise UserError("it needs mujoco")

    monkeypatch.setitem(beside.ROWS, "sac-cheetah", beside.Row(missing, "updates/s", 1.0))
    file = tmp_path / "record.json"
    assert beside.main(["sac-cheetah", "--threads", "1", "--json", str(file)]) == 0
    assert "left out: it needs mujoco" in capsys.readouterr().out and not file.exists()


def test_pages_show_the_record_once_there_is_one(small, tmp_path, monkeypatch):
    file = tmp_path / "beside-avx2-forced.json"
    words = ["--threads", "1", "--turns", "2", "--seconds", "0.01", "--json", str(file)]
    assert beside.main(["ppo-8", *words]) == 0
    monkeypatch.setattr(measured, "BENCHMARKS", tmp_path)
    monkeypatch.setattr(measured, "PROJECT", tmp_path)
    monkeypatch.setattr(tables, "BENCHMARKS", tmp_path)
    monkeypatch.setattr(learners, "BENCHMARKS", tmp_path)
    [row] = measured.trainings()
    assert "| PPO, CartPole, 8 environments " in row.line and " times SBX |" in row.line
    assert measured.off_policy() == [] and "older code" not in row.line
    title = table.read(file)["ppo-8"]["title"]
    assert title in tables.peers() and title in learners.speed("ppo")
