"""Schedules: values by hand, parsing, and how files, variants and overrides replace one another."""

import math
from pathlib import Path

import pytest

from stride.config.loader import load_file
from stride.config.schedule import Schedule
from stride.config.schema import Config

EXAMPLE = Path(__file__).parent / "CartPole-v1.yaml"


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (Schedule("linear", 1.0, 0.0), {0: 1.0, 250: 0.75, 500: 0.5, 1000: 0.0, 5000: 0.0}),
        (Schedule("linear", 1.0, 0.2, 0.25, 0.75), {0: 1.0, 250: 1.0, 500: 0.6, 750: 0.2, 1000: 0.2}),
        (Schedule("linear", 1.0, 0.0, 100, 300), {0: 1.0, 100: 1.0, 200: 0.5, 300: 0.0, 1000: 0.0}),
        (Schedule("linear", 1.0, 0.0, 0.5, 900), {500: 1.0, 700: 0.5, 900: 0.0}),
        (Schedule("cosine", 2.0, 0.0), {0: 2.0, 250: 1 + math.sqrt(0.5), 500: 1.0, 1000: 0.0}),
        (Schedule("exponential", 1.0, 0.01), {0: 1.0, 500: 0.1, 1000: 0.01}),
        (Schedule("exponential", -1.0, -4.0), {0: -1.0, 500: -2.0, 1000: -4.0}),
        (Schedule("warmup", 0.0, 3.0, 0.0, 0.1), {0: 0.0, 50: 1.5, 100: 3.0, 1000: 3.0}),
        (Schedule("linear", 1.0, 5.0, 0.5, 0.5), {0: 1.0, 499: 1.0, 500: 5.0}),
    ],
)
def test_values(schedule: Schedule, expected: dict[int, float]) -> None:
    assert {step: schedule.at(step, 1000) for step in expected} == pytest.approx(expected)


def test_a_bound_of_one_is_the_whole_run() -> None:
    assert Schedule("linear", 1.0, 0.0, 0, 1).span(1000) == (0, 1000)
    assert Schedule("linear", 1.0, 0.0, 2, 1000).span(1_000_000) == (2, 1000)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lin_0.001", Schedule("linear", 0.001, 0.0)),
        ("linear_1e-3", Schedule("linear", 0.001, 0.0)),
        ("cos_2.5e-4", Schedule("cosine", 2.5e-4, 0.0)),
        ("exp_0.1", Schedule("exponential", 0.1, 0.001)),
        ("warmup_0.001", Schedule("warmup", 0.0, 0.001, 0.0, 0.05)),
    ],
)
def test_names(text: str, expected: Schedule) -> None:
    assert Schedule.parse(text) == expected


def config_of(tmp_path: Path, text: str, *overrides: str) -> Config:
    path = tmp_path / "Test-v0.yaml"
    path.write_text(f"max_timesteps: 1e5\n{text}")
    return load_file(path, "ppo", overrides)


PARTS = """
ppo:
  policy_lr: 1e-3
  policy_lr_schedule: linear
  policy_lr_schedule_end_value: 1e-4
  policy_lr_schedule_start: 0.5
  policy_lr_schedule_end: 80_000
"""


def test_parts(tmp_path: Path) -> None:
    assert config_of(tmp_path, PARTS).policy_lr == Schedule("linear", 1e-3, 1e-4, 0.5, 80_000)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["policy_lr=5e-4"], Schedule("linear", 5e-4, 1e-4, 0.5, 80_000)),
        (["policy_lr=cos_5e-4"], Schedule("cosine", 5e-4, 0.0)),
        (["policy_lr_schedule=null"], 1e-3),
        (["policy_lr_schedule=cosine"], Schedule("cosine", 1e-3, 1e-4, 0.5, 80_000)),
        (["policy_lr_schedule_start_value=2e-3"], Schedule("linear", 2e-3, 1e-4, 0.5, 80_000)),
        (["policy_lr_schedule_end=1.0"], Schedule("linear", 1e-3, 1e-4, 0.5, 1.0)),
        (["policy_lr={kind:linear,start_value:1}"], Schedule("linear", 1.0, 0.0)),
    ],
)
def test_overrides_of_parts(overrides: list[str], expected: Schedule | float, tmp_path: Path) -> None:
    assert config_of(tmp_path, PARTS, *overrides).policy_lr == expected


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["policy_lr=5e-4"], 5e-4),
        (["policy_lr_schedule=null"], 1e-3),
        (["policy_lr_schedule=exponential"], Schedule("exponential", 1e-3, 1e-5)),
        (["policy_lr_schedule_end=0.5"], Schedule("linear", 1e-3, 0.0, 0.0, 0.5)),
        (["policy_lr_schedule=warmup"], Schedule("warmup", 0.0, 1e-3, 0.0, 0.05)),
    ],
)
def test_overrides_of_a_name(overrides: list[str], expected: Schedule | float) -> None:
    assert load_file(EXAMPLE, "ppo", overrides).policy_lr == pytest.approx(expected)


def test_the_default_is_where_a_schedule_starts(tmp_path: Path) -> None:
    config = config_of(tmp_path, "ppo: {policy_lr_schedule: linear, clip_range_vf_schedule: cosine,"
                                 " clip_range_vf_schedule_start_value: 0.3}")  # fmt: skip
    assert config.schedules() == {
        "policy_lr": Schedule("linear", 3e-4, 0.0),
        "clip_range_vf": Schedule("cosine", 0.3, 0.0),
    }


def test_a_variant_keeps_the_base_schedule_around_its_own_number(tmp_path: Path) -> None:
    text = "policy_lr_schedule: linear\npolicy_lr_schedule_start_value: 1\nppo: {policy_lr: 0.5}\n"
    assert config_of(tmp_path, text).policy_lr == Schedule("linear", 0.5, 0.0)


def test_schedules_lists_only_what_changes() -> None:
    assert set(load_file(EXAMPLE, "ppo").schedules()) == {"policy_lr", "clip_range"}
    assert load_file(EXAMPLE, "reinforce").schedules() == {}
