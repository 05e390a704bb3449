"""A run, or a group, as it is typed, in its parts."""

import pytest

from stride.runstore.select import group_selectors, names_group, names_published, parse_selector

PARTS = {
    "@last": ("last", "@last", ""),
    "@best": ("best", "", ""),
    "@best:CartPole-v1": ("best", "CartPole-v1", ""),
    "@best:ALE/Pong-v5:ppo": ("best", "ALE/Pong-v5", "ppo"),
    "20260101-120000-Ca": ("id", "20260101-120000-Ca", ""),
    "runs/20260101-120000-Ca": ("path", "runs/20260101-120000-Ca", ""),
    "group:mine": ("group", "mine", ""),
    "@last-group": ("group", "@last", ""),
    "hub:you/cartpole@main": ("hub", "you/cartpole", "main"),
}


@pytest.mark.parametrize("text", PARTS)
def test_each_kind_of_selector(text):
    parts = parse_selector(text)
    assert parts == PARTS[text]
    assert names_group(text) == (parts[0] == "group") and names_published(text) == (parts[0] == "hub")


def test_the_prefix_of_several_groups_is_written_once():
    assert group_selectors("group:A, B,,@last-group") == ["group:A", "group:B", "group:@last"]
