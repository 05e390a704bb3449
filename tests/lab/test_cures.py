"""The script that breaks runs on purpose: what counts as named, as quiet, and what it reads of a run's end."""

import gymnasium as gym
import numpy as np
import pytest
from tiny_runs import tiny_run

from lab import cures
from lab.cures import BREAKS, NEIGHBOURS, Row, Way
from lab.evidence.file import Evidence
from lab.spoiled import Constant, Flipped, Scaled
from stride.config.loader import load_config, parse_config_id, to_plain

ROW = Row("gamma 0.1", 1, "CartPole-v1:ppo gamma=0.1", "not solved", ["Return"], ["gamma=0.98"], [], True)


def test_each_break_changes_a_key_that_is_to_blame_and_each_neighbour_a_config_that_is_allowed():
    assert len(BREAKS) == len(NEIGHBOURS) == 12
    for way in (*BREAKS.values(), *NEIGHBOURS.values()):
        env_id, variant = parse_config_id(way.words[0])
        assert load_config(env_id, variant, way.words[1:]) != load_config(env_id, variant)
        keys = {word.partition("=")[0] for word in way.words[1:]}
        assert bool(keys & {*way.causes}) == bool(way.causes)


def test_the_first_two_commands_of_the_report_are_what_counts(monkeypatch, tmp_path):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    run = tiny_run(gamma=0.1)
    monkeypatch.setattr(cures, "train", lambda words, runs: run)
    monkeypatch.setitem(BREAKS, "gamma 0.1", Way(("CartPole-v1:ppo", "gamma=0.1"), ("gamma",)))
    row = cures.measured("gamma 0.1", 1)
    assert row.cures == ["max_timesteps=100000", "gamma=0.98"] and row.named and row.result == "not solved"
    assert "gamma=0.98" not in row.blind, "who does not know what was changed does not know the variant's value"
    monkeypatch.setitem(BREAKS, "gamma 0.1", Way(("CartPole-v1:ppo", "gamma=0.1"), ("ent_coef",)))
    assert cures.measured("gamma 0.1", 1).named is False


@pytest.mark.parametrize(("named", "alerts", "is_missed"), [(33, 0, False), (32, 0, True), (36, 1, True)])
def test_three_of_36_may_be_missed_and_no_neighbour_may_have_an_alert(named, alerts, is_missed):
    broken = [ROW._replace(named=number < named) for number in range(36)]
    healthy = [ROW._replace(named=None, alerts=["KL"] * (number < alerts)) for number in range(12)]
    assert cures.missed([*broken, *healthy]) is is_missed
    assert f"Of 36 broken runs {named} are named, 0 by their numbers alone" in cures.summary([*broken, *healthy])


@pytest.mark.parametrize(("returns", "is_quiet"), [(lambda n: 5.0 * n, True), (lambda n: 20.0, False)])
def test_stored_returns_are_judged(returns, is_quiet):
    config = load_config("CartPole-v1", "ppo")
    curve = [[1500 * n, returns(n)] for n in range(1, 101)]
    evidence = Evidence("CartPole-v1:ppo", "ppo", "", config=to_plain(config))
    assert (cures.judged(evidence, {"goal": 475.0, "curve": {"train": curve, "val": []}}) == []) is is_quiet


def test_the_wrappers_spoil_what_their_names_say():
    env = gym.make("CartPole-v1")
    assert Flipped(env).reward(1.0) == -1.0 and Scaled(env, 1e6).reward(2.0) == 2e6
    assert not np.any(Constant(env).observation(np.ones(4, np.float32)))
