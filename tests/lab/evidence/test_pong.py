"""What lab.evidence.pong reads off a run and keeps of it; the training itself takes hours."""

import json
import signal

import pytest

from lab.evidence import pong
from stride.runstore.metrics_csv import read_csv
from stride.runstore.run_dir import list_runs
from stride.utils.interrupted import Noted


def curve(tmp_path, returns):
    lines = [f"{8 * row},{mean},{row / 2}" for row, mean in enumerate(returns, 1)]
    head = f"{pong.STEPS},{pong.RETURN},{pong.TIME}"
    (tmp_path / "metrics.csv").write_text("\n".join((head, *lines, "")))
    return pong.curve(read_csv(tmp_path / "metrics.csv"))


def test_what_is_left_of_minus_21_is_left_for_good(tmp_path):
    found = curve(tmp_path, ["", -20.5, -17, -19, -17.5, 3])
    assert [instant.env_steps for instant in found] == [16, 24, 32, 40, 48]
    assert pong.left(found) == (40, -17.5, 2.5)
    assert pong.told(found) == "3.0 at 48 env steps (0:03), above -18 from 40 on, after 0:02"
    assert pong.left(curve(tmp_path, [-17, -19])) is None and pong.left([]) is None


@pytest.mark.slow
def test_a_training_that_was_stopped_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("STRIDE_RUNS", str(tmp_path))
    words, overrides = "CartPole-v1:ppo", ["max_timesteps=4000", "eval_freq_epochs=null", "test_episodes=1", "n_envs=8"]
    with monkeypatch.context() as patch:
        patch.setattr(Noted, "number", signal.SIGTERM, raising=False)
        patch.setattr(Noted, "__init__", lambda self: setattr(self, "_before", {}))
        assert pong.trained(words, 1, overrides) and not pong.rows_of(words, 1, overrides)
    assert pong.trained(words, 1, overrides) == 0 == pong.trained(words, 1, overrides)
    assert pong.curve(pong.rows_of(words, 1, overrides)) and len(list_runs()) == 1
    assert not pong.rows_of(words, 2, overrides)


@pytest.mark.parametrize(("words", "stem"), pong.STEMS.items())
def test_figures_and_picture_are_kept(tmp_path, words, stem):
    found = {"1": curve(tmp_path, [-20, -19]), "2": curve(tmp_path, [-21, -15])}
    pong.write(tmp_path / "kept", words, found, ["max_timesteps=16"])
    kept = json.loads((tmp_path / "kept" / f"{stem}.json").read_text())
    assert kept["seeds"]["2"] == [[8, -21.0, 0.5], [16, -15.0, 1.0]] and kept["columns"][0] == "env_steps"
    picture = (tmp_path / "kept" / f"{stem}.svg").read_text()
    assert words in picture and "seed 1" in picture and "seed 2" in picture
