"""MuJoCo's warnings reach a person once, by our log."""

import logging

import pytest

from stride.config.general import load_general
from stride.envs_gym import make
from stride.envs_gym.make import make_envs
from stride.envs_gym.task import task_of

pytest.importorskip("mujoco")


def test_a_warning_is_told_once_and_of_models_that_gymnasium_has_to_mend_never(capfd, caplog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(make, "_logged_warnings", set())
    with caplog.at_level(logging.INFO, "stride"):
        worlds = make_envs(load_general("HalfCheetah-v5:ppo", ["workers=0"], task_of), 2)
        worlds.reset(1)
        assert not caplog.records
        for env in worlds.envs:
            env.unwrapped.data.qvel[:] = 1e12
            env.step(env.action_space.sample())
        worlds.close()
    (record,) = caplog.records
    assert record.message.startswith("MuJoCo: Nan, Inf or huge value in QVEL") and record.levelno == logging.WARNING
    assert capfd.readouterr() == ("", "") and not [*tmp_path.iterdir()]
