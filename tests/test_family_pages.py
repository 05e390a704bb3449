"""The pages of docs/families: one screen each, their commands are understood, their extras are there."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from stride.commands.train_arguments import parse_arguments
from stride.config.general import Task, is_general, load_general
from stride.config.loader import load_config
from stride.utils.user_error import UserError

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "docs" / "families" / f"{name}.md" for name in ("mujoco", "dm_control", "minigrid")]
TASKS = (Task("bounded", "", None, None), Task("choice", "", None, None), Task("bounded", "", None, 84))


def commands(page):
    blocks = re.findall(r"^```\w*\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()]


def loaded(words, overrides):
    """The config of a command, for whichever kind of task it may be."""
    if not is_general(words):
        return load_config(*words.split(":"), overrides)
    problem = None
    for task in TASKS:
        try:
            return load_general(words, overrides, lambda config, task=task: task)
        except UserError as error:
            problem = error
    raise problem


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_one_screen_and_its_commands_are_understood(page):
    assert len(page.read_text().splitlines()) <= 60
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    lines = commands(page)
    (extra,) = re.findall(r"pip install 'stride-rl\[(\w+)\]'", "\n".join(lines))
    assert extra in extras
    asked = [parse_arguments(shlex.split(line)[2:]) for line in lines if line.startswith("python train.py")]
    assert len(asked) >= 2
    for given in asked:
        assert loaded(given.config_id, [*given.overrides]).max_timesteps


def test_a_key_that_is_not_there_would_be_noticed():
    with pytest.raises(UserError):
        loaded("dm_control/walker-walk:ppo", ["obs=pixel"])
