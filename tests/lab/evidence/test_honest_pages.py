"""The pages of results say of each row which code and engine it is of, and give no interval of a few seeds."""

import pytest

from lab.evidence.file import Evidence, spread
from lab.evidence.report import OLDER_HOW, older_part, row_of
from stride.utils.provenance import PROJECT

ACROBOT = PROJECT / "docs" / "results" / "Acrobot-v1-ppo.json"


@pytest.fixture
def evidence():
    """Five seeds that stopped at the goal, at commits that are long gone."""
    return Evidence.read(ACROBOT)


def test_an_older_row_names_its_commit_and_how_many_stopped_at_the_goal(evidence):
    for record in evidence.seeds.values():
        record["git_hash"] = "0" * 40
    page = "\n".join(older_part([evidence]))
    assert "| Acrobot-v1:ppo | 1-5 | -90 | 5 of 5 | 5 of 5 |" in page
    assert f"| {' | '.join(OLDER_HOW)} |" in page and "| 0000000000 |" in page


def test_few_seeds_get_no_interval(evidence):
    assert spread([1.0, 2.0, 3.0, 4.0])["low"] is None and spread([1.0, 2.0, 3.0, 4.0, 5.0])["low"] is not None
    evidence.seeds = {1: evidence.seeds[1]}
    assert "[" not in row_of(evidence)[5]
