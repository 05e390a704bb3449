"""The comparison on MuJoCo's bodies: what is trained, kept and told; theirs gets the config's own numbers."""

from types import SimpleNamespace

import pytest

from lab.bench import peers
from lab.evidence import mujoco
from lab.evidence.mujoco import Curve, draw, kept, measure, told
from stride.config.general import Task, load_general
from stride.config.schedule import Schedule

WORDS = "Hopper-v5:sac"


@pytest.fixture
def curves(tmp_path, monkeypatch):
    """Trainings that take no time: each reaches its seed, theirs one more."""
    monkeypatch.setattr(mujoco, "FOLDER", tmp_path)
    monkeypatch.setattr(mujoco, "FIGURES", tmp_path / "rows.json")
    begun = []

    def trained(words, who, seed, budget):
        begun.append((who, seed))
        end = float(seed + (who == "sb3"))
        return Curve(words, who, seed, budget, [(budget // 2, 0.0), (budget, end)], 60.0)

    monkeypatch.setattr(mujoco, "trained", trained)
    return begun


def test_seeds_that_are_there_are_kept_and_both_begin_in_turns(curves, tmp_path):
    measure(WORDS, 100, range(1, 3), [])
    assert curves == [("ours", 1), ("sb3", 1), ("sb3", 2), ("ours", 2)]
    measure(WORDS, 100, range(1, 4), kept())
    assert curves[4:] == [("ours", 3), ("sb3", 3)]
    measure(WORDS, 200, range(1, 2), kept())
    assert len(curves) == 8  # another budget is another training
    table = told(kept())
    assert "| Hopper-v5:sac | ours | 3 | 100 | 2.00 [" in table and "| sb3 | 3 | 100 | 3.00 [" in table
    draw(kept())
    assert (tmp_path / "Hopper-v5-sac.svg").read_text().startswith("<svg")


def test_what_is_known_of_one_alone_is_no_picture(curves, tmp_path):
    draw([Curve(WORDS, "ours", 1, 100, [(100, 1.0)], 1.0)])
    assert not [*tmp_path.glob("*.svg")]


@pytest.mark.parametrize("words", mujoco.ROWS)
def test_theirs_gets_the_numbers_of_the_config(words, monkeypatch):
    given = {}
    library = SimpleNamespace(**{name: lambda *args, **kwargs: given.update(kwargs) for name in ("PPO", "SAC")})
    monkeypatch.setattr(peers.importlib, "import_module", lambda name: library)
    config = load_general(words, ["seed=7"], lambda config: Task("bounded", "", None, None))
    peers.algorithm(config, peers.SB3, None)
    same = ["gamma", "seed", *(["n_steps", "n_epochs"] if words.endswith("ppo") else ["buffer_size", "tau"])]
    assert {name: given[name] for name in same} == {name: vars(config)[name] for name in same}


@pytest.mark.parametrize("words", mujoco.ROWS)
def test_ours_is_evaluated_as_often(words):
    """Its words make a config, whose evaluations are as many, and one more at most where rollouts do not divide."""
    first = load_general(words, ["max_timesteps=100_000"], lambda config: Task("bounded", "", None, None))
    looks = mujoco.often(first)
    config = load_general(words, ["max_timesteps=100_000", *looks], lambda config: Task("bounded", "", None, None))
    every = config.eval_freq_epochs * config.epoch_iterations * config.iteration_steps
    assert mujoco.LOOKS <= 100_000 // every <= mujoco.LOOKS + 4


def test_a_rate_that_fades_is_of_the_share_that_is_left():
    fading = peers.rate(Schedule("linear", 3.0, 1.0))
    assert [fading(left) for left in (1.0, 0.5, 0.0)] == [3.0, 2.0, 1.0] and peers.rate(0.5) == 0.5
