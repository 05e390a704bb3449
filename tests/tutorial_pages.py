"""A page, typed by a machine: its code blocks are written into a copy of the project, its commands are run there.

Nothing is added to what the page says; so whoever follows it gets what its test asserts.
"""

import json
import os
import re
import shlex
import shutil
from pathlib import Path

from commands import run_command

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("agents", "config", "envs_fast", "envs_gym", "lab", "report", "runstore", "scripts", "stride", "tests")
FOLDERS += ("trainer_callbacks", "utils")
FILE = re.compile(r"^`([\w./-]+)`:\n\n```(\w+)\n(.*?)^```$", re.M | re.S)
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)


class Page:
    """A page of docs/tutorials, and a copy of the project with everything it tells to type."""

    def __init__(self, name, folder):
        self.text = (ROOT / "docs" / "tutorials" / name).read_text()
        self.copy = folder / "stride"
        for part in FOLDERS:
            shutil.copytree(ROOT / part, self.copy / part, ignore=shutil.ignore_patterns("__pycache__"))
        for part in ("train.py", "run_play.py", "pyproject.toml"):
            shutil.copy(ROOT / part, self.copy)
        self.typed = FILE.findall(self.text)
        for name, kind, text in self.typed:
            path = self.copy / name
            assert path.exists() == (kind == "diff"), f"{name} is there already, or is not"
            path.write_text(patched(path.read_text(), text) if kind == "diff" else text)

    def python(self):
        """The lines of Python that the reader types, but for empty ones."""
        lines = [line for _, kind, text in self.typed if kind == "python" for line in text.splitlines()]
        return [line for line in [*lines, *self.rows()] if line]

    def rows(self):
        """The lines that the reader adds to files that are there."""
        lines = [line for _, kind, text in self.typed if kind == "diff" for line in text.splitlines()]
        return [line[1:] for line in lines if line[0] == "+"]

    def changes(self):
        """The files that are new in the copy, and those that are others."""
        files = [path.relative_to(self.copy) for path in self.copy.rglob("*") if path.is_file()]
        files = [path for path in files if "__pycache__" not in path.parts and path.parts[0] != "runs"]
        files = [path for path in files if not path.parts[0].startswith(".")]
        new = {str(path) for path in files if not (ROOT / path).exists()}
        others = (path for path in files if str(path) not in new)
        return new, {str(path) for path in others if (ROOT / path).read_bytes() != (self.copy / path).read_bytes()}

    def run(self, command):
        """A line of the page, with this interpreter; runs go beside the copy."""
        words = shlex.split(command)
        assert words[0] == "python"
        env = {**os.environ, "STRIDE_RUNS": str(self.copy / "runs")}
        done = run_command(*words[1:], cwd=self.copy, env=env, timeout=1800)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def commands(self, part):
        """The page's commands in which that stands."""
        lines = [line for block in SHELL.findall(self.text) for line in block.splitlines() if part in line]
        assert lines, f"the page has no command with {part}"
        return lines

    def facts(self):
        """config.json of the runs, by variant and seed."""
        runs = [json.loads(path.read_text()) for path in (self.copy / "runs").glob("2*/config.json")]
        return {(run["variant"], run["seed"]): run for run in runs}

    def outcomes(self):
        """How the runs ended, by variant and seed."""
        return {key: facts["outcome"] for key, facts in self.facts().items()}


def patched(text, diff):
    """Each hunk's context lines, which must be there exactly once, replaced by context and additions."""
    for hunk in filter(None, re.split(r"^@@\n", diff, flags=re.M)):
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] == " ")
        assert {line[0] for line in lines} == {" ", "+"} and text.count(before) == 1, hunk
        text = text.replace(before, "".join(line[1:] for line in lines))
    return text
