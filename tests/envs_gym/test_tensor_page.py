"""The page docs/families/tensor_worlds.md, typed by a machine (tutorial_pages.py)."""

import pytest
from tutorial_pages import Page


@pytest.fixture
def page(tmp_path):
    return Page("../families/tensor_worlds.md", tmp_path)


def test_its_world_is_the_only_file(page):
    assert page.changes() == ({"drift.py"}, set())


@pytest.mark.slow
def test_its_world_trains_and_is_played(page):
    (command,) = page.commands("drift:Drift-v0:ppo")
    out = page.run(command)
    assert "256, torch (it is one simulation that answers tensors)" in out
    assert "episode   3" in page.run("python run_play.py --run-id @last --headless --episodes 3")
