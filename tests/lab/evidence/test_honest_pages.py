"""The pages of results say of each row which code and engine it is of, and give no interval of a few seeds."""

import subprocess

import pytest

from lab.evidence.file import Evidence, age, spread
from lab.evidence.report import HOW, cautions, has_changed, markdown
from stride.config.loader import load_config, to_plain
from stride.utils.provenance import PROJECT

ACROBOT = PROJECT / "docs" / "results" / "Acrobot-v1-ppo.json"


@pytest.fixture
def evidence():
    """Of a variant as it is shipped today, by five seeds that stopped at the goal, at commits that are long gone."""
    evidence = Evidence.read(ACROBOT)
    evidence.config = to_plain(load_config("Acrobot-v1", "ppo"))
    return evidence


def test_a_row_names_its_engine_its_commit_and_how_many_stopped_at_the_goal(evidence):
    for number, record in enumerate(evidence.seeds.values()):
        record["git_hash"], record["engine"] = "0" * 40, ("eager", "fused_cpu")[number % 2]
    page = markdown("results", [evidence])
    assert "| Acrobot-v1:ppo | 1-5 | -90 | 5 of 5 | 5 of 5 |" in page
    assert f"| {' | '.join(HOW)} |" in page and "| eager, fused_cpu | 0000000000 | not in this repository |" in page


def test_few_seeds_get_no_interval(evidence):
    assert spread([1.0, 2.0, 3.0, 4.0])["low"] is None and spread([1.0, 2.0, 3.0, 4.0, 5.0])["low"] is not None
    evidence.seeds = {1: evidence.seeds[1]}
    assert "Acrobot-v1:ppo: 1 seed only, too few for an interval" in cautions(evidence, ["Acrobot-v1:ppo"])


def test_only_keys_that_change_bits_change_a_variant(evidence):
    evidence.config["threads"] = 7
    assert not has_changed(evidence)
    evidence.config["gamma"] = 0.5
    assert has_changed(evidence)


def test_the_code_of_today_is_the_same_only_where_no_source_differs():
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=PROJECT, capture_output=True, text=True).stdout.strip()
    assert age(f"{commit}+changes") == "changed since" and age("0" * 40) == "not in this repository"
