"""What lab.bench.seeds and lab.same_bits read off a run's folder."""

import math

import pytest
import torch

from lab.bench.seeds import UNNAMED, main, parts_of, seconds_of, seeds_of
from lab.bench.seeds import Run as SeedRun
from lab.same_bits import Result, result_of
from stride.runstore.phases import PHASES
from stride.utils.user_error import UserError


def test_seconds_of_a_checkout_that_tells_of_two_phases(tmp_path):
    head = "train/clock/env_steps,train/time/seconds,train/time/collect,train/time/learn,test/roll/episodes\n"
    (tmp_path / "metrics.csv").write_text(head + "8,2,0.5,0.25,\n16,6,0.25,0.5,\n16,,,,100\n")
    assert seconds_of(tmp_path, {}) == {"collect": 2.0, "learn": 2.5, UNNAMED: 1.5}


def test_seconds_of_a_checkout_that_tells_of_all(tmp_path):
    (tmp_path / "metrics.csv").write_text("train/clock/env_steps,train/time/seconds\n8,2\n16,10\n")
    parts = dict.fromkeys(PHASES, 0.2)
    assert seconds_of(tmp_path, {"phases": parts}) == dict.fromkeys(PHASES, 2.0)


def test_the_shares_are_those_of_all_runs_together():
    runs = [SeedRun(None, 8, {"learn": 3.0, "other": 1.0}), SeedRun(None, 8, {"learn": 3.0, UNNAMED: 3.0})]
    assert parts_of(runs) == f"learn 60.0%, other 10.0%, {UNNAMED} 30.0%"


def test_seeds_are_a_stretch_or_one():
    assert seeds_of("3-5") == range(3, 6) and seeds_of("7") == range(7, 8)


def test_what_is_no_checkout_is_refused():
    with pytest.raises(UserError, match="nowhere is no checkout"):
        main(["nowhere", "CartPole-v1:ppo"])


def test_evaluations_may_be_apart_by_rounding_and_must_be_the_same_ones():
    rows = [{}, {"val/roll/ep_rew/mean": "200", "val/roll/episodes": "4"}]
    near = [{}, {"val/roll/ep_rew/mean": "200.002", "val/roll/episodes": "4"}]
    assert Result("a", rows).apart(Result("b", near)) == pytest.approx(1e-5)
    assert Result("a", rows).apart(Result("a", rows)) == 0 == Result("a", []).apart(Result("a", []))
    assert Result("a", rows).apart(Result("a", rows[::-1])) == math.inf


def test_a_bit_a_counter_or_a_row_is_another_result_and_wall_time_is_none(tmp_path):
    def digest(weight=1.0, steps=8, rows="8,0.5\n"):
        torch.save({"state_dict": {"w": torch.tensor([weight])}, "optimizer_states": [], "stride": {"steps": steps}},
                   tmp_path / "checkpoints" / "last.ckpt")  # fmt: skip
        (tmp_path / "metrics.csv").write_text(f"train/clock/env_steps,train/time/seconds\n{rows}")
        return result_of(tmp_path, rounded=False).digest

    (tmp_path / "checkpoints").mkdir()
    assert digest() == digest(rows="8,0.7\n")
    others = [digest(weight=1.0 + 2**-23), digest(steps=9), digest(rows="9,0.5\n")]
    assert len({digest(), *others}) == 4
