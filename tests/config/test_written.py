"""A config in words: what is printed is what one may type."""

import shlex

import pytest

from stride.config.diff import command_of, differing, written
from stride.config.loader import load_config, parse_config_id, to_plain


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("policy_lr=1e-3", "max_timesteps=2e6", "seed=7"),
        ("policy_lr=cos_0.002", "hidden_dims=[32,32]", "spec.goal=400", "env_kwargs.sutton_barto_reward=true"),
        ("clip_range_schedule=linear", "clip_range_schedule_end_value=0.1"),
        ("env_wrappers=[{id: SelectObservation, indices: [0, 2], note: 'a b, \\'c\\''}]", "device=cpu"),
        ("early_stop_on_eval_threshold=false", "normalize_obs=static", "project_id='null'"),
    ],
)
def test_the_command_of_a_config_makes_the_same_config_again(overrides):
    config = load_config("CartPole-v1", "ppo", overrides)
    name, _, seed, *words = shlex.split(command_of(config))
    again = load_config(*parse_config_id(name), [f"seed={seed}", *words])
    assert to_plain(again) | {"project_id": ""} == to_plain(config) | {"project_id": ""}
    assert len(words) <= len(overrides)


def test_there_is_no_command_where_the_variant_is_not_a_shipped_one():
    config = load_config("CartPole-v1", "ppo")
    object.__setattr__(config, "variant", "mine")
    assert command_of(config) == ""


def test_a_schedule_is_short_where_that_says_all_of_it():
    plain = to_plain(load_config("CartPole-v1", "ppo", ["policy_lr=lin_0.00025", "ent_coef=warmup_0.01"]))
    assert (written(plain["policy_lr"]), written(plain["ent_coef"])) == ("lin_0.00025", "warmup_0.01")
    parts = to_plain(load_config("CartPole-v1", "ppo", ["policy_lr_schedule=linear", "policy_lr_schedule_end=0.5"]))
    assert written(parts["policy_lr"]).startswith("{kind:linear,start_value:0.001")


def test_only_what_differs_from_the_algorithm_is_listed():
    changed = differing(to_plain(load_config("CartPole-v1", "ppo", ["hidden_dims=[64,64]", "optimizer_eps=1e-6"])))
    assert "hidden_dims" not in changed and changed["optimizer_eps"] == 1e-6 and "spec" not in changed
