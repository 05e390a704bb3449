"""The tutorial first_world.md, typed by a machine (tutorial_pages.py)."""

import json
import re

import pytest
import torch
from tutorial_pages import Page

FILES = {"envs_fast/harbour.py", "envs_fast/harbour.cu"}
FILES |= {"config/environments/Harbour-v0.yaml", "tests/envs_fast/test_harbour.py"}
ROWS = {"envs_fast/registry.py", "tests/reachable.py", "tests/envs_fast/test_reset_distributions.py"}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A copy of the project with everything the page tells to type."""
    return Page("first_world.md", tmp_path_factory.mktemp("world"))


def test_one_file_each_and_one_row(page):
    assert page.changes() == (FILES, ROWS)
    assert len(page.python()) <= 80, "lines of Python, world, rows and test"


@pytest.mark.slow
def test_what_was_typed_is_in_house_style(page):
    files = " ".join(path for path in sorted(FILES | ROWS) if path.endswith(".py"))
    for check in ("ruff check", "ruff format --check"):
        page.run(f"python -m {check} {files}")
    page.run("python -m pytest tests/test_architecture.py -k house_keeps")


@pytest.mark.slow
def test_the_fused_engine_trains_it_until_solved(page):
    (training,) = [line for line in page.commands("train.py") if line.endswith(":ppo")]
    assert "solved: goal reached" in page.run(training)
    (facts,) = (json.loads(path.read_text()) for path in (page.copy / "runs").glob("2*/config.json"))
    assert facts["outcome"]["solved"] and facts["outcome"]["test_episodes"] == 100
    assert "fused_cpu" in json.dumps(facts)


@pytest.mark.slow
def test_the_tests_of_all_worlds_take_it_up(page):
    (tests,) = page.commands("pytest")
    said = page.run(f"{tests} -vv")
    for each in ("is_vectorised", "bit_for_bit", "uniform_starts", "free_steps"):
        assert re.search(rf"{each}\[[^\]]*Harbour-v0.* PASSED", said), each
    assert re.search("steps_by_hand PASSED", said)


@pytest.mark.slow
def test_every_other_command_does_what_the_page_says(page):
    (speed,) = page.commands("lab.bench.rate")
    assert float(page.run(speed).split()[-1]) > 1e5  # it runs; no claim about this machine
    (seeds,) = page.commands("--seed")
    page.run(seeds)
    assert [page.outcomes()["ppo", seed]["solved"] for seed in range(101, 105)] == [True] * 4


@pytest.mark.slow
def test_a_resumed_run_equals_the_straight_one(page):
    tiny = "python train.py Harbour-v0:ppo --quiet seed=9 early_stop_on_eval_threshold=false eval_freq_epochs=null"
    page.run(f"{tiny} max_timesteps=8192")
    page.run(f"{tiny} max_timesteps=4096")
    page.run("python train.py --resume @last --max-timesteps 8192 --quiet")
    runs = (page.copy / "runs").glob("2*-s9-*")
    one, other = (torch.load(each / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"] for each in runs)
    assert one.keys() == other.keys() and all(one[name].equal(other[name]) for name in one)
