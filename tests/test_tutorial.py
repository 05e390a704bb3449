"""The tutorial first_algorithm.md, typed by a machine (tutorial_pages.py)."""

import difflib

import pytest
import torch
from tutorial_pages import ROOT, Page


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A copy of the project with everything the page tells to type."""
    return Page("first_algorithm.md", tmp_path_factory.mktemp("tutorial"))


def test_one_file_each_and_one_row(page):
    new, changed = page.changes()
    assert new == {
        "agents/a2c.py",
        "tests/agents/test_a2c.py",
        "envs_gym/catch.py",
        "config/environments/Catch-v0.yaml",
    }
    assert changed == {"agents/algorithms.py"}
    old, now = ((where / "agents/algorithms.py").read_text().splitlines() for where in (ROOT, page.copy))
    lines = [line for line in difflib.unified_diff(old, now, n=0, lineterm="") if line[0] in "+-"][2:]
    assert lines == ["+from stride.agents.a2c import A2C", '+    "a2c": A2C,']


@pytest.mark.slow
def test_what_was_typed_is_in_house_style(page):
    files = ["agents/a2c.py", "agents/algorithms.py", "envs_gym/catch.py", "tests/agents/test_a2c.py"]
    for check in ("ruff check", "ruff format --check"):
        page.run(f"python -m {check} {' '.join(files)}")
    page.run("python -m pytest tests/test_architecture.py -k house_keeps")


@pytest.mark.slow
def test_it_trains_until_solved(page):
    listing, training = page.commands("--list-envs") + [line for line in page.commands("a2c") if line.endswith(":a2c")]
    assert "Catch-v0:a2c" in page.run(listing) and "Catch-v0:ppo" in page.run(listing)
    assert "solved: goal reached" in page.run(training)
    outcome = page.outcomes()["a2c", 1]
    assert outcome["solved"] and outcome["test_mean"] >= 0.95 and outcome["test_episodes"] == 100


def test_its_keys_have_a_manual_and_its_tests_pass(page):
    (help_line,) = page.commands("--help")
    text = page.run(help_line)
    assert "gae_lambda=1.0" in text and "What an action is compared with" in text and "n_envs=16" in text
    (test_line,) = page.commands("pytest")
    assert "1 passed" in page.run(test_line)


@pytest.mark.slow
def test_every_other_command_does_what_the_page_says(page):
    for command in page.commands("gae_lambda") + page.commands("--seed"):
        page.run(command)
    found = page.outcomes()
    assert found["a2c", 2]["solved"]
    for variant in ("a2c", "ppo"):
        assert [found[variant, seed]["solved"] for seed in range(101, 105)] == [True] * 4, variant


@pytest.mark.slow
def test_a_resumed_run_of_the_new_algorithm_equals_the_straight_one(page):
    tiny = "python train.py Catch-v0:a2c --quiet seed=9 early_stop_on_eval_threshold=false eval_freq_epochs=null"
    page.run(f"{tiny} max_timesteps=2560")
    page.run(f"{tiny} max_timesteps=1280")
    page.run("python train.py --resume @last --max-timesteps 2560 --quiet")
    runs = [*(page.copy / "runs").glob("2*-s9-*")]
    straight, resumed = (
        torch.load(each / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"] for each in runs
    )
    assert straight.keys() == resumed.keys() and all(straight[name].equal(resumed[name]) for name in straight)
