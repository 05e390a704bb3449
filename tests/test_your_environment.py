"""The page docs/your_environment.md, typed by a machine (tutorial_pages.py)."""

import re

import pytest
import yaml
from tutorial_pages import Page

from stride.config.general import GENERAL
from stride.config.raw import EnvironmentFile


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A copy of the project with everything the page tells to type."""
    return Page("../your_environment.md", tmp_path_factory.mktemp("own"))


def test_what_was_typed_changes_nothing_and_is_in_house_style(page):
    assert page.changes() == ({"corridor.py", "parts.py", "corridor.yaml"}, set())
    for check in ("ruff check", "ruff format --check"):
        page.run(f"python -m {check} corridor.py parts.py")


@pytest.mark.slow
def test_both_commands_solve_it_and_the_printed_file_trains_too(page):
    (general,), (own,) = page.commands("corridor:Corridor-v0:ppo"), page.commands("--config")
    out = page.run(general)
    assert "general settings for small discrete tasks" in out and "solved: goal reached" in out
    [printed] = re.findall(r"^# my\.yaml.*\n(env_id: .*\n.*)$", out, re.M)
    (page.copy / "my.yaml").write_text(printed)
    assert yaml.safe_load(printed)["ppo"]["max_timesteps"] == 40_000
    page.run("python train.py --config my.yaml -q max_timesteps=4096 seed=2")
    page.run(own)
    assert page.outcomes()["ppo", 1]["test_mean"] > 0.1
    page.run("python train.py --resume @last -q --max-timesteps 60000")


def test_the_classes_and_their_algorithms_are_those_there_are(page):
    rows = re.findall(r"^\| ([\w ]+) \| [^|]+ \| ([\w, ]+) \|$", page.text.partition("## Code of")[0], re.M)
    listed = {(name.replace(" ", "_"), algo_id) for name, ids in rows if name != "class" for algo_id in ids.split(", ")}
    files = [(path.stem, EnvironmentFile.read(path)) for path in GENERAL.glob("*.yaml")]
    assert listed == {(name, algo_id) for algo_id, file in files for name in file.variants}
