"""Tables of evidence: two ways compared, world models, MuJoCo's bodies, worlds nobody configured, bands of curves."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from lab.bench import peers
from lab.evidence import mujoco, unconfigured
from lab.evidence.bands import RESULTS, text
from lab.evidence.file import Evidence, configured, summary
from lab.evidence.models import ROWS, Row, chosen, holds, place, verdict
from lab.evidence.mujoco import Curve, draw, kept, measure, told
from lab.evidence.seed import SECONDS, of_a_model
from lab.evidence.ways import ENGINES, comparison, reached
from stride.agents.engines.choice import build_agent
from stride.config.bands import FILE, of_variant
from stride.config.general import Task, load_general
from stride.config.loader import load_config
from stride.config.schedule import Schedule
from stride.envs_gym.make import make_envs
from stride.runstore.history import STEPS, VAL
from stride.utils.user_error import UserError


def test_equal_ways_are_the_same_and_others_are_told_apart():
    rng = np.random.default_rng(5)
    one, other = rng.normal(0, 1, 10), rng.normal(0, 1, 10)
    assert [comparison(one, other + shift, ENGINES.level).same for shift in (0, 3, -3)] == [True, False, False]
    seeds = np.linspace(-100.0, 100.0, 10)
    assert comparison(seeds, seeds, ENGINES.level).same
    assert not comparison(seeds, seeds - 5.0, ENGINES.level).same, "the seeds' intervals overlap; the pairs tell"
    with pytest.raises(UserError, match="two seeds"):
        comparison([1.0], [1.0], 0.95)
    record = {"final": {"mean": 7}, "curve": {"val": [[100, 0.0], [200, 10.0], [400, 10.0]]}}
    assert reached(record, "area") == pytest.approx((5.0 * 100 + 10.0 * 200) / 300) and reached(record, "final") == 7


def test_the_evidence_and_the_bands_of_the_package_are_what_the_seeds_say():
    paths = sorted(RESULTS.glob("*.json"))
    assert len(paths) > 20 and FILE.read_text() == text(RESULTS), "stale: python -m lab.evidence.bands"
    for path in paths:
        evidence_file = Evidence.read(path)
        written, computed = json.loads(path.read_text())["summary"], summary(evidence_file.finished())
        assert (written["solved"], written["finished"]) == (computed["solved"], computed["finished"]), path.name
        assert written["final"]["iqm"] == pytest.approx(computed["final"]["iqm"])
        band = of_variant(*evidence_file.variant.replace("/", "-").split(":"))
        assert band.solved == computed["solved"] and band.seeds == len(evidence_file.seeds)
        assert band.config == evidence_file.config and len(band.curves) <= band.seeds


def test_a_variant_of_other_settings_is_in_no_band(tmp_path):
    data = json.loads((RESULTS / "CartPole-v1-pqn.json").read_text())
    for more, names in (({}, ["CartPole-v1:pqn"]), ({"overrides": ["gamma=0.5"]}, [])):
        (tmp_path / "CartPole-v1-pqn.json").write_text(json.dumps(data | more))
        assert [*json.loads(text(tmp_path))] == names


ROW = Row("CartPole-v1:dreamer", 20, 2, ((10, 475.0), (20, 475.0)), 2)
FAILED = {"seed": 5, "status": "failed", "code": 1, "line": "out of memory"}


def record(seed, val, test):
    steps = (5, 10, 20)
    return {
        "seed": seed, "status": "finished", "goal": 475.0, "env_steps": 20, "seconds": 61.0, "git_hash": "abc",
        "final": {"mean": test}, "curve": {"val": [[*pair] for pair in zip(steps, val, strict=True)], "train": []},
        "val_seconds": [[step, 3.0 * step] for step in steps], "ms_per_action": 1.25,
    }  # fmt: skip


def evidence(*records):
    machine = {"cpu": "a processor", "cores": 2}
    return Evidence(ROW.variant, "dreamer", "0", ROW.overrides, machine=machine, seeds={r["seed"]: r for r in records})


def test_a_models_goal_holds_where_enough_seeds_reach_all_of_it():
    """Half way by the evaluation, at the end by the test of fresh episodes: not by the last evaluation."""
    good, late, lucky = record(1, (9, 480, 1), 490), record(2, (9, 474, 500), 500), record(3, (9, 480, 500), 470)
    assert holds(ROW, evidence(good, record(4, (9, 475, 9), 475)))
    for bad in (late, lucky, FAILED):
        assert not holds(ROW, evidence(good, bad)) and "**missed**, on 1 of 2" in verdict(ROW, evidence(good, bad))
    unseen = record(6, (9, 480, 480), 480) | {"curve": {"val": [[5, 500.0]], "train": []}}
    assert not holds(ROW, evidence(good, unseen)), "nobody looked at 10"


@pytest.mark.parametrize("row", ROWS, ids=[row.variant for row in ROWS])
def test_what_a_row_asks_for_is_evaluated(row):
    """Its words make a config whose evaluations, or whose closing test, lie where a goal is."""
    if row.variant.startswith("dm_control/"):
        pytest.importorskip("dm_control")
    config = configured(row.variant, row.overrides)
    assert config.test_episodes == 100 and not config.early_stop_on_eval_threshold
    assert config.max_timesteps == row.budget and place(row).suffix == ".json"
    every = config.eval_freq_epochs * config.epoch_iterations * config.iteration_steps
    assert all(step % every == 0 or step == row.budget for step, _ in row.asked)
    assert not row.asked or config.eval_episodes == 100 or "planet" in row.variant
    assert row in chosen(row.variant)


def test_what_is_recorded_of_a_model_beside_its_curve():
    """When it was evaluated and what an answer costs; of policies without a model nothing."""
    rows = [{SECONDS: 2.0, STEPS: 10.0}, {SECONDS: 5.0, STEPS: 20.0, VAL: 7.0}]
    results = []
    for variant, small in (("dreamer", ["deter=8", "width=8", "stoch=2"]), ("ppo", [])):
        config = load_config("CartPole-v1", variant, small)
        agent = build_agent(config, make_envs(config, 2))
        results.append(of_a_model(SimpleNamespace(agent=agent, config=config), rows))
    assert results[0]["val_seconds"] == [[20, 5.0]] and results[0]["ms_per_action"] > 0 and results[1] == {}


def test_seeds_that_are_there_are_kept_and_both_begin_in_turns(tmp_path, monkeypatch):
    """Trainings on MuJoCo's bodies that take no time: each reaches its seed, theirs one more."""
    monkeypatch.setattr(mujoco, "FOLDER", tmp_path)
    monkeypatch.setattr(mujoco, "FIGURES", tmp_path / "rows.json")
    begun, words = [], "Hopper-v5:sac"

    def trained(words, who, seed, budget):
        begun.append((who, seed))
        return Curve(words, who, seed, budget, [(budget // 2, 0.0), (budget, seed + float(who == "sb3"))], 60.0)

    monkeypatch.setattr(mujoco, "trained", trained)
    draw([Curve(words, "ours", 1, 100, [(100, 1.0)], 1.0)])
    assert not [*tmp_path.glob("*.svg")], "one alone is no picture"
    measure(words, 100, range(1, 3), [])
    assert begun == [("ours", 1), ("sb3", 1), ("sb3", 2), ("ours", 2)]
    measure(words, 100, range(1, 4), kept())
    assert begun[4:] == [("ours", 3), ("sb3", 3)]
    measure(words, 200, range(1, 2), kept())
    assert len(begun) == 8  # another budget is another training
    table = told(kept())
    assert "| Hopper-v5:sac | ours | 3 | 100 | 2.00 |" in table and "| sb3 | 3 | 100 | 3.00 |" in table
    draw(kept())
    picture = (tmp_path / "Hopper-v5-sac.svg").read_text()
    assert picture.count("<polyline") == picture.count("<polygon") == 2


def test_theirs_rate_fades_with_the_share_that_is_left():
    fading = peers.rate(Schedule("linear", 3.0, 1.0))
    assert [fading(left) for left in (1.0, 0.5, 0.0)] == [3.0, 2.0, 1.0] and peers.rate(0.5) == 0.5


def bounded(words, *overrides):
    return load_general(words, ["seed=7", *overrides], lambda config: Task("bounded", "", None, None))


@pytest.mark.parametrize("words", mujoco.ROWS)
def test_theirs_gets_the_numbers_of_the_config_and_ours_is_evaluated_as_often(words, monkeypatch):
    given = {}
    library = SimpleNamespace(**{name: lambda *args, **kwargs: given.update(kwargs) for name in ("PPO", "SAC")})
    monkeypatch.setattr(peers.importlib, "import_module", lambda name: library)
    config = bounded(words)
    peers.algorithm(config, peers.SB3, None)
    same = ["gamma", "seed", *(["n_steps", "n_epochs"] if words.endswith("ppo") else ["buffer_size", "tau"])]
    assert {name: given[name] for name in same} == {name: vars(config)[name] for name in same}
    # one more at most where rollouts do not divide
    looks = mujoco.often(bounded(words, "max_timesteps=100_000"))
    config = bounded(words, "max_timesteps=100_000", *looks)
    every = config.eval_freq_epochs * config.epoch_iterations * config.iteration_steps
    assert mujoco.LOOKS <= 100_000 // every <= mujoco.LOOKS + 4


@pytest.mark.slow
def test_an_unconfigured_world_that_trains_and_one_that_cannot_be_made(monkeypatch, tmp_path):
    monkeypatch.setattr(unconfigured, "TASKS", {"Acrobot-v1:reinforce": (), "no_such_module:X-v0:ppo": ()})
    monkeypatch.setattr(unconfigured, "FIGURES", tmp_path / "figures" / "rows.json")
    monkeypatch.setattr(unconfigured, "PAGE", tmp_path / "page.md")
    assert unconfigured.main(["--seeds", "1", "--budget", "8192", "--record"]) == 1
    good, bad = json.loads((tmp_path / "figures" / "rows.json").read_text())["rows"]
    assert good["env_steps"] == 8192 and -500 <= good["random"] < 0 and -500 <= good["trained"] < 0
    assert good["found"].startswith("0 faults, ") and good["found"] in unconfigured.PAGE.read_text()
    assert bad["verdict"].startswith("failed: ") and "no Python module 'no_such_module'" in bad["verdict"]
    monkeypatch.setattr(unconfigured, "measured", lambda *words: pytest.fail("what is recorded is kept"))
    assert unconfigured.main(["--seeds", "1", "--record"]) == 1
