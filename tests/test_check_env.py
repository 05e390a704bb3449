"""`stride check-env` as a person types it, what it shows, and its page, typed by a machine."""

import json
import re
import shlex

import pytest
from commands import ROOT, run_command
from rich.console import Console

from stride.commands import check_env
from stride.commands.check_env import parse_check
from stride.envs_gym.check.finding import CATALOGUE, CheckResult, Measurements, finding
from stride.envs_gym.check.screen import page, progress
from stride.utils.user_error import UserError

PAGE = (ROOT / "docs" / "check_env.md").read_text()
MEASURED = Measurements(
    made_by="walker:Walker", observation_space="Box [2]", action_space="Discrete 2", steps=500, episodes=10,
    terminated=10, length_min=3, length_mean=4.5, length_max=9, reward_min=0.0, reward_max=1.0, random_return=2.0,
    random_return_std=1.0, constant_returns={"0": 1.0, "1": 3.0}, return_steps=200, step_us=20.0, reset_us=80.0,
    steps_per_second=40_000.0, round_trip_us=90.0, workers=0, workers_times=1.0,
)  # fmt: skip


def shown(result, width=100, colours=False):
    console = Console(
        width=width, force_terminal=colours, highlight=False, color_system="standard" if colours else None
    )
    with console.capture() as captured:
        for line in page(result, width):
            console.print(line, soft_wrap=True, highlight=False)
    return captured.get()


def found():
    result = CheckResult("walker:Walker", measurements=MEASURED, seconds=6.2)
    result.add(finding("never-ends", "no episode ended"))
    result.add(finding("observation-nan", "observation[1] is nan at step 3 of episode 1"))
    result.add(finding("observation-nan", "once more"))
    return result


def test_the_worst_stands_first_with_its_why_and_its_cure():
    text = shown(found())
    assert text.index("fault    observation-nan") < text.index("warning  never-ends")
    assert "cure Find the division" in text and "once more" not in text
    assert "1 fault, 1 warning, no notes; 500 random steps, 0:06" in text
    assert "worker processes do not pay" in text and "constant actions: 1 3.00, 0 1.00" in text
    assert "\x1b" not in text and "\x1b[1;31m" in shown(found(), colours=True)


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(width):
    lines = shown(found(), width).splitlines()
    assert max(map(len, lines[1:])) <= max(width, 60 if width == 40 else 0)


def test_a_check_without_a_world_is_shown_too():
    result = CheckResult("walker:Walker", stopped="its module cannot be imported")
    result.add(finding("raises", "ZeroDivisionError"))
    assert "not everything was checked: its module cannot be imported" in shown(result)
    assert "loading" in progress("walker:Walker", "", 0, 9, 1.0, True).plain


def test_json_is_what_the_page_says():
    data = found().data()
    section = PAGE.partition("## What --json holds")[2].partition("\n## ")[0]
    told = set(re.findall(r"`(\w+)`", section))
    assert {*data, *data["findings"][0], *data["facts"]} <= told
    assert json.loads(json.dumps(data))["ok"] is False and data["faults"] == 1


def test_the_page_lists_every_finding():
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (\w+) \|", PAGE, re.M))
    assert rows == {name: entry.level for name, entry in CATALOGUE.items()}
    for entry in CATALOGUE.values():
        assert f"| {entry.why} | {entry.cure} |" in PAGE


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "required: ENV"),
        (["CartPole-v1", "--step", "3"], "did you mean --steps"),
        (["CartPole-v1", "--steps", "0"], "--steps is a whole number from 1"),
        (["CartPole-v1", "--seconds", "nan"], "--seconds must be above 0"),
        (["CartPole-v1", "--timeout", "-1"], "--timeout must be above 0"),
        (["--kwargs", "a=1", "CartPole-v1"], "required: ENV"),
        (["CartPole-v1", "--kwargs", "a"], "--kwargs takes KEY=VALUE, not 'a'"),
        (["CartPole-v1", "--kwargs", "a=["], "is no value"),
        ([" "], "is no environment"),
    ],
)
def test_wrong_words_are_refused(words, said):
    with pytest.raises(UserError, match=said):
        parse_check(words)


def test_arguments_are_read_as_yaml():
    arguments = parse_check(["x:Y", "--kwargs", "size=5", "mode=easy", "walls=[1, 2]", "--json"])
    assert arguments.kwargs == {"size": 5, "mode": "easy", "walls": [1, 2]} and arguments.json


def test_the_exit_code_is_that_of_the_worst(monkeypatch, capsys):
    """Without a process: it has tests of its own."""
    clean = CheckResult("x:Y", measurements=MEASURED)
    for result, code in ((clean, 0), (found(), 1)):
        monkeypatch.setattr("stride.commands.check_env.check", lambda *words, result=result: result)
        assert check_env.main(["x:Y", "--json"]) == code
        said = capsys.readouterr()
        assert json.loads(said.out)["ok"] == (code == 0) and not said.err


@pytest.mark.slow
def test_the_page_typed(tmp_path):
    """Every command of the page, in a folder with the file that it tells to write."""
    name, text = re.search(r"^`(\w+\.py)`:\n\n```python\n(.*?)^```$", PAGE, re.M | re.S).groups()
    (tmp_path / name).write_text(text)
    commands = [line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()]
    assert len(commands) == 2
    plain, own = (run(command, tmp_path) for command in commands)
    assert plain.returncode == 0 and "no faults, no warnings, 1 note" in plain.stdout, plain.stdout + plain.stderr
    assert "CartPole-v1: random play ..." in plain.stderr and "\x1b" not in plain.stdout
    assert own.returncode == 1, own.stderr
    names = {each["name"] for each in json.loads(own.stdout)["findings"]}
    told = set(re.findall(r"`([a-z]+-[a-z-]+)`", PAGE.partition("finds four things")[2].partition("|")[0]))
    assert len(told) == 4 and told <= names


def run(command, folder):
    words = shlex.split(command)
    assert words[0] == "stride"
    return run_command("-m", *words, cwd=folder, env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"})
