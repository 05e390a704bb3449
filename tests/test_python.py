"""`stride.train` and `stride.load` from Python: what they hand back, what they refuse, and docs/python.md, typed."""

import inspect
import os
import re
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from commands import refusal, run_command
from gymnasium import spaces
from tiny_runs import TINY
from untrained_runs import untrained

import stride
import stride.commands.train as command
from stride.agents.trained.player import batch_of
from stride.commands import run_play, run_publish
from stride.config.fields import is_field
from stride.envs_gym.blame import EnvError
from stride.runs import train
from stride.utils.user_error import UserError

ROOT = Path(__file__).resolve().parent.parent
QUICK = {**TINY, "early_stop_on_eval_threshold": False, "test_episodes": 1, "engine": "eager"}
OBS = np.array([[0, 0, 0.1, 0.5], [0, 0, -0.1, -0.5], [0.3, 1, 0, 0]], np.float32)
BOX = spaces.Box(-1, 1, (2,))


class Lamp(gymnasium.Env):
    """Ten steps; SIGINT in step `interrupted`, counted over all worlds."""

    observation_space, action_space = spaces.Dict({"light": BOX, "room": spaces.Discrete(3, start=1)}), BOX
    steps, interrupted = 0, -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.age = 0
        return self.observed(), {}

    def step(self, action):
        Lamp.steps += 1
        self.age += 1
        if Lamp.steps == Lamp.interrupted:
            os.kill(os.getpid(), signal.SIGINT)
        return self.observed(), float(action[0]), False, self.age == 10, {}

    def observed(self):
        return {"light": np.float32([self.age / 10, 0]), "room": 1 + self.age % 3}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """The folder of the runs of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STRIDE_RUNS", str(tmp_path_factory.mktemp("runs")))
        yield


@pytest.fixture(scope="module")
def run(root):
    return stride.train("CartPole-v1:ppo", seed=np.int64(3), policy_lr=np.float64(1e-3), **QUICK)


@pytest.fixture(scope="module")
def mine(root):
    return stride.train(env=lambda: Lamp(), algo="ppo", **QUICK)


def test_a_run_says_what_was_trained(run, monkeypatch):
    assert run.path.name == run.id and run.path.is_dir() and run.config.seed == 3
    assert run.config.policy_lr == 1e-3 and run.outcome["env_steps"] == 64
    assert run.facts["command"].startswith("python train.py CartPole-v1:ppo seed=3 policy_lr=0.001 n_envs=2")
    monkeypatch.setitem(sys.modules, "pandas", None)  # as if it were not installed
    rows = run.metrics
    assert rows[-1]["train/clock/env_steps"] == 64
    monkeypatch.undo()
    frame = pytest.importorskip("pandas").DataFrame
    assert isinstance(run.metrics, frame) and len(run.metrics) == len(rows)
    assert run.metrics["train/clock/env_steps"].max() == 64


def test_a_batch_is_answered_as_each_of_its_rows_alone(run):
    loaded = stride.load(run.path)
    for agent in (run.agent, loaded.agent):
        actions = agent.predict(OBS)
        assert actions.dtype == np.int64
        for obs, action in zip(OBS, actions, strict=True):
            agent.reset()
            assert agent.act(obs) == action
        np.testing.assert_allclose(agent.value(OBS), [agent.explain(obs).value for obs in OBS], rtol=1e-5)
    assert loaded.id == run.id and run.agent.predict(OBS[:0]).shape == (0,)


def test_actions_are_in_the_environments_units_and_not_every_policy_judges_or_answers_a_batch():
    agent = untrained("Pendulum-v1:sac", "noise_correlation=0.5").agent
    actions = agent.predict(OBS[:, :3])
    assert actions.shape == (3, 1) and actions.dtype == np.float32 and abs(actions).max() > 1  # torques up to 2
    assert agent.value(OBS[:, :3]) is None
    agent = untrained("CartPole-v1:ppo", "policy=lstm", "batch_size=1.0").agent
    for ask in (agent.predict, agent.value):
        with pytest.raises(UserError, match="has a memory"):
            ask(OBS)


def test_a_batch_has_the_form_of_the_space():
    pair = spaces.Tuple((BOX, spaces.Dict({"room": spaces.Discrete(3, start=1)})))
    light, room = np.eye(2, dtype=np.float32), np.array([1, 3])
    for batch in ((light, {"room": room}), [(light[0], {"room": 1}), (light[1], {"room": 3})]):
        tensors = batch_of(pair, batch)
        assert tensors["0"].tolist() == light.tolist() and tensors["1.room"].tolist() == [0, 2]


@pytest.mark.parametrize(("batch", "complaint"), [
    (OBS[0], r"for a single one, give obs\[None\]"), (1.5, "not a single float"),
    ({"light": OBS[:, :2]}, "the batch has no 'room'"),
    ({"light": OBS[:, :2], "room": [1, 2]}, "the parts of the batch have 2 and 3 rows"),
    ({"light": OBS[:, :2], "room": [1, 2, 4]}, "room 4 is outside 1..3"),
])  # fmt: skip
def test_what_is_no_batch_is_refused(batch, complaint):
    space = Lamp.observation_space if isinstance(batch, dict) else spaces.Box(-1, 1, (4,))
    with pytest.raises(UserError, match=complaint):
        batch_of(space, batch)


PPO = "CartPole-v1:ppo"
WRONG = [
    (PPO, {"polcy_lr": 1e-3}, "did you mean policy_lr"), (PPO, {"seed": [1, 2]}, "seed takes a whole number"),
    (PPO, {"policy": Lamp}, "name code as 'module:Name'"),
    (PPO, {"env_kwargs": {"a b": 1}}, "'a b' is not a valid name"), (PPO, {"algo": "ppo"}, "algo= needs env="),
    (PPO, {"env": Lamp}, "give the algorithm with algo="), ("--help", {}, "is not ENV:VARIANT"),
    ("", {}, "say what to train"), ("", {"env": Lamp}, "algo='ppo'"),
    ("", {"env": Lamp, "algo": "pppo"}, "did you mean ppo"),
    ("", {"env": Lamp, "algo": "dqn"}, "ppo, reinforce, sac, td3, tqc, dreamer have general settings"),
    ("", {"env": Lamp(), "algo": "ppo"}, "takes a function that makes an environment"),
    ("", {"env": dict, "algo": "ppo"}, "makes dict, which is not a gymnasium.Env"),
]  # fmt: skip


@pytest.mark.parametrize(("config_id", "keys", "complaint"), WRONG, ids=[row[-1] for row in WRONG])
def test_what_is_wrong_is_one_line_before_anything_begins(config_id, keys, complaint, tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    with pytest.raises(UserError, match=complaint) as error:
        stride.train(config_id, **keys)
    assert "\n" not in str(error.value) and not (tmp_path / "runs").exists()


def test_a_maker_that_raises_names_its_line_and_a_thread_is_refused():
    with pytest.raises(EnvError, match=r"ZeroDivisionError.*test_python\.py:\d+"):
        stride.train(env=lambda: 1 / 0, algo="ppo")
    with ThreadPoolExecutor(1) as pool, pytest.raises(UserError, match="main thread"):
        pool.submit(stride.train, "CartPole-v1:ppo").result()


def test_no_argument_hides_a_key_of_a_config():
    assert not [name for name in inspect.signature(train).parameters if is_field(name)]


def test_an_environment_of_ones_own_goes_on_by_being_given_again(mine):
    assert mine.config.env_id == "given/Lamp" and "given/Lamp" not in gymnasium.registry
    batch = {"light": np.zeros((2, 2)), "room": np.array([1, 3])}
    assert mine.agent.predict(batch).shape == (2, 2) and mine.agent.value(batch).shape == (2,)
    more = stride.train(resume=mine.id, env=Lamp, max_timesteps=128)
    assert more.id == mine.id and more.progress["env_steps"] == 128 and more.facts["resumed"]
    assert stride.load(mine.id, env=Lamp).progress == more.progress


def test_nobody_else_can_make_it_and_the_function_makes_what_the_run_was_trained_on(mine, capsys, run):
    for ask in (lambda: stride.load(mine.id), lambda: stride.train(resume=mine.id, max_timesteps=256)):
        with pytest.raises(UserError, match="made by a Python function"):
            ask()
    for main, *words in (
        (command.command, "--resume", mine.id, "-q", "max_timesteps=256"),
        (run_play.command, "--run-id", mine.id, "--headless"),
        (run_publish.command, "--run-id", mine.id, "--dry-run"),
    ):
        assert "stride.train(resume=..., env=...)" in refusal(capsys, main, *words)
    with pytest.raises(UserError, match="leave env= out"):
        stride.load(run.id, env=Lamp)
    with pytest.raises(UserError, match="given/Lamp, but env= makes given/CartPoleEnv"):
        stride.load(mine.id, env=lambda: gymnasium.make("CartPole-v1"))


def test_ctrl_c_saves_and_is_the_programs_own(root, monkeypatch):
    monkeypatch.setattr(Lamp, "interrupted", Lamp.steps + 40)
    with pytest.raises(KeyboardInterrupt):
        stride.train(env=Lamp, algo="ppo", **{**QUICK, "max_timesteps": 10_000})
    loaded = stride.load("@last", env=Lamp)
    assert 32 <= loaded.progress["env_steps"] < 10_000 and loaded.outcome["reason"] == "interrupted"


@pytest.mark.slow
def test_the_page_does_what_it_says(tmp_path):
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", (ROOT / "docs" / "python.md").read_text(), re.M | re.S)
    (tmp_path / "page.py").write_text("".join(text for kind, text in blocks if kind == "python"))
    env = {**os.environ, "STRIDE_RUNS": str(tmp_path / "runs"), "PYTHONPATH": str(ROOT)}
    done = run_command("page.py", cwd=tmp_path, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = [line for line in done.stdout.splitlines() if not line.startswith("result=")]
    wanted = [line for kind, text in blocks if kind == "text" for line in text.splitlines()]
    assert [re.sub(r"[\d.-]+", "0", line) for line in printed] == [re.sub(r"[\d.-]+", "0", line) for line in wanted]
