"""`ENV:auto`: the rule by costs, the config it becomes, and that nothing measures twice."""

import time

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from stride.commands import train
from stride.commands.completion import environments
from stride.commands.train_arguments import parse_arguments
from stride.config.auto import FLASH_UPDATES, MAX_CHEAP_STEP, choice_by, decide
from stride.config.general import Costs, Task, load_general
from stride.config.loader import load_file
from stride.envs_gym.task import task_of
from stride.runstore.run_dir import RunDir
from stride.utils.user_error import UserError


class Sleepy(gymnasium.Env):
    """A world of one number whose step takes so many seconds."""

    observation_space = spaces.Box(-1, 1, (2,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(2, np.float32), {}

    def step(self, action):
        time.sleep(self.seconds)
        return np.zeros(2, np.float32), 0.0, False, False, {}


gymnasium.register("Sleepy-v0", Sleepy, max_episode_steps=4)
UPDATE = 0.01


def costing(step, actions="bounded", image=None):
    """A look at a task whose costs are these."""
    return lambda config: Task(actions, "its action is a number", None, image, measure=lambda: Costs(step, UPDATE))


@pytest.mark.parametrize(
    ("updates", "on_gpu", "name"),
    [
        (0.9 * MAX_CHEAP_STEP, False, "ppo"),
        (MAX_CHEAP_STEP, False, "tqc"),
        (0.9 * FLASH_UPDATES[64], True, "tqc"),
        (FLASH_UPDATES[64], False, "sac recipe=flash hidden_dims=[64]"),
        (FLASH_UPDATES[128], False, "sac recipe=flash hidden_dims=[128]"),
        (FLASH_UPDATES[64], True, "sac recipe=flash hidden_dims=[256]"),
    ],
)
def test_the_choice_follows_from_the_cost_of_a_step(updates, on_gpu, name):
    assert choice_by(Costs(updates * UPDATE * 1.0001, UPDATE), on_gpu).name == name


def test_the_choice_is_an_ordinary_config_with_what_was_measured():
    decision = decide("Sleepy-v0:auto", ["hidden_dims=[32]", "gamma=0.98"], costing(0.05))
    assert decision.line.startswith("auto chose sac recipe=flash hidden_dims=[64] for Sleepy-v0: a step takes 50 ms, ")
    config = load_general("Sleepy-v0:auto", (*decision.overrides, "hidden_dims=[32]", "gamma=0.98"), task_of)
    assert (config.algo_id, config.variant, config.recipe) == ("sac", "auto", "flash")
    assert config.norm == "batch" and config.hidden_dims == (32,) and config.gamma == 0.98, "what is typed wins"
    assert "a step takes 50 ms, an update of SAC 10 ms" in config.description
    decision = decide("Sleepy-v0:auto", [], costing(1.0, "choice"))
    assert decision.overrides[0] == "algo_id=ppo" and "ms" not in decision.line, "nothing to measure"
    assert decide("Sleepy-v0:auto", [], costing(1.0, image=84)).overrides[0] == "algo_id=ppo"


def test_costs_are_measured_where_the_world_is():
    arguments = parse_arguments(["Sleepy-v0:auto", "env_kwargs.seconds=0.02", "-q"])
    costs = task_of(arguments.decided(task_of).load(task_of)).measure()
    assert 0.02 <= costs.step < 1 and 0 < costs.update < 1


def test_a_run_keeps_what_was_chosen(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path / "runs"))
    measured = []
    monkeypatch.setattr("stride.envs_gym.task.measured_costs", lambda config: measured.append(1) or Costs(1e-6, 1))
    small = ["max_timesteps=128", "n_envs=2", "n_steps=16", "batch_size=32", "n_epochs=1", "engine=eager", "workers=0",
             "env_backend=gym", "eval_freq_epochs=null", "test_episodes=0"]  # fmt: skip
    assert train.command(["Sleepy-v0:auto", *small, "--pause-at", "64"]) == 0
    assert "auto chose ppo for Sleepy-v0: a step takes 0.001 ms" in " ".join(capsys.readouterr().out.split())
    [run] = map(RunDir, (tmp_path / "runs").glob("2*"))
    facts = run.facts()
    assert (facts["variant"], facts["config"]["algo_id"], facts["changes"]) == ("auto", "ppo", small)
    assert not any(text.startswith(("algo_id", "description")) for text in facts["shipped"])
    assert train.command(["--resume", run.id]) == 0
    assert run.facts()["config"] == facts["config"] and measured == [1]


def test_where_it_is_refused_or_offered(tmp_path, capsys):
    (tmp_path / "my.yaml").write_text("env_id: Sleepy-v0\nauto: {algo_id: ppo, max_timesteps: 1e5}\n")
    with pytest.raises(UserError, match=r"^my\.yaml: no variant can be called auto"):
        load_file(tmp_path / "my.yaml")
    assert train.command(["Sleepy-v0:auto", "--group", "night"]) == 2
    assert "may choose otherwise the next time; here, name an algorithm: Sleepy-v0:sac" in capsys.readouterr().err
    assert "Pendulum-v1:auto" in environments("Pendulum-v1:")
    several = parse_arguments(["Sleepy-v0:auto", "gamma=0.9", "--seed", "1,2", "-q"]).decided(costing(0.01))
    assert several.load(task_of).algo_id == "tqc" and several.decided(costing(1.0)) is several
