"""Older configs are brought forward step by step, or refused with the list of what has changed since."""

import pytest

from stride.config.loader import MIGRATIONS, from_plain, load_config, migrate, to_plain
from stride.config.schema import CHANGES, SCHEMA_VERSION
from stride.utils.user_error import UserError

THREE = {1: "the first", 2: "lr is called policy_lr", 3: "batch_size counts rows"}
STEPS = {
    1: lambda plain: {"policy_lr": plain.pop("lr"), **plain},
    2: lambda plain: {**plain, "batch_size": plain["batch_size"] * 10},
}


def test_every_step_is_taken_once_and_the_original_is_left_alone():
    old = {"schema_version": 1, "lr": 0.1, "batch_size": 2}
    assert migrate(old, STEPS, 3, THREE) == {"schema_version": 3, "policy_lr": 0.1, "batch_size": 20}
    assert migrate({**old, "schema_version": 2}, STEPS, 3, THREE)["lr"] == 0.1
    assert old == {"schema_version": 1, "lr": 0.1, "batch_size": 2}


def test_where_a_step_is_missing_the_changes_since_are_listed():
    with pytest.raises(UserError, match=r"is 1, this program reads 3; .*2: lr is called policy_lr; 3: batch_size"):
        migrate({"schema_version": 1}, {2: STEPS[2]}, 3, THREE)


def test_there_is_a_migration_from_every_version_but_todays():
    assert set(MIGRATIONS) == set(range(1, SCHEMA_VERSION)) and set(CHANGES) == set(range(1, SCHEMA_VERSION + 1))


def test_a_config_written_today_is_read_tomorrow_with_keys_it_lacks():
    """Keys that came later have defaults, so they need no version of their own."""
    plain = to_plain(load_config("CartPole-v1", "ppo"))
    for key in ("nan_guard", "checkpoint_minutes", "accumulate"):
        del plain[key]
    assert from_plain(plain) == load_config("CartPole-v1", "ppo")
