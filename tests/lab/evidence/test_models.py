"""The evidence of world models: what counts as reached, and that every evaluation is told."""

from types import SimpleNamespace

import pytest

from lab.evidence import models
from lab.evidence.file import Evidence, configured
from lab.evidence.models import ROWS, Row, chosen, holds, markdown, place, told, verdict
from lab.evidence.seed import SECONDS, of_a_model
from stride.agents.engines.choice import build_agent
from stride.config.general import is_general_config
from stride.config.loader import load_config
from stride.envs_gym.make import make_envs
from stride.runstore.history import STEPS, VAL
from stride.utils.user_error import UserError

ROW = Row("CartPole-v1:dreamer", 20, 2, ((10, 475.0), (20, 475.0)), 2)


def record(seed, val, test, **others):
    steps = (5, 10, 20)
    spent = [[step, 3.0 * step] for step in steps]
    return {
        "seed": seed, "status": "finished", "goal": 475.0, "env_steps": 20, "seconds": 61.0, "git_hash": "abc",
        "final": {"mean": test}, "curve": {"val": [[*pair] for pair in zip(steps, val, strict=True)], "train": []},
        "val_seconds": spent, "ms_per_action": 1.25, **others,
    }  # fmt: skip


def evidence(*records):
    machine = {"cpu": "a processor", "cores": 2}
    return Evidence(ROW.variant, "dreamer", "0", ROW.overrides, machine=machine, seeds={r["seed"]: r for r in records})


def test_a_goal_holds_where_enough_seeds_reach_all_of_it():
    """Half way by the evaluation, at the end by the test of fresh episodes: not by the last evaluation."""
    good, late, lucky = record(1, (9, 480, 1), 490), record(2, (9, 474, 500), 500), record(3, (9, 480, 500), 470)
    assert holds(ROW, evidence(good, record(4, (9, 475, 9), 475)))
    for bad in (late, lucky, {"seed": 5, "status": "failed", "code": 1, "line": "out of memory"}):
        assert not holds(ROW, evidence(good, bad)) and "**missed**, on 1 of 2" in verdict(ROW, evidence(good, bad))
    unseen = record(6, (9, 480, 480), 480) | {"curve": {"val": [[5, 500.0]], "train": []}}
    assert not holds(ROW, evidence(good, unseen)), "nobody looked at 10"


def test_every_evaluation_is_told():
    failed = {"seed": 7, "status": "failed", "code": 1, "line": "out of memory"}
    text = "\n".join(told(ROW, evidence(record(1, (12, 481, 499), 490), failed)))
    assert "| seed | 5 | 10 | 20 | test | seconds |" in text and "| 1 | 12.0 | 481.0 | 499.0 | 490.0 |" in text
    assert "seed 7 failed: out of memory" in text
    assert "1.2 ms for a greedy answer" in text and "10 env steps took 0:30" in text


def test_the_page_names_what_is_not_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "FOLDER", tmp_path)
    text = markdown({ROW.variant: evidence(record(1, (12, 481, 499), 490))})
    assert "Not measured yet: CartPole-v1:planet." in text and "Not measured yet: CartPole-v1:dreamer." not in text
    assert "(results/models/CartPole-v1-dreamer.svg)" in text and (tmp_path / "CartPole-v1-dreamer.svg").is_file()


def test_what_others_reach_stands_beside_it():
    row = ROW._replace(asked=(), beside="somebody reaches 472")
    assert "whatever it is. somebody reaches 472." in "\n".join(told(row, evidence(record(1, (1, 2, 3), 4))))


def test_general_settings_are_configured_as_a_command_has_them():
    config = configured("Pendulum-v1:reinforce", ["gamma=0.9"])
    assert is_general_config(config) and config.gamma == 0.9 and not is_general_config(configured("Pendulum-v1:sac"))


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


def test_rows_are_chosen_by_a_part_of_their_names():
    assert [row.variant for row in chosen("planet")] == ["CartPole-v1:planet"] and len(chosen("")) == len(ROWS)
    assert [row.variant for row in chosen("CartPole-v1:dreamer")] == ["CartPole-v1:dreamer"]
    with pytest.raises(UserError, match="no row has 'pendulun' in its name"):
        chosen("pendulun")


def test_what_is_kept_of_a_model_beside_its_curve():
    """When it was evaluated and what an answer costs; of policies without a model nothing."""
    rows = [{SECONDS: 2.0, STEPS: 10.0}, {SECONDS: 5.0, STEPS: 20.0, VAL: 7.0}]
    config = load_config("CartPole-v1", "dreamer", ["deter=8", "width=8", "stoch=2"])
    agent = build_agent(config, make_envs(config, 2))
    kept = of_a_model(SimpleNamespace(agent=agent, config=config), rows)
    assert kept["val_seconds"] == [[20, 5.0]] and 0 < kept["ms_per_action"] < 1000
    config = load_config("CartPole-v1", "ppo")
    other = build_agent(config, make_envs(config, 2))
    assert of_a_model(SimpleNamespace(agent=other, config=config), rows) == {}
