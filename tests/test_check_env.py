"""`stride check-env` as a person types it, what it shows, and its page, typed by a machine."""

import json
import re
import shlex
from dataclasses import replace
from types import SimpleNamespace

import pytest
from commands import ROOT, run_command
from playing import OTHERS
from rich.console import Console
from snapshots import shown

from stride.commands import check_env
from stride.commands.check_env import parse_check
from stride.envs_gym.check.constants import PlayedEpisode, _check_returns
from stride.envs_gym.check.finding import CATALOGUE, PARTS, CheckResult, Measurements, finding
from stride.envs_gym.check.screen import page, progress
from stride.utils.user_error import UserError

PAGE = (ROOT / "docs" / "check_env.md").read_text()
MEASURED = Measurements(
    made_by="walker:Walker", observation_space="Box [2]", action_space="Discrete 2", steps=500, episodes=10,
    terminated=10, length_min=3, length_mean=4.5, length_max=9, reward_min=0.0, reward_max=1.0, random_return=2.0,
    random_return_std=1.0, constant_returns={"0": 1.0, "1": 3.0}, return_steps=200, step_us=20.0, reset_us=80.0,
    steps_per_second=40_000.0, round_trip_us=90.0, workers=0, workers_times=1.0,
)  # fmt: skip


@pytest.fixture
def result():
    result = CheckResult("walker:Walker", measurements=MEASURED, seconds=6.2)
    result.add(finding("never-ends", "no episode ended"))
    result.add(finding("observation-nan", "observation[1] is nan at step 3 of episode 1"))
    result.add(finding("observation-nan", "once more"))
    return result


def screen(result, width=100, colours=None):
    console = Console(width=width, force_terminal=bool(colours), highlight=False, color_system=colours)
    with console.capture() as captured:
        for line in page(result, width):
            console.print(line, soft_wrap=True, highlight=False)
    return captured.get()


def test_the_worst_stands_first_with_its_why_and_its_cure(result, snapshot):
    assert shown(screen(result)) == snapshot
    assert "\x1b[1;31m" in screen(result, colours="standard")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_line_is_wider_than_the_terminal(result, width):
    lines = screen(result, width).splitlines()
    assert max(map(len, lines[1:])) <= max(width, 60 if width == 40 else 0)


def test_a_check_without_a_world_or_of_one_episode_is_shown_too(result):
    result = CheckResult("walker:Walker", stopped="its module cannot be imported")
    assert "not everything was checked: its module cannot be imported" in screen(result)
    assert "loading" in progress("walker:Walker", "", 0, 9, 1.0, True).plain
    result.measurements = replace(MEASURED, random_return_std=None)
    assert "random 2.00 (one episode); constant actions" in screen(result)


def test_one_random_episode_is_no_measure_of_a_constant_action():
    def findings(returns):
        """Of two constant actions, the better one with a return of 3."""
        episodes = [[PlayedEpisode(b"", total, 200, False, 0.0, total)] for total in (1.0, 3.0)]
        study = SimpleNamespace(measurements=Measurements(reward_max=5.0, reward_min=0.0))
        random = [PlayedEpisode(b"", total, 200, False, 0.0, 5.0) for total in returns]
        constant = dict(zip(("low", "high"), episodes, strict=True))
        return [one.name for one in _check_returns(study, constant, random)], study.measurements.random_return_std

    assert findings([2.0]) == ([], None)
    assert findings([2.0, 2.2]) == (["constant-action-beats-random"], pytest.approx(0.1))


def test_in_a_pipe_each_part_and_each_long_wait_is_a_line(monkeypatch, capsys):
    def check(env, kwargs, steps, seconds, timeout, show):
        for part, moment in (("", 0.0), ("", 3.0), ("", 11.0), (PARTS[1], 0.0), (PARTS[1], 12.0)):
            show(part, moment)
        return CheckResult(env)

    monkeypatch.setattr(check_env, "check", check)
    check_env.main(["walker:Walker", "--json"])
    lines = ["loading ...", "loading ... 0:11", f"2 of 9, {PARTS[1]} ...", f"2 of 9, {PARTS[1]} ... 0:12"]
    assert capsys.readouterr().err == "".join(f"walker:Walker: {line}\n" for line in lines)


def test_the_page_explains_every_key_of_json_and_lists_every_finding(result):
    data = result.data()
    section = PAGE.partition("## What --json holds")[2].partition("\n## ")[0]
    assert {*data, *data["findings"][0], *data["facts"]} <= set(re.findall(r"`(\w+)`", section))
    assert data["faults"] == 1
    rows = dict(re.findall(r"^\| `([\w-]+)` \| (\w+) \|", PAGE, re.M))
    assert rows == {name: entry.level for name, entry in CATALOGUE.items()}
    for entry in CATALOGUE.values():
        assert f"| {entry.why} | {entry.cure} |" in PAGE


WRONG = ["", "CartPole-v1 --step 3", "CartPole-v1 --steps 0", "CartPole-v1 --seconds nan", "CartPole-v1 --timeout -1",
         "--kwargs a=1 CartPole-v1", "CartPole-v1 --kwargs a", "CartPole-v1 --kwargs a=[", "' '"]  # fmt: skip


def test_arguments_are_read_as_yaml_and_wrong_words_are_refused(snapshot):
    arguments = parse_check(["x:Y", "--kwargs", "size=5", "mode=easy", "walls=[1, 2]", "--json"])
    assert arguments.kwargs == {"size": 5, "mode": "easy", "walls": [1, 2]} and arguments.json
    lines = []
    for words in WRONG:
        with pytest.raises(UserError) as caught:
            parse_check(shlex.split(words))
        lines.append(f"{words}: {caught.value}")
    assert shown("\n".join(lines), *OTHERS) == snapshot


@pytest.mark.parametrize("code", [0, 1])
def test_the_exit_code_is_that_of_the_worst(code, result, monkeypatch, capsys):
    """Without a process: it has tests of its own."""
    checked = result if code else CheckResult("x:Y", measurements=MEASURED)
    monkeypatch.setattr("stride.commands.check_env.check", lambda *words: checked)
    assert check_env.main(["x:Y", "--json"]) == code
    captured = capsys.readouterr()
    assert json.loads(captured.out)["ok"] is (code == 0) and not captured.err


@pytest.mark.slow
def test_the_page_typed(tmp_path):
    """Every command of the page, in a folder with the file that it tells to write."""
    name, text = re.search(r"^`(\w+\.py)`:\n\n```python\n(.*?)^```$", PAGE, re.M | re.S).groups()
    (tmp_path / name).write_text(text)
    commands = [line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S) for line in block.splitlines()]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    words = [shlex.split(command) for command in commands]
    assert [word for word, *_ in words] == ["stride", "stride"]
    plain, own = (run_command("-m", *command, cwd=tmp_path, env=environment) for command in words)
    assert plain.returncode == 0 and "no faults, no warnings, 1 note" in plain.stdout, plain.stdout + plain.stderr
    assert ", random play ..." in plain.stderr and "\x1b" not in plain.stdout
    assert own.returncode == 1, own.stderr
    names = {found["name"] for found in json.loads(own.stdout)["findings"]}
    on_page = set(re.findall(r"`([a-z]+-[a-z-]+)`", PAGE.partition("finds four things")[2].partition("|")[0]))
    assert len(on_page) == 4 and on_page <= names
