"""docs/start.md and docs/guides, typed by a machine: files are written and commands run, in the page's order."""

import os
import re
import shlex

import pytest
from commands import ROOT, run_command

from stride.commands.usage import COMMANDS

DOCS = ROOT / "docs"
PAGES = {str(path.relative_to(DOCS)): path for path in (DOCS / "start.md", *sorted(DOCS.glob("guides/*.md")))}
STEP = re.compile(r"(?:^`(?P<file>[\w./-]+)`:\n\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
COMMAND = re.compile(r"(?:^|`)(python \w+\.py[^`\n]*|stride [a-z][^`\n]*)", re.M)
NAMES = {command.name for command in COMMANDS}
SHORT = ("max_timesteps=4096", "test_episodes=4")  # of trainings that state no budget: what they reach is not the point


def steps(path):
    """(file, text) of what is typed into a file, ("", command) of what is run."""
    for match in STEP.finditer(path.read_text(encoding="utf-8")):
        if match["file"]:
            yield match["file"], match["text"]
        elif match["kind"] == "sh":
            yield from (("", line) for line in match["text"].splitlines())


def words_of(command):
    """The words behind `python`: scripts are those of this checkout, wherever it is typed."""
    program, *words = shlex.split(command)
    assert program in ("python", "stride"), command
    if program == "stride":
        return ["-m", "stride", *words]
    script, *words = words
    if script == "train.py" and "--resume" not in words and not any("max_timesteps" in word for word in words):
        words += SHORT
    return [str(ROOT / script), *words]


@pytest.mark.slow
@pytest.mark.parametrize("page", [name for name, path in PAGES.items() if any(steps(path))])
def test_every_command_of_a_page_does_what_it_is_there_for(page, tmp_path):
    own = {name: value for name, value in os.environ.items() if not name.startswith("STRIDE_")}
    env = own | {"STRIDE_RUNS": str(tmp_path / "runs"), "PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}"}
    folder = tmp_path
    for file, text in steps(PAGES[page]):
        if file:
            (folder / file).write_text(text, encoding="utf-8")
        elif text.startswith("cd "):
            folder = folder / text[3:]
        else:
            done = run_command(*words_of(text), cwd=folder, env=env, timeout=600)
            assert done.returncode == 0, f"{text}\n{done.stdout}{done.stderr}"


def test_what_is_not_run_here_is_a_command_that_there_is():
    """Windows, browsers, installations and the Hub are in blocks without a language."""
    for path in (*PAGES.values(), DOCS / "commands.md"):
        for line in COMMAND.findall(path.read_text(encoding="utf-8")):
            program, name, *_ = shlex.split(re.split(r"  +| #", line)[0].replace("'env", "env").replace("'", ""))
            if program == "python":
                assert (ROOT / name).is_file() or name == "enjoy.py", line
            else:
                assert name in NAMES, line
