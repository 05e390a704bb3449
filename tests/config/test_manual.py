"""The manual covers every field, and docs/config.md and the listing say what the files say."""

from dataclasses import fields
from pathlib import Path

import pytest

from stride.config.checks import RANGES
from stride.config.fields import hints, takes
from stride.config.listing import list_environments
from stride.config.loader import load_config
from stride.config.manual import CLASSES, entries, field_docs, help_text, markdown
from stride.config.schema import ALGORITHMS, CHANGES, SCHEMA_VERSION, Config, PPOConfig
from stride.utils.user_error import UserError

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("algo_id", ALGORITHMS)
def test_every_field_has_a_text_and_every_number_a_range(algo_id):
    cls = ALGORITHMS[algo_id]
    docs = {name: doc for owner in CLASSES if issubclass(cls, owner) for name, doc in field_docs()[owner].items()}
    assert set(docs) == {item.name for item in fields(cls)}
    assert all(doc and "\n" not in doc for doc in docs.values())
    unbounded = {"schema_version", "early_stop_on_train_threshold", "early_stop_on_eval_threshold"}
    unbounded |= {"target_entropy", "initial_q"}
    assert {name for name, hint in hints(cls).items() if "number" in takes(hint)} - unbounded <= set(RANGES)


def test_entries_know_sections_and_defaults():
    gamma = next(entry for entry in entries(Config) if entry.name == "gamma")
    assert (gamma.section, gamma.default, gamma.takes) == ("Run", "0.99", "a number, at least 0 and at most 1")
    clip = next(entry for entry in entries(PPOConfig) if entry.name == "clip_range")
    assert clip.takes == "a number, above 0, schedulable"


def test_help_names_every_key():
    for cls in ALGORITHMS.values():
        text = help_text(cls(), width=80)
        assert all(text.count(f"  {item.name}=") == 1 for item in fields(cls))
    text = help_text(load_config("CartPole-v1", "reinforce"), width=80)
    assert "n_steps=256" in text and "batch_size=1.0" in text  # the variant's value, the algorithm's own default


def test_pages_and_tables_are_up_to_date():
    assert (ROOT / "docs" / "config.md").read_text(encoding="utf-8") == markdown()
    assert max(CHANGES) == SCHEMA_VERSION == Config().schema_version
    assert set(RANGES) <= {item.name for cls in ALGORITHMS.values() for item in fields(cls)}, "no range without a field"


def test_listing():
    rows = [row for row in list_environments("cart") if row.algorithm in ("ppo", "reinforce")]
    names = [("ppo", "ppo"), ("reinforce", "reinforce"), ("ppo_lstm", "ppo"), ("ppo_pixels", "ppo")]
    assert [(row.variant, row.algorithm) for row in rows] == names and {row.env for row in rows} == {"CartPole-v1"}
    assert {row.env for row in list_environments()} >= {"Acrobot-v1", "FrozenLake-v1", "Pendulum-v1"}
    goal = load_config("Pendulum-v1", "ppo").spec.goal
    assert [row.goal for row in list_environments("pendulum-V1:PPO")] == [f"{goal:g}"]
    with pytest.raises(UserError, match=r"matches 'Cartpoel'; did you mean CartPole-v1"):
        list_environments("Cartpoel")
