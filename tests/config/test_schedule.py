"""Schedules: values by hand, parsing, and how files, variants and overrides replace one another."""

import math
from pathlib import Path

import pytest

from stride.config.loader import load_file
from stride.config.schedule import Schedule

EXAMPLE = Path(__file__).parent / "CartPole-v1.yaml"
VALUES = [  # at env steps of a run of 1000
    (Schedule("linear", 1.0, 0.0), {0: 1.0, 250: 0.75, 500: 0.5, 1000: 0.0, 5000: 0.0}),
    (Schedule("linear", 1.0, 0.2, 0.25, 0.75), {0: 1.0, 250: 1.0, 500: 0.6, 750: 0.2, 1000: 0.2}),
    (Schedule("linear", 1.0, 0.0, 100, 300), {0: 1.0, 100: 1.0, 200: 0.5, 300: 0.0, 1000: 0.0}),
    (Schedule("linear", 1.0, 0.0, 0.5, 900), {500: 1.0, 700: 0.5, 900: 0.0}),
    (Schedule("cosine", 2.0, 0.0), {0: 2.0, 250: 1 + math.sqrt(0.5), 500: 1.0, 1000: 0.0}),
    (Schedule("exponential", 1.0, 0.01), {0: 1.0, 500: 0.1, 1000: 0.01}),
    (Schedule("exponential", -1.0, -4.0), {0: -1.0, 500: -2.0, 1000: -4.0}),
    (Schedule("warmup", 0.0, 3.0, 0.0, 0.1), {0: 0.0, 50: 1.5, 100: 3.0, 1000: 3.0}),
    (Schedule("linear", 1.0, 5.0, 0.5, 0.5), {0: 1.0, 499: 1.0, 500: 5.0}),
]
PARTS = """
ppo:
  policy_lr: 1e-3
  policy_lr_schedule: linear
  policy_lr_schedule_end_value: 1e-4
  policy_lr_schedule_start: 0.5
  policy_lr_schedule_end: 80_000
"""
OF_PARTS = {  # an override, and the schedule that PARTS become by it
    "gamma=0.9": Schedule("linear", 1e-3, 1e-4, 0.5, 80_000),
    "policy_lr=5e-4": Schedule("linear", 5e-4, 1e-4, 0.5, 80_000),
    "policy_lr=cos_5e-4": Schedule("cosine", 5e-4, 0.0),
    "policy_lr_schedule=null": 1e-3,
    "policy_lr_schedule=cosine": Schedule("cosine", 1e-3, 1e-4, 0.5, 80_000),
    "policy_lr_schedule_start_value=2e-3": Schedule("linear", 2e-3, 1e-4, 0.5, 80_000),
    "policy_lr_schedule_end=1.0": Schedule("linear", 1e-3, 1e-4, 0.5, 1.0),
    "policy_lr={kind:linear,start_value:1}": Schedule("linear", 1.0, 0.0),
}
OF_NAME = {  # what lin_0.001 becomes
    "policy_lr=5e-4": 5e-4,
    "policy_lr=linear_1e-2": Schedule("linear", 0.01, 0.0),
    "policy_lr=exp_0.1": Schedule("exponential", 0.1, 0.001),
    "policy_lr_schedule=null": 1e-3,
    "policy_lr_schedule=exponential": Schedule("exponential", 1e-3, 1e-5),
    "policy_lr_schedule_end=0.5": Schedule("linear", 1e-3, 0.0, 0.0, 0.5),
    "policy_lr_schedule=warmup": Schedule("warmup", 0.0, 1e-3, 0.0, 0.05),
}


def config_of(tmp_path, text, *overrides):
    path = tmp_path / "Test-v0.yaml"
    path.write_text(f"max_timesteps: 1e5\n{text}")
    return load_file(path, "ppo", overrides)


@pytest.mark.parametrize(("schedule", "expected"), VALUES)
def test_values(schedule, expected):
    assert {step: schedule.at(step, 1000) for step in expected} == pytest.approx(expected)


def test_a_bound_of_one_is_the_whole_run():
    assert Schedule("linear", 1.0, 0.0, 0, 1).span(1000) == (0, 1000)
    assert Schedule("linear", 1.0, 0.0, 2, 1000).span(1_000_000) == (2, 1000)


@pytest.mark.parametrize("override", OF_PARTS)
def test_overrides_of_parts(override, tmp_path):
    assert config_of(tmp_path, PARTS, override).policy_lr == OF_PARTS[override]


@pytest.mark.parametrize("override", OF_NAME)
def test_overrides_of_a_name(override):
    assert load_file(EXAMPLE, "ppo", [override]).policy_lr == pytest.approx(OF_NAME[override])


def test_the_default_is_where_a_schedule_starts(tmp_path):
    text = "ppo: {policy_lr_schedule: linear, clip_range_vf_schedule: cosine, clip_range_vf_schedule_start_value: 0.3}"
    started = {"policy_lr": Schedule("linear", 3e-4, 0.0), "clip_range_vf": Schedule("cosine", 0.3, 0.0)}
    assert config_of(tmp_path, text).schedules() == started
    text = "policy_lr_schedule: linear\npolicy_lr_schedule_start_value: 1\nppo: {policy_lr: 0.5}\n"
    assert config_of(tmp_path, text).policy_lr == Schedule("linear", 0.5, 0.0)  # around the variant's own number
    assert load_file(EXAMPLE, "ppo").schedules().keys() == {"policy_lr", "clip_range"}
    assert load_file(EXAMPLE, "reinforce").schedules() == {}
