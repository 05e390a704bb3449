"""`Bandit/NAME`: the name decides the arms, on both backends, and it trains from the shell."""

import gymnasium
import pytest
import torch
from tiny_runs import tiny_run

from stride.commands import train
from stride.config.schema import Config
from stride.envs_fast import registry
from stride.envs_gym.make import make_envs


@pytest.fixture(autouse=True)
def forgotten():
    """Names that a test registers are nobody else's."""
    yield
    for table in (registry.WORLDS, gymnasium.registry):
        for name in [name for name in table if name.startswith("Bandit/")]:
            del table[name]


def means(name, **kwargs):
    envs = make_envs(Config(env_id=name, env_kwargs=kwargs), 2)
    found = envs.setting.tables.means.tolist()
    envs.close()
    return found


@pytest.mark.parametrize("name", ["", "a b", "ä/b", "x" * 300 + " "])
def test_a_name_that_no_id_can_have_is_one_line(name, capsys):
    assert train.command([f"Bandit/{name}:ppo", "-q"]) == 2
    assert "is no id of an environment" in capsys.readouterr().err


def test_a_name_is_a_bandit_of_its_own():
    red = means("Bandit/red")
    assert len(red) == 10 and red == means("Bandit/red") and red != means("Bandit/blue")
    assert means("Bandit/red", n_arms=2) == red[:2] and means("Bandit/red", means=[0.0] * 10) == [0.0] * 10


def test_gymnasiums_has_the_same_arms():
    envs = make_envs(Config(env_id="Bandit/red", env_backend="gym", env_kwargs={"stds": 0.0}), 1)
    envs.reset(0)
    paid = [envs.step(torch.tensor([arm])).reward.item() for arm in range(10)]
    assert paid == pytest.approx(means("Bandit/red"))
    envs.close()


def test_it_trains_from_the_shell(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    run = tiny_run("Bandit/red:ppo", test_episodes=2)
    assert run.facts()["env_id"] == "Bandit/red" and run.facts()["env_backend"] == "fast"
