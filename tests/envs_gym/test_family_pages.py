"""docs/families says of VizDoom, stable-retro and bandits what there is: arguments by name, commands that parse."""

import inspect
import re
import shlex
from pathlib import Path

import pytest

from stride.commands.train_arguments import parse_arguments
from stride.envs_fast import bandit
from stride.envs_gym.doom import DoomWorld
from stride.envs_gym.retro import RetroWorld

PAGES = Path(__file__).resolve().parents[2] / "docs" / "families"
OURS = {"scenario", "game", "render_mode", "arms_seed"}  # set by the id, or by who watches
MADE = {"vizdoom": DoomWorld, "retro": RetroWorld, "bandits": bandit.setting}


def text_of(page):
    return (PAGES / f"{page}.md").read_text()


@pytest.mark.parametrize("page", MADE)
def test_its_arguments_are_those_of_the_constructor(page):
    _, *told = re.findall(r"^\| `(\w+)(?:: ([^`]*))?` \|", text_of(page), re.MULTILINE)  # but the table's head
    parameters = inspect.signature(MADE[page]).parameters
    assert {name for name, _ in told} == {*parameters} - OURS
    for name, default in told:
        shown = str(parameters[name].default).lower().replace('"', "")
        assert default.strip('"') in ("", shown), name


@pytest.mark.parametrize("page", MADE)
def test_its_commands_parse(page):
    (block,) = re.findall(r"```sh\n(.*?)```", text_of(page), re.DOTALL)
    lines = [shlex.split(line)[2:] for line in block.splitlines() if line.startswith("python train.py")]
    assert len(lines) >= 2
    for words in lines:
        arguments = parse_arguments(words)
        assert arguments.config_id or arguments.list_envs
