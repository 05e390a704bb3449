"""The tutorial, typed by a machine: its code blocks are written into a copy of the project, its commands are run there.

Nothing is added to what the page says; so whoever follows it gets what is asserted here.
"""

import difflib
import json
import os
import re
import shlex
import shutil
from pathlib import Path

import pytest
import torch
from commands import run_command

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tutorials" / "first_algorithm.md"
FOLDERS = ("agents", "config", "envs_fast", "envs_gym", "scripts", "tests", "trainer_callbacks", "utils")
FILE = re.compile(r"^`([\w./-]+)`:\n\n```(\w+)\n(.*?)^```$", re.M | re.S)
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)


@pytest.fixture(scope="module")
def typed(tmp_path_factory):
    """A copy of the project with everything the page tells to type."""
    copy = tmp_path_factory.mktemp("tutorial") / "stride"
    copy.mkdir()
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("train.py", "pyproject.toml"):
        shutil.copy(ROOT / name, copy / name)
    for path, kind, text in FILE.findall(PAGE.read_text()):
        if kind == "diff":
            (copy / path).write_text(patched((copy / path).read_text(), text))
        else:
            assert not (copy / path).exists(), f"{path} is there already"
            (copy / path).write_text(text)
    return copy


def patched(text, diff):
    """Each hunk's context lines, found exactly once, replaced by context and additions."""
    for hunk in re.split(r"^@@\n", diff, flags=re.M):
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] == " ")
        assert {line[0] for line in lines} == {" ", "+"} and text.count(before) == 1, hunk
        text = text.replace(before, "".join(line[1:] for line in lines))
    return text


def run(copy, command):
    """A line of the page, with this interpreter; runs go beside the copy."""
    words = shlex.split(command)
    assert words[0] == "python"
    env = {**os.environ, "STRIDE_RUNS": str(copy / "runs")}
    done = run_command(*words[1:], cwd=copy, env=env, timeout=1800)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def commands(part):
    found = [line for block in SHELL.findall(PAGE.read_text()) for line in block.splitlines() if part in line]
    assert found, f"the page has no command with {part}"
    return found


def outcomes(copy):
    facts = [json.loads(path.read_text()) for path in (copy / "runs").glob("2*/config.json")]
    return {(each["variant"], each["seed"]): each["outcome"] for each in facts}


def test_one_file_each_and_one_row(typed):
    paths = [path.relative_to(typed) for path in typed.rglob("*") if path.is_file() and "runs" not in path.parts]
    paths = [path for path in paths if "__pycache__" not in path.parts and not path.parts[0].startswith(".")]
    new = {str(path) for path in paths if not (ROOT / path).exists()}
    changed = [path for path in paths if str(path) not in new and differs(path, typed)]
    assert new == {
        "agents/a2c.py",
        "tests/agents/test_a2c.py",
        "envs_gym/catch.py",
        "config/environments/Catch-v0.yaml",
    }
    assert changed == [Path("agents/algorithms.py")]
    old, now = ((where / changed[0]).read_text().splitlines() for where in (ROOT, typed))
    lines = [line for line in difflib.unified_diff(old, now, n=0, lineterm="") if line[0] in "+-"][2:]
    assert lines == ["+from agents.a2c import A2C", '+    "a2c": A2C,']


def differs(path, copy):
    return (ROOT / path).read_bytes() != (copy / path).read_bytes()


def test_what_was_typed_is_in_house_style(typed):
    files = ["agents/a2c.py", "agents/algorithms.py", "envs_gym/catch.py", "tests/agents/test_a2c.py"]
    for check in ("ruff check", "ruff format --check"):
        run(typed, f"python -m {check} {' '.join(files)}")
    run(typed, "python -m pytest tests/test_architecture.py -k house_keeps")


@pytest.mark.slow
def test_it_trains_until_solved(typed):
    listing, training = commands("--list-envs") + [line for line in commands("a2c") if line.endswith(":a2c")]
    assert "Catch-v0:a2c" in run(typed, listing) and "Catch-v0:ppo" in run(typed, listing)
    assert "solved: goal reached" in run(typed, training)
    outcome = outcomes(typed)["a2c", 1]
    assert outcome["solved"] and outcome["test_mean"] >= 0.95 and outcome["test_episodes"] == 100


def test_its_keys_have_a_manual_and_its_tests_pass(typed):
    (help_line,) = commands("--help")
    text = run(typed, help_line)
    assert "gae_lambda=1.0" in text and "What an action is compared with" in text and "n_envs=16" in text
    (test_line,) = commands("pytest")
    assert "1 passed" in run(typed, test_line)


@pytest.mark.slow
def test_every_other_command_does_what_the_page_says(typed):
    for command in commands("gae_lambda") + commands("--seed"):
        run(typed, command)
    found = outcomes(typed)
    assert found["a2c", 2]["solved"]
    for variant in ("a2c", "ppo"):
        assert [found[variant, seed]["solved"] for seed in range(101, 105)] == [True] * 4, variant


@pytest.mark.slow
def test_a_resumed_run_of_the_new_algorithm_equals_the_straight_one(typed):
    tiny = "python train.py Catch-v0:a2c --quiet seed=9 early_stop_on_eval_threshold=false eval_freq_epochs=null"
    run(typed, f"{tiny} max_timesteps=2560")
    run(typed, f"{tiny} max_timesteps=1280")
    run(typed, "python train.py --resume @last --max-timesteps 2560 --quiet")
    runs = [*(typed / "runs").glob("2*-s9-*")]
    straight, resumed = (
        torch.load(each / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"] for each in runs
    )
    assert straight.keys() == resumed.keys() and all(straight[name].equal(resumed[name]) for name in straight)
